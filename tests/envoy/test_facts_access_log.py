"""What the real Envoy tells of finished requests, and that telling costs nobody an answer."""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from warmroute.demo.tether import tethered
from xds_server.access_log.service import AccessLogService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from xds_server.access_log.finished import Finished

STAND_IN = """
import asyncio, sys, grpc
from prometheus_client import CollectorRegistry
from xds_server.access_log.service import AccessLogService
async def main():
    server = grpc.aio.server()
    def take(finished, now):
        print(finished.request_id, flush=True)
    AccessLogService(take, CollectorRegistry()).register(server)
    server.add_insecure_port(sys.argv[1])
    await server.start()
    print("listening", flush=True)
    await server.wait_for_termination()
asyncio.run(main())
"""


class Log:
    """What has arrived."""

    def __init__(self) -> None:
        self.requests: list[Finished] = []
        self.registry = CollectorRegistry()
        self.service = AccessLogService(lambda finished, _: self.requests.append(finished), self.registry)

    def mended(self) -> float:
        return self.registry.get_sample_value("warmroute_access_log_mended_total") or 0.0

    async def of(self, answer: Any) -> Finished:
        """Wait for the entry of an answered request."""
        (wanted,) = answer.upstream("x-request-id")
        return await self.wait_for(lambda request: request.request_id == wanted)

    async def wait_for(self, condition: Any) -> Finished:
        async with asyncio.timeout(10):
            while not (held := [request for request in self.requests if condition(request)]):
                await asyncio.sleep(0.01)
        assert len(held) == 1, "each request is told once"
        return held[0]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def logged(worlds: Any) -> AsyncIterator[tuple[Any, Log]]:
    log = Log()
    async with worlds(register=log.service.register) as world:
        yield world, log


async def test_the_host_really_used_is_told_after_a_retry(logged: Any) -> None:
    """With the pick, the attempts, what ext_proc noted, and the id that the engine saw too."""
    world, log = logged
    dead, second, _ = world.pools["mixed"]
    world.ext_proc.reset()
    world.ext_proc.pick = f"{dead},{second}"
    world.ext_proc.metadata = {"endpoint": dead, "reason": "warm", "matched": "0.50"}
    before = time.time()
    finished = await log.of(await world.post(listener="mixed"))
    assert (finished.address, finished.picked, finished.attempts) == (second, dead, 2)
    assert (finished.status, finished.cluster, finished.flags) == (200, "mixed", ())
    assert finished.metadata == {"endpoint": dead, "reason": "warm", "matched": "0.50"}
    assert finished.retried_away
    assert not finished.faulty
    assert before - 1 < finished.started_at < before + 10


async def test_first_byte_and_end_are_told_apart(logged: Any) -> None:
    """Of a stream that is silent in between; without a pick there is none."""
    world, log = logged
    world.ext_proc.reset()
    await world.request("GET", path="/stream?silence=0.6")
    finished = await log.wait_for(lambda r: r.duration_seconds is not None and r.duration_seconds > 0.5)
    assert finished.first_byte_seconds is not None
    assert finished.first_byte_seconds < 0.5
    assert (finished.picked, finished.metadata) == ("", {})


async def test_when_the_attempt_that_was_answered_was_sent_is_told(logged: Any) -> None:
    """From the start, so with the attempts that failed before it and the waits between them."""
    world, log = logged
    dead, second, _ = world.pools["mixed"]
    world.ext_proc.reset()
    world.ext_proc.pick = second
    once = await log.of(await world.post(listener="mixed"))
    world.engines.delays[second] = 0.3
    world.ext_proc.pick = f"{dead},{second}"
    twice = await log.of(await world.post(listener="mixed"))
    world.engines.delays.clear()
    assert (once.attempts, twice.attempts) == (1, 2)
    for finished in (once, twice):
        assert 0 < finished.sent_seconds < finished.first_byte_seconds
    assert twice.first_byte_seconds - twice.sent_seconds >= 0.29


async def test_whether_a_request_named_a_session_is_told(logged: Any) -> None:
    """With one, Envoy keeps it on one endpoint, so it is no draw by weights."""
    world, log = logged
    world.ext_proc.reset()
    assert (await log.of(await world.post(headers={"x-session-id": "s-1"}))).session is not None
    assert (await log.of(await world.post())).session is None


@pytest.mark.parametrize(("status", "fault"), [(500, True), (429, False)])
async def test_answers_of_a_host_are_told_as_they_are(logged: Any, status: Any, fault: Any) -> None:
    """Its own 500 is a fault, its 429 is none."""
    world, log = logged
    busy = world.pools["live"][0]
    world.ext_proc.reset()
    world.ext_proc.pick = busy
    world.engines.statuses[busy] = status
    finished = await log.of(await world.post())
    world.engines.statuses.clear()
    assert (finished.address, finished.status, finished.faulty) == (busy, status, fault)


