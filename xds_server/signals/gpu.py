"""GPUs as their hosts' agents and DCGM exporters tell of them, and the service that agents report to."""

from __future__ import annotations

import ipaddress
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from prometheus_client import Counter, Gauge

from fleet.errors import PeerError
from fleet.fault_table import FaultClass
from fleet.gpu_codec import MAX_TEXT, decode_report
from fleet.serving import first_message
from fleet.wire import gpu_pb2, gpu_pb2_grpc
from xds_server.signals.gpu_signals import GpuSignals, signals_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Endpoint, Membership
    from fleet.gpu import NodeReading
    from fleet.load import Signal
    from fleet.settings import FaultSettings, SignalSettings

logger = logging.getLogger(__name__)

MAX_NODES: Final = 4096
"""Hosts, and streams of their agents; one more is refused."""
MAX_REPORT_BYTES: Final = 262_144
"""Of one report; a host with eight GPUs and all their links tells some five thousand."""
MAX_ALL_BYTES: Final = 33_554_432
"""Of the newest reports of all streams together, which take some ten times as much here."""
NVML, DCGM = "nvml", "dcgm"


@dataclass(slots=True)
class Held:
    """What is known of a host, or of an exporter's page."""

    reading: NodeReading
    source: str
    stream: int = 0
    aliases: tuple[str, ...] = ()
    """Addresses that its agent reports from."""
    ended_at: float | None = None
    """When its agent's stream ended; None while it is open."""


@dataclass(frozen=True, slots=True)
class _Made:
    """An endpoint's signals, and what they were made of."""

    endpoint: Endpoint
    reading: NodeReading
    found: GpuSignals


@dataclass(frozen=True)
class GpuMetrics:
    """What the board counts."""

    nodes: Gauge
    reports: Counter
    refused: Counter
    unmatched: Gauge
    endpoints: Mapping[float, Gauge]
    """Health score to its gauge."""

    @classmethod
    def of(cls, registry: CollectorRegistry) -> GpuMetrics:
        """Create the metrics in a registry."""
        by_class = Gauge(
            "warmroute_gpu_endpoints",
            "Endpoints by the class of their GPUs' faults",
            ["fault"],
            registry=registry,
        )
        return cls(
            Gauge("warmroute_gpu_nodes", "Hosts whose GPU agents report", registry=registry),
            Counter("warmroute_gpu_reports_total", "Reports of GPU agents taken", registry=registry),
            Counter(
                "warmroute_gpu_report_errors_total",
                "Streams of GPU agents ended because of what they sent",
                registry=registry,
            ),
            Gauge(
                "warmroute_gpu_unmatched_endpoints",
                "Endpoints whose host reports, but not the GPUs that they name",
                registry=registry,
            ),
            {entry.value: by_class.labels(entry.name.lower()) for entry in FaultClass},
        )


class GpuBoard:
    """The newest reading of every host and page. All calls come from one event loop."""

    def __init__(self, signals: SignalSettings, faults: FaultSettings, registry: CollectorRegistry) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when a GPU's faults are other ones."""
        self._signals = signals
        self._faults = faults
        self.metrics = GpuMetrics.of(registry)
        self._nodes: dict[str, Held] = {}
        self._aliases: dict[str, str] = {}
        """Address that an agent reports from, to its node's name."""
        self._pages: dict[str, Held] = {}
        self._made: dict[str, _Made] = {}
        self._membership: Membership | None = None

    def reconfigure(self, signals: SignalSettings, faults: FaultSettings) -> None:
        """Take changed settings over."""
        self._signals, self._faults = signals, faults
        self._made.clear()

    def take(self, node: str, aliases: tuple[str, ...], stream: int, reading: NodeReading) -> None:
        """Take an agent's report. Of two agents with one name the newest report counts.

        Raises:
            PeerError: more hosts than `MAX_NODES`.
        """
        before = self._nodes.get(node)
        if before is None and len(self._nodes) >= MAX_NODES:
            raise PeerError(f"{MAX_NODES} hosts report already")
        self._nodes[node] = Held(reading, NVML, stream, aliases)
        if before is None or before.aliases != aliases:
            self._aliases = {alias: held for alias, held in self._aliases.items() if held != node}
            self._aliases.update(dict.fromkeys(aliases, node))
        self.metrics.reports.inc()
        self.metrics.nodes.set(len(self._nodes))
        self._tell(before, reading)

    def leave(self, node: str, stream: int, now: float) -> None:
        """An agent's stream has ended: what it told is kept until it is stale."""
        held = self._nodes.get(node)
        if held is not None and held.stream == stream:
            held.ended_at = now

    def take_page(self, url: str, reading: NodeReading) -> None:
        """Take what an exporter's page tells."""
        before = self._pages.get(url)
        self._pages[url] = Held(reading, DCGM)
        self._tell(before, reading)

    def keep_pages(self, urls: set[str]) -> None:
        """Forget pages that no endpoint names any more."""
        self._pages = {url: held for url, held in self._pages.items() if url in urls}

    def loads(self, membership: Membership, now: float) -> Mapping[str, Mapping[str, Signal]]:
        """Address to what its GPUs tell, by field of `Load`; who is not known at all is left out.

        Old signals are in it too, with their age: whoever uses them drops what is stale.
        """
        self._forget(now)
        if membership is not self._membership:
            self._membership = membership
            kept = membership.by_address
            self._made = {address: made for address, made in self._made.items() if address in kept}
        result: dict[str, Mapping[str, Signal]] = {}
        scores, unmatched = dict.fromkeys(self.metrics.endpoints, 0), 0
        for endpoint in membership.endpoints if self._nodes or self._pages else ():
            found = self._of(endpoint, now)
            if found is None:
                continue
            unmatched += found.missing
            if found.signals:
                result[endpoint.address] = found.signals
                if (score := found.signals.get("gpu_health_score")) is not None:
                    scores[score.value] = scores.get(score.value, 0) + 1
        self.metrics.unmatched.set(unmatched)
        for value, gauge in self.metrics.endpoints.items():
            gauge.set(scores[value])
        return result

    def readings(self) -> Mapping[str, Held]:
        """Node's name, or page's URL, to what is known."""
        return {**self._nodes, **self._pages}

    def _of(self, endpoint: Endpoint, now: float) -> GpuSignals | None:
        held = self._held(endpoint, now)
        if held is None:
            return None
        made = self._made.get(endpoint.address)
        if (
            made is None
            or made.endpoint is not endpoint
            or made.reading is not held.reading
            or (made.found.until is not None and now >= made.found.until)
        ):
            found = signals_of(held.reading, endpoint.gpus, held.source, now, self._faults)
            self._made[endpoint.address] = made = _Made(endpoint, held.reading, found)
        return made.found

    def _held(self, endpoint: Endpoint, now: float) -> Held | None:
        """What tells of an endpoint's GPUs: its host's agent while it is fresh, else its exporter's page."""
        node = self._nodes.get(endpoint.node) or self._nodes.get(self._aliases.get(endpoint.node, ""))
        if node is not None and not node.reading.gpus:
            node = None
        page = self._pages.get(endpoint.gpu_metrics_url) if endpoint.gpu_metrics_url else None
        if node is None or page is None:
            return node or page
        fresh = now - node.reading.sampled_at <= self._signals.stale_after_seconds
        return node if fresh else page

    def _forget(self, now: float) -> None:
        gone = [
            name
            for name, held in self._nodes.items()
            if held.ended_at is not None and now - held.ended_at > self._signals.stale_after_seconds
        ]
        if not gone:
            return
        for name in gone:
            del self._nodes[name]
        self._aliases = {alias: node for alias, node in self._aliases.items() if node in self._nodes}
        self.metrics.nodes.set(len(self._nodes))

    def _tell(self, before: Held | None, reading: NodeReading) -> None:
        if before is None or _faults(before.reading) != _faults(reading):
            self.on_change()


