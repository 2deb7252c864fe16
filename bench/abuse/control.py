"""Hostile workers and GPU agents: absurd counts, reports of unknown endpoints, silence."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import grpc

from bench.abuse.sending import field, send_calls
from fleet.wire import control_pb2, gpu_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.abuse.sending import Sent

FOLLOW: Final = "/warmroute.v1.FleetControl/Follow"
REPORT: Final = "/warmroute.v1.GpuReports/Report"
_REPORT: Final = control_pb2.FollowRequest.REPORT_FIELD_NUMBER
_GPUS: Final = gpu_pb2.GpuReport.GPUS_FIELD_NUMBER
_NVLINKS: Final = gpu_pb2.Gpu.NVLINKS_FIELD_NUMBER
_DISTINCT: Final = 16_384
"""Links of a host; a larger message repeats them. Distinct ones would take longer than the attack to make."""
_PAUSE_SECONDS: Final = 0.05
MOST: Final = 2**32 - 1


def hello(worker: str) -> bytes:
    """Return a worker's first message."""
    return bytes(control_pb2.FollowRequest(hello=control_pb2.Hello(worker=worker)).SerializeToString())


def report(addresses: Sequence[str], in_flight: int) -> bytes:
    """Return a report with one number of requests in flight for each endpoint."""
    request = control_pb2.FollowRequest()
    request.report.SetInParent()
    for address in addresses:
        request.report.endpoints.add(address=address, in_flight=in_flight, started_total=2**64 - 1)
    return bytes(request.SerializeToString())


def _counts(addresses: Sequence[str], _: int) -> Iterator[bytes]:
    """Every endpoint is reported with the largest possible number."""
    yield hello("abuse")
    while True:
        yield report(addresses, MOST)


def _strangers(_: Sequence[str], size: int) -> Iterator[bytes]:
    """Endpoints outside the fleet."""
    yield hello("abuse")
    message = report([f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:80" for n in range(size // 30)], 1)
    while True:
        yield message


def _empty(_: Sequence[str], size: int) -> Iterator[bytes]:
    """Entries that say nothing."""
    yield hello("abuse")
    message = field(_REPORT, b"\x0a\x00" * (size // 2))
    while True:
        yield message


def _placements(addresses: Sequence[str], _: int) -> Iterator[bytes]:
    """Places of names of stored state that do not exist, as many as a message takes."""
    yield hello("abuse")
    for number in count(1):
        request = control_pb2.FollowRequest()
        for name in range(500):
            request.placed.placements.add(name=500 * number + name, endpoint=addresses[0])
        yield bytes(request.SerializeToString())


def _name(_: Sequence[str], size: int) -> Iterator[bytes]:
    """A name that is as long as a message may be."""
    yield hello("x" * size)


def _gpus(_: Sequence[str], size: int) -> Iterator[bytes]:
    """A host with many links."""
    links = gpu_pb2.NvLinks()
    for number in range(min(size // 8, _DISTINCT)):
        links.links.add(link=number, active=True)
    once = links.SerializeToString()
    gpu = gpu_pb2.Gpu(uuid="GPU-0").SerializeToString() + field(_NVLINKS, once * max(1, size // len(once)))
    message = gpu_pb2.GpuReport(node="abuse").SerializeToString() + field(_GPUS, gpu)
    while True:
        yield message


def _hosts(_: Sequence[str], __: int) -> Iterator[bytes]:
    """An unknown host with the largest accepted number of distinct GPUs and parts."""
    message = gpu_pb2.GpuReport(node=f"abuse-{uuid.uuid4().hex}")
    for number in range(32):
        gpu = message.gpus.add(uuid=f"GPU-{number}")
        for part in range(64):
            gpu.mig_slices.add(uuid=f"{number}-{part}")
            gpu.nvlinks.links.add(link=64 * number + part, active=True)
            gpu.peers.peers.add(uuid=f"{number}-{part}", link="x")
            gpu.faults.add(kind="xid", code=f"{number}-{part}", age_seconds=1.0)
    yield bytes(message.SerializeToString())


KINDS: Final[dict[str, tuple[str, Callable[[Sequence[str], int], Iterator[bytes]]]]] = {
    "counts": (FOLLOW, _counts),
    "strangers": (FOLLOW, _strangers),
    "empty_entries": (FOLLOW, _empty),
    "placements": (FOLLOW, _placements),
    "long_name": (FOLLOW, _name),
    "silent_workers": (FOLLOW, lambda *_: iter(())),
    "gpus": (REPORT, _gpus),
    "silent_agents": (REPORT, lambda *_: iter(())),
    "hosts": (REPORT, _hosts),
}
_LEAVES: Final = frozenset({"hosts"})
"""Kinds whose streams end after one message and start again."""
LARGE: Final = {"strangers": 900_000, "empty_entries": 900_000, "gpus": 125_000}
"""Kinds of a requested size, and the largest accepted number of bytes."""


async def attack(
    address: str,
    kind: str,
    *,
    addresses: Sequence[str] = (),
    size: int = 16_000_000,
    streams: int = 2,
    most_bytes: int = 256 << 20,
    seconds: float = 10.0,
) -> int:
    """Send one of `KINDS` on several streams; `addresses` are endpoints of the fleet."""
    method, messages = KINDS[kind]

    async def read(call: Any) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass

    async def speak(call: Any, sent: Sent) -> None:
        reading = asyncio.create_task(read(call))
        try:
            for message in messages(addresses, size):
                await call.write(message)
                sent.add(message)
                if sent.full:
                    break
                await asyncio.sleep(_PAUSE_SECONDS)
            if kind in _LEAVES:
                await call.done_writing()
            await call.code()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    return await send_calls(address, method, speak, calls=streams, most_bytes=most_bytes, seconds=seconds)