async def test_connections_that_fail_are_told_of_their_host(logged: Any) -> None:
    """A refused one and one that is cut; the host stands in the entry although nobody answered."""
    world, log = logged
    cutting = world.pools["live"][1]
    world.ext_proc.reset()
    world.ext_proc.pick = cutting
    world.engines.resets.add(cutting)
    assert (await world.post()).status == 503
    world.engines.resets.clear()
    cut = await log.wait_for(lambda request: "UC" in request.flags)
    assert (cut.address, cut.faulty, cut.first_byte_seconds) == (cutting, True, None)
    dead = world.pools["mixed"][0]
    world.set_membership({"mixed": [dead]})
    for address in world.pools["mixed"][1:]:
        await world.eds_absent("mixed", address)
    world.ext_proc.pick = ""
    assert (await world.post(listener="mixed")).status == 503
    refused = await log.wait_for(lambda request: "UF" in request.flags)
    assert (refused.address, refused.faulty, refused.first_byte_seconds) == (dead, True, None)
    world.set_weights({})


async def test_a_client_that_leaves_blames_nobody(logged: Any) -> None:
    """Before the first byte there is no status either."""
    world, log = logged
    world.ext_proc.reset()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await world.request("GET", path="/stream?silence=20")
    finished = await log.wait_for(lambda request: "DC" in request.flags)
    assert finished.aborted
    assert not finished.faulty


@pytest.mark.parametrize("header", [b"x-session-id", b"x-request-id", b"user-agent", b"referer"])
async def test_text_that_is_no_utf8_hides_no_request(logged: Any, header: Any) -> None:
    """Envoy tells of it as it came, in one message with what others asked; all of them count."""
    world, log = logged
    world.ext_proc.reset()
    log.requests.clear()
    host, port = world.url(path="").removeprefix("http://").split(":")
    mended = log.mended()
    for _ in range(10):
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = b"GET / HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n" + header + b": caf\xe9\r\n\r\n"
        writer.write(lines)
        async with asyncio.timeout(300):
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        await world.post()
    await world.eventually(lambda: len(log.requests) >= 20, "all are told")
    assert sum(request.session is not None for request in log.requests) == (
        10 if header == b"x-session-id" else 0
    )
    ids = {request.request_id for request in log.requests}
    assert len(ids) == (11 if header == b"x-request-id" else 20)
    assert log.registry.get_sample_value("warmroute_access_log_malformed_total") == 0
    assert log.mended() - mended == (10 if header in {b"x-session-id", b"x-request-id"} else 0), (
        "Envoy mends the others itself"
    )


async def ask(world: Any, count: int) -> float:
    """Return the median of so many requests' times, after all were answered well."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        assert (await world.post()).status == 200
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


async def listener_process(address: str) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(
        *tethered([sys.executable, "-c", STAND_IN, address]),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"listening\n"
    return process, process.stdout


async def told_again(world: Any, lines: asyncio.StreamReader) -> None:
    """Ask until a request is told of; the first may still be dropped, while those before it are read."""
    asked: set[bytes] = set()

    async def keep_asking() -> None:
        while True:
            asked.update(value.encode() for value in (await world.post()).upstream("x-request-id"))
            await asyncio.sleep(0.1)

    asking = asyncio.create_task(keep_asking())
    try:
        async with asyncio.timeout(300):
            while (line := await lines.readline()).strip() not in asked:
                assert line, "the process ended"
    finally:
        asking.cancel()


async def test_xds_server_frozen_or_gone_costs_no_request_anything(worlds: Any) -> None:
    """Envoy drops what it cannot tell, within a bound, and tells again when somebody listens."""
    log = Log()
    async with worlds(register=log.service.register) as world:
        usual = await ask(world, 100)
        await world.eventually(lambda: len(log.requests) >= 100, "entries arrive")
        await world.xds_server.stop(None)
        assert await ask(world, 100) < 10 * usual, "gone"
        process, lines = await listener_process(world.settings.xds.address)
        try:
            heard = asyncio.create_task(lines.readline())
            async with asyncio.timeout(300):
                while not heard.done():
                    await ask(world, 1)
                    await asyncio.sleep(0.1)
            process.send_signal(signal.SIGSTOP)
            assert await ask(world, 100) < 10 * usual, "frozen"
            async with asyncio.timeout(300):
                while not (await dropped(world)):
                    await asyncio.gather(*(ask(world, 20) for _ in range(8)))
            assert await ask(world, 100) < 10 * usual, "frozen for long"
            process.send_signal(signal.SIGCONT)
            await told_again(world, lines)
        finally:
            process.kill()
            await process.wait()


async def dropped(world: Any) -> int:
    stats = await world.envoy.stats("access_logs.grpc_access_log")
    return int(stats["access_logs.grpc_access_log.logs_dropped"])
