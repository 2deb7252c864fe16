"""Connections that say nothing cost an HTTP server no more than its limits; honest requests are answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry

from bench.abuse.admin import KINDS, attack
from fleet.service import descriptors, http_server, listening
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.http_server import MAX_HEAD_BYTES, HttpServer
from warmroute.gpu_agent.page import AgentServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MOST = 16


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "http_connections", lambda: MOST)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def descriptors_now() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def changed(body: object) -> dict[str, object]:
    return {"done": body}


@pytest.fixture(params=["admin", "agent"])
async def door(request: pytest.FixtureRequest, unused_tcp_port: int) -> AsyncIterator[str]:
    address = f"127.0.0.1:{unused_tcp_port}"
    registry = CollectorRegistry()
    server: AdminServer | AgentServer
    if request.param == "admin":
        action = {"/api/v1/update_weights": changed}
        server = AdminServer(Access(address), registry, lambda: True, {}, actions=action)
    else:
        server = AgentServer(address, registry, lambda: None, lambda: True, lambda _uuid, _code: None)
    await server.start()
    yield address
    await server.stop()


async def healthy(address: str) -> bool:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as client:
        return (await client.get(f"http://{address}/healthz")).status == 200


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "half_body"])
async def test_health_answers_despite_many_connections(door: str, kind: str) -> None:
    quiet = descriptors_now()
    attacking = asyncio.create_task(
        attack(door, kind, connections=8 * MOST, most_bytes=8 << 20, seconds=60.0)
    )
    try:
        await until(lambda: descriptors_now() > quiet + MOST)
        for _ in range(10):
            assert await healthy(door)
            # Each connection has two ends in this process, and those that are closed one for a moment.
            assert descriptors_now() <= quiet + 8 * MOST + 2 * MOST
            await asyncio.sleep(0.02)
    finally:
        attacking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await attacking


async def test_longest_idle_connection_is_replaced_at_limit(door: str) -> None:
    host, _, port = door.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(MOST)]
    await until(lambda: len([reader for reader, _ in opened if not reader.at_eof()]) == MOST)
    newest, writer = await asyncio.open_connection(host, int(port))
    assert await opened[0][0].read() == b""
    assert not opened[1][0].at_eof()
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await newest.readline()).startswith(b"HTTP/1.1 200")
    for _, each in (*opened, (newest, writer)):
        each.transport.abort()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"]
)
async def test_a_connection_has_a_time_for_its_next_request(
    door: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.05)
    host, _, port = door.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert (b"200 OK" in answer) == sent.endswith(b"\r\n\r\n")
    writer.close()


async def test_a_request_has_a_time_for_its_body(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.05)
    address = f"127.0.0.1:{unused_tcp_port}"
    admin = AdminServer(
        Access(address), CollectorRegistry(), lambda: True, {}, actions={"/api/v1/update_weights": changed}
    )
    await admin.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port)
    writer.write(KINDS["half_body"][0])
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.transport.abort()
    await admin.stop()


async def test_a_handler_at_work_is_not_ended_for_its_silence(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.05)
    released = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await released.wait()
        return web.Response(text="done")

    application = web.Application()
    application.router.add_get("/slow", slow)
    server = HttpServer(Access(f"127.0.0.1:{unused_tcp_port}"), application)
    await server.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{unused_tcp_port}") as client:
        requests = [asyncio.create_task(client.get("/slow")) for _ in range(MOST)]
        await until(lambda: len(server._working) == MOST)
        await asyncio.sleep(0.1)
        # All are at work: a newcomer is refused, and nobody ended.
        with pytest.raises(aiohttp.ClientError):
            await client.get("/slow")
        released.set()
        for each in requests:
            assert await (await each).text() == "done"
    await server.stop()
    assert not server._waiting
    assert not server._working


@pytest.mark.parametrize("headers", [b"a: " + b"x" * 9000, b"\r\n".join(b"x-%d: y" % n for n in range(60))])
async def test_a_heads_fields_have_limits(door: str, headers: bytes) -> None:
    assert await answer(door, b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + headers + b"\r\n\r\n") == b"400"


async def answer(address: str, *pieces: bytes) -> bytes:
    """Send pieces one after the other; returns the status of the first answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.001)
    async with asyncio.timeout(60):
        status = (await reader.readline()).split()[1]
    writer.transport.abort()
    return status