def _faults(reading: NodeReading) -> list[tuple[str, list[tuple[str, str, int]]]]:
    return [(gpu.uuid, [(e.kind, e.code, e.times) for e in gpu.events(0.0)]) for gpu in reading.gpus]


class GpuReportService(gpu_pb2_grpc.GpuReportsServicer):  # type: ignore[misc]  # untyped base
    """Serves `GpuReports` into a board."""

    def __init__(self, board: GpuBoard, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock
        self._serial = 0
        self._streams = 0
        self._bytes = 0

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        gpu_pb2_grpc.add_GpuReportsServicer_to_server(self, server)

    async def Report(  # noqa: N802 - the name that the generated code calls
        self,
        request_iterator: AsyncIterator[gpu_pb2.GpuReport],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[gpu_pb2.GpuReportAck]:
        """One agent's stream."""
        if self._streams >= MAX_NODES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_NODES} agents report already")
        self._streams += 1
        self._serial += 1
        stream, node, size = self._serial, "", 0
        aliases = peer_addresses(context.peer())
        try:
            report = await first_message(request_iterator)
            while report is not None:
                size = self._bounded(report.ByteSize(), size)
                if not node:
                    node = _node(report)
                    logger.info("GPU agent of %s reports", node)
                _same_node(report, node)
                self._board.take(node, aliases, stream, decode_report(report, self._clock()))
                yield gpu_pb2.GpuReportAck()
                report = await anext(request_iterator, None)
        except (PeerError, DecodeError) as error:
            self._board.metrics.refused.inc()
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._streams -= 1
            self._bytes -= size
            if node:
                self._board.leave(node, stream, self._clock())
                logger.info("GPU agent of %s has left", node)

    def _bounded(self, size: int, before: int) -> int:
        """Count a stream's report in the place of the one before."""
        if size > MAX_REPORT_BYTES or self._bytes - before + size > MAX_ALL_BYTES:
            allowed = f"allowed: {MAX_REPORT_BYTES}, and {MAX_ALL_BYTES} of all agents"
            raise PeerError(f"a report of {size} bytes; {allowed}")
        self._bytes += size - before
        return size


def _node(report: gpu_pb2.GpuReport) -> str:
    node: str = report.node
    if not 0 < len(node) <= MAX_TEXT:
        raise PeerError(f"a node's name of {len(node)} characters, allowed: 1 to {MAX_TEXT}")
    if not node.isprintable():  # it stands in the log
        raise PeerError("a node's name with characters that cannot be printed")
    return node


def _same_node(report: gpu_pb2.GpuReport, node: str) -> None:
    if report.node != node:
        raise PeerError("another node on the same stream")


def peer_addresses(peer: str) -> tuple[str, ...]:
    """The host addresses that an agent reports from: endpoints that name no node are matched by these.

    Who comes by a Unix socket or over loopback is on this host. `peer` is gRPC's, as `ipv4:10.0.0.1:5000`.
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
