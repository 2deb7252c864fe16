"""The service that GPU agents report to."""

from __future__ import annotations

import ipaddress
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from fleet.errors import PeerError
from fleet.gpu.codec import MAX_TEXT, decode_gpu, decode_report, gpus_of
from fleet.service.serving import add_methods
from fleet.service.turns import Turns
from fleet.wire import gpu_pb2
from xds_server.signals.gpu.reports import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fleet.gpu.codec import Part
    from fleet.gpu.reading import NodeReading
    from xds_server.signals.gpu.reports import GpuBoard

logger = logging.getLogger(__name__)

_SERVICE: Final = gpu_pb2.DESCRIPTOR.services_by_name["GpuReports"].full_name
MAX_REPORT_BYTES: Final = 131_072
"""Of one report. A host with eight GPUs and all their links sends some 8,000, a host with sixteen GPUs in
slices and full of faults 53,000."""
_GPU_BYTES: Final = 1300
_PART_BYTES: Final = 250
"""Memory of a GPU, and of a slice, link, peer or fault that differs from the others, apart from their bytes.
A part takes half of that, but Python's garbage collector reads each."""


class GpuReportService:
    """Serves `GpuReports` into a board: agents take turns with small pieces of their reports."""

    def __init__(self, board: GpuBoard, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock
        self._turns = Turns()
        self._serial = 0
        self._streams = 0

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server. Generated code would read reports of any size at once."""
        report = grpc.stream_stream_rpc_method_handler(
            self.report, response_serializer=gpu_pb2.GpuReportAck.SerializeToString
        )
        add_methods(server, _SERVICE, {"Report": report})

    async def report(
        self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[gpu_pb2.GpuReportAck]:
        """One agent's stream."""
        if self._streams >= MAX_NODES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_NODES} agents report already")
        self._streams += 1
        self._serial += 1
        stream, node = self._serial, ""
        aliases = peer_addresses(context.peer())
        try:
            while (message := await anext(messages, None)) is not None:
                node = await self._take(message, node, stream, aliases)
                message = None  # It may be large, and the next one may be long in coming.
                yield gpu_pb2.GpuReportAck()
        except (PeerError, DecodeError) as error:
            self._board.metrics.refused.inc()
            refused = str(error)
        else:
            return
        finally:
            message = None  # gRPC keeps this frame for some time where it ends with `abort`.
            self._streams -= 1
            if node:
                self._board.leave(node, stream, self._clock())
                logger.info("GPU agent of %s has left", node)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, refused)

    async def _take(self, message: bytes, node: str, stream: int, aliases: tuple[str, ...]) -> str:
        """Take a report and return its host; `node` is that of earlier reports, empty before the first."""
        report, reading, reading_bytes = await self._read(message)
        if not node:
            node = _node(report)
            logger.info("GPU agent of %s reports", node)
        _same_node(report, node)
        self._board.take(node, aliases, stream, reading, reading_bytes)
        return node

    async def _read(self, message: bytes) -> tuple[gpu_pb2.GpuReport, NodeReading, int]:
        """Read a report, GPU by GPU; return it, its reading, and the memory of the reading.

        Raises:
            DecodeError: it is none.
            PeerError: it exceeds a limit.
        """
        if len(message) > MAX_REPORT_BYTES:
            raise PeerError(f"a report of {len(message)} bytes; allowed: {MAX_REPORT_BYTES}")
        now = self._clock()
        parts: dict[Part, Part] = {}
        report = await self._turns.run(partial(gpu_pb2.GpuReport.FromString, message))
        gpus = await self._turns.run_all(decode_gpu(gpu, now, parts) for gpu in gpus_of(report))
        reading_bytes = len(message) + _GPU_BYTES * len(gpus) + _PART_BYTES * len(parts)
        return report, decode_report(report, gpus, now), reading_bytes


def _node(report: gpu_pb2.GpuReport) -> str:
    node: str = report.node
    if not 0 < len(node) <= MAX_TEXT:
        raise PeerError(f"a node's name of {len(node)} characters, allowed: 1 to {MAX_TEXT}")
    if not node.isprintable():  # the log has it
        raise PeerError("a node's name with characters that cannot be printed")
    return node


def _same_node(report: gpu_pb2.GpuReport, node: str) -> None:
    if report.node != node:
        raise PeerError("another node on the same stream")


def peer_addresses(peer: str) -> tuple[str, ...]:
    """Return the host addresses of an agent, which match endpoints that name no node.

    An agent on a Unix socket or on loopback is on this host. `peer` is gRPC's, as `ipv4:10.0.0.1:5000`.
    """
    kind, _, rest = peer.partition(":")
    if kind == "unix":
        return ("127.0.0.1", "::1")
    if kind not in {"ipv4", "ipv6"}:
        return ()
    host = unquote(rest).rpartition(":")[0].strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return ()
    return ("127.0.0.1", "::1") if ip.is_loopback else (str(ip),)