FIRST = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
FIELD = b"x-%d: " + b"y" * 4096 + b"\r\n"


@pytest.mark.parametrize("whole", [True, False])
async def test_a_head_has_a_limit_over_all_its_fields(door: str, whole: bool) -> None:
    fields = [FIELD % number for number in range(4)]
    assert len(FIRST) + sum(map(len, fields)) > MAX_HEAD_BYTES
    assert await answer(door, *([FIRST + b"".join(fields)] if whole else [FIRST, *fields])) == b"431"
    # Fewer are taken, in whatever pieces.
    assert await answer(door, FIRST, *fields[:3], b"\r", b"\n") == b"200"


@pytest.mark.parametrize("begun", [FIRST + b"\r\n", FIRST + b"content-length: 1\r\n\r\nx"])
async def test_no_head_comes_around_the_limit_behind_another_request(
    door: str, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, parsed = web.RequestHandler.data_received, 0

    def counted(self: web.RequestHandler, data: bytes) -> None:
        nonlocal parsed
        parsed += len(data)
        parse(self, data)

    monkeypatch.setattr(web.RequestHandler, "data_received", counted)
    host, _, port = door.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(begun + FIRST + b"".join(FIELD % number for number in range(40)))
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 ")
        # Closed while something was on its way is closed too.
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
    assert len(begun) <= parsed <= len(begun) + MAX_HEAD_BYTES
    writer.transport.abort()


async def test_requests_on_one_connection_are_answered_in_turn(door: str) -> None:
    host, _, port = door.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    stream = b"\r\n" + FIRST + b"\r\n"
    for at in range(0, len(stream) * 20, 7):
        writer.write((stream * 20)[at : at + 7])
    writer.write(FIRST + b"connection: close\r\n\r\n")
    async with asyncio.timeout(60):
        assert (await reader.read()).count(b"200 OK") == 21
    writer.close()


async def test_a_connection_without_its_body_makes_room(unused_tcp_port: int) -> None:
    async def take(request: web.Request) -> web.Response:
        return web.Response(body=await http_server.body_of(request))

    application = web.Application()
    application.router.add_post("/", take)
    application.router.add_get("/healthz", take)
    server = HttpServer(Access(address := f"127.0.0.1:{unused_tcp_port}"), application)
    await server.start()
    try:
        streams = [await asyncio.open_connection("127.0.0.1", unused_tcp_port) for _ in range(MOST)]
        for _, writer in streams:
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
        await until(lambda: len(server._working) == MOST)
        assert await healthy(address)
        for _, writer in streams[1:]:
            writer.write(b"whole")
        for reader, writer in streams[1:]:
            assert await reader.readuntil(b"halfwhole")
            writer.close()
        assert not await streams[0][0].read()
        streams[0][1].close()
    finally:
        await server.stop()


async def test_health_does_not_wait_behind_pages(unused_tcp_port: int) -> None:
    pages = 0

    async def page(_: web.Request) -> web.Response:
        nonlocal pages
        pages += 1
        time.sleep(0.02)  # noqa: ASYNC251 - work, after which the next page waits as long
        return web.Response()

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_get("/metrics", page)
    application.router.add_get("/healthz", health)
    server = HttpServer(Access(f"127.0.0.1:{unused_tcp_port}"), application)
    await server.start()
    try:
        streams = [await asyncio.open_connection("127.0.0.1", unused_tcp_port) for _ in range(MOST)]
        for _, writer in streams[1:]:
            writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: pages)
        reader, writer = streams[0]
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await reader.readuntil(b"ok")
        assert pages < MOST - 1
        for _, writer in streams:
            writer.close()
    finally:
        await server.stop()


