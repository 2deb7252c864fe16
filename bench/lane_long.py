"""What stays behind in the service: memory after very many requests, memory of open streams, wake-ups."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc

from bench.lane_site import BARE_LANE, FAILURES, GRPCIO, LANE, chats, running_service, running_sites
from bench.resets import request, resident_bytes
from bench.wrk import MARK, PATH, Wrk
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from fleet.settings.xds import XdsSettings
from warmroute.demo import report
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.report import Target

REQUESTS: Final = 1_000_000
STREAMS: Final = 20_000
IDLE_SECONDS: Final = 10.0
_CONNECTIONS: Final = 8
_SLICE_SECONDS: Final = 10
_WARM_UP_SHARE: Final = 0.1
_BYTES_OF_NOISE: Final = 1_500_000
"""Between two looks at one process."""
_LEAVE_SECONDS: Final = 0.01
"""Between clients that leave."""
_CHANNEL_STREAMS: Final = 1000
_OPENING: Final = 50
_SETTLE_SECONDS: Final = 2.0
_MOST_OF_GRPCIO: Final = 0.1
"""Memory of an open stream, divided by that of one on grpcio."""
_MOST_AGAIN_BYTES: Final = 100.0
"""More for each stream when as many are opened a second time: what closed streams leave."""
_CHANCE: Final = 1.1
"""A wake-up more or less at the edges of the time."""


async def many_requests(side: str, requests: int) -> dict[str, Any]:
    """Send requests through Envoy after a warm-up, with clients that leave among them; sample the memory.

    The prompts come again and again unchanged, so the prefix index stands still.

    Raises:
        BenchError: a part did not start, or a request failed.
    """
    async with running_sites((side,)) as (directory, running):
        site = running[side]
        assert site.service is not None
        # The number that makes requests differ is in a field that no one reads.
        bodies = [f'{{"x": "{MARK}", {body.replace(MARK, "")[1:]}' for body in chats(4 * 1024)]
        wrk = Wrk(directory / "long", bodies)
        departures = [0]
        leaving = asyncio.create_task(_leave(site.address, bodies[0].encode(), departures))
        try:
            resident: list[int] = []
            start, before, end = 0, await site.failures(), int(requests * _WARM_UP_SHARE)
            while (sent := await site.sent()) < end or not resident:
                if sent >= end:
                    start, end = sent, sent + requests
                    resident.append(resident_bytes(site.service.pid))
                load = await wrk.run(site.address, _CONNECTIONS, _SLICE_SECONDS)
                if load.refused or load.broken:
                    raise BenchError(f"{side}: {load.refused} requests were refused, {load.broken} broke")
                if resident:
                    resident.append(resident_bytes(site.service.pid))
                    report.progress(f"{await site.sent() - start} requests: {resident[-1]} bytes")
        finally:
            leaving.cancel()
        after = await site.failures()
        return {
            "side": side,
            "requests": await site.sent() - start,
            "clients_that_left": departures[0],
            "resident_bytes": resident,
            "ext_proc": {name: after[name] - before[name] for name in after},
        }


async def _leave(address: str, body: bytes, count: list[int]) -> None:
    """Send requests, or half of them, and leave without an answer."""
    host, _, port = address.rpartition(":")
    head = f"POST {PATH} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n"
    whole = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    while True:
        for sent in (whole, whole[: len(whole) // 2]):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            await asyncio.sleep(0)
            writer.transport.abort()
            count[0] += 1
            await asyncio.sleep(_LEAVE_SECONDS)


def long_targets(result: dict[str, Any]) -> list[Target]:
    """Hold memory and Envoy's counters against what was there after the warm-up."""
    resident = result["resident_bytes"]
    failures = sum(result["ext_proc"][name] for name in FAILURES)
    return [
        report.exactly("ext_proc_failures", failures, 0),
        report.at_most("bytes_grown", resident[-1] - resident[0], _BYTES_OF_NOISE),
    ]


async def open_streams(sides: Sequence[str], count: int) -> dict[str, Any]:
    """Open streams that have their reply and stay, as those of requests that engines answer.

    Raises:
        BenchError: a service did not start.
    """
    result = {}
    for side in sides:
        async with running_service(side) as (socket, pid), contextlib.AsyncExitStack() as stack:
            stubs = []
            for number in range(-(-count // _CHANNEL_STREAMS)):
                channel = grpc.aio.insecure_channel(f"unix:{socket}", options=[("n", number)])
                stubs.append(pb_grpc.ExternalProcessorStub(await stack.enter_async_context(channel)))  # type: ignore[no-untyped-call]
            await _open(stubs, len(stubs))
            resident = [resident_bytes(pid)]
            for _ in range(2):
                calls = await _open(stubs, count)
                resident.append(resident_bytes(pid))
                for call in calls:
                    call.cancel()
                await asyncio.sleep(_SETTLE_SECONDS)
            first, second = ((after - before) / count for before, after in itertools.pairwise(resident))
            result[side] = {
                "streams": count,
                "bytes_a_stream": round(first),
                "more_when_opened_again": round(second),
            }
            report.progress(f"{side}: {result[side]}")
    return result


def stream_targets(result: dict[str, Any]) -> list[Target]:
    """Compare the lane's streams with grpcio's."""
    over = report.ratio(*(result[side]["bytes_a_stream"] for side in (LANE, GRPCIO)))
    again = result[LANE]["more_when_opened_again"]
    return [
        report.at_most("bytes_a_stream_over_grpcio", over, _MOST_OF_GRPCIO),
        report.at_most("more_bytes_when_opened_again", again, _MOST_AGAIN_BYTES),
    ]


async def _open(stubs: Sequence[Any], count: int) -> list[Any]:
    message, calls = request(), []

    async def some(number: int) -> None:
        for at in range(number, count, _OPENING):
            call = stubs[at % len(stubs)].Process()
            await call.write(message)
            await call.read()
            calls.append(call)

    await asyncio.gather(*(some(number) for number in range(_OPENING)))
    return calls


async def idle(sides: Sequence[str], seconds: float) -> dict[str, Any]:
    """Count how often each service wakes up without a connection and a request.

    Raises:
        BenchError: a service did not start.
    """
    result = {}
    for side in sides:
        async with running_service(side) as (_, pid):
            await asyncio.sleep(_SETTLE_SECONDS)
            before, began = _switches(pid), time.monotonic()
            await asyncio.sleep(seconds)
            result[side] = round((_switches(pid) - before) / (time.monotonic() - began), 2)
            report.progress(f"{side}: {result[side]} wake-ups a second")
    return result


def idle_targets(result: dict[str, Any]) -> list[Target]:
    """Neither the transport nor the worker may wake up, but for the worker's report to xds_server."""
    reports = 1.0 / XdsSettings().tick_seconds
    return [
        report.exactly("bare_lane_wake_ups_a_second", result[BARE_LANE], 0.0),
        report.at_most("lane_wake_ups_a_second", result[LANE], _CHANCE * reports),
    ]


def _switches(pid: int) -> int:
    """Voluntary context switches of all threads: each is a sleep, and so a wake-up."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        count += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return count