async def test_a_body_may_come_in_pieces_and_after_its_head(unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    action = {"/api/v1/update_weights": changed}
    admin = AdminServer(Access(address), CollectorRegistry(), lambda: True, {}, actions=action)
    await admin.start()
    try:
        body = b"[" + b",".join([b"1"] * 300_000) + b"]"
        async with aiohttp.ClientSession(f"http://{address}") as client:
            for _ in range(2):
                response = await client.post(
                    "/api/v1/update_weights", data=body, headers={"content-type": "application/json"}
                )
                assert (await response.json())["done"] == [1] * 300_000

            async def chunks() -> AsyncIterator[bytes]:
                yield b"[1]"

            response = await client.post("/api/v1/update_weights", data=chunks())
            assert response.status == 411
    finally:
        await admin.stop()


@pytest.mark.parametrize("kind", ["malformed", "broken_off"])
async def test_malformed_requests_do_not_flood_the_log(
    unused_tcp_port: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    registry = CollectorRegistry()
    action = {"/api/v1/update_weights": changed}
    admin = AdminServer(Access(address), registry, lambda: True, {}, actions=action)
    await admin.start()
    with caplog.at_level(logging.INFO):
        if kind == "malformed":
            for _ in range(20):
                assert await answer(address, FIRST + b"no header\x1b\r\n\r\n") == b"400"
        else:
            await attack(address, "half_body", connections=8 * MOST, seconds=0.5)
        await admin.stop()
    assert "Traceback" not in caplog.text
    assert caplog.text.count("malformed") == (kind == "malformed")
    assert len(caplog.records) < 5
    assert registry.get_sample_value("warmroute_admin_faults_total") == 0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_burst_of_connections_stays_within_limit(
    new_loop: Callable[[], asyncio.AbstractEventLoop], unused_tcp_port: int
) -> None:
    """Services run on uvloop, whose transports are classes of its own."""

    async def flood() -> None:
        server = HttpServer(Access(f"127.0.0.1:{unused_tcp_port}"), web.Application())
        await server.start()
        quiet, count = descriptors_now(), 20 * MOST
        socks = [socket.create_connection(("127.0.0.1", unused_tcp_port)) for _ in range(count)]
        async with asyncio.timeout(60):
            for _ in range(4 * count):
                await asyncio.sleep(0)
                assert descriptors_now() - quiet - count <= 2 * MOST
        assert len(server._waiting) == MOST
        for sock in socks:
            sock.close()
        # One more is the loop's own.
        await until(lambda: descriptors_now() <= quiet + 1)
        await server.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(flood())


def test_every_server_has_its_part_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three gRPC servers and one of HTTP leave some for scrapes."""
    for limit in (256, 1024, 4096, descriptors._MOST):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
        assert 3 * descriptors.grpc_connections() + descriptors.http_connections() < limit


def test_services_raise_the_limit_of_descriptors() -> None:
    code = (
        "import resource as r\n"
        "hard = r.getrlimit(r.RLIMIT_NOFILE)[1]\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (200, min(hard, 400)))\n"
        "from fleet.service.serving import run\n"
        "async def main():\n"
        "    return r.getrlimit(r.RLIMIT_NOFILE)[0] - 400\n"
        "raise SystemExit(run(main()))\n"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


async def test_want_of_descriptors_ends_nothing(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    accept, failed = loop.sock_accept, 0

    async def refuse(listening: object) -> object:
        nonlocal failed
        failed += 1
        if failed <= 3:
            raise OSError(24, "Too many open files")
        return await accept(listening)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "sock_accept", refuse)
    monkeypatch.setattr(listening, "_AGAIN_SECONDS", 0.01)
    address = f"127.0.0.1:{unused_tcp_port}"
    admin = AdminServer(Access(address), CollectorRegistry(), lambda: True, {})
    with caplog.at_level(logging.ERROR):
        await admin.start()
        assert await healthy(address)
    assert caplog.text.count("Too many open files") == 1
    await admin.stop()
