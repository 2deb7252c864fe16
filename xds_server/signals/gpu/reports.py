"""The newest readings of GPUs, from agents and DCGM exporters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from fleet.errors import PeerError
from fleet.gpu.fault_table import FaultClass
from fleet.signals import SignalTable, Source
from xds_server.signals.board import SignalBoard
from xds_server.signals.gpu.columns import GpuSignals, signals_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Endpoint, Membership
    from fleet.gpu.reading import NodeReading
    from fleet.settings import FaultSettings, SignalSettings

MAX_NODES: Final = 4096
"""Hosts, and streams of their agents; one more is refused."""
MAX_KEPT_BYTES: Final = 112 * 1024 * 1024
"""That the newest readings of all hosts take: some 27,000 each where they have eight GPUs."""


@dataclass(slots=True)
class GpuSource:
    """The newest reading of a host, or of an exporter's page."""

    reading: NodeReading
    source: Source
    stream: int = 0
    aliases: tuple[str, ...] = ()
    """Addresses that its agent reports from."""
    ended_at: float | None = None
    """When its agent's stream ended; None while it is open."""
    reading_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Computed:
    """An endpoint's signals, and what they were computed of."""

    endpoint: Endpoint
    reading: NodeReading
    signals: GpuSignals


class GpuMetrics:
    """What the board counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.nodes = Gauge("warmroute_gpu_nodes", "Hosts whose GPU agents report", registry=registry)
        self.reports = Counter(
            "warmroute_gpu_reports_total", "Reports of GPU agents taken", registry=registry
        )
        self.refused = Counter(
            "warmroute_gpu_report_errors_total",
            "Streams of GPU agents ended because of what they sent",
            registry=registry,
        )
        self.unmatched = Gauge(
            "warmroute_gpu_unmatched_endpoints",
            "Endpoints whose host reports, but not the GPUs that they name",
            registry=registry,
        )
        by_class = Gauge(
            "warmroute_gpu_endpoints",
            "Endpoints by the class of their GPUs' faults",
            ["fault"],
            registry=registry,
        )
        self.endpoints = {entry.value: by_class.labels(entry.name.lower()) for entry in FaultClass}
        """Health score to its gauge."""


class GpuBoard:
    """The newest reading of every host and page. All calls come from one event loop."""

    def __init__(self, signals: SignalSettings, faults: FaultSettings, registry: CollectorRegistry) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when a GPU's faults are other ones."""
        self._signals = signals
        self._faults = faults
        self.metrics = GpuMetrics(registry)
        self._nodes: dict[str, GpuSource] = {}
        self._aliases: dict[str, str] = {}
        """Address that an agent reports from, to its node's name."""
        self._pages: dict[str, GpuSource] = {}
        self._computed: dict[str, _Computed] = {}
        """What the board shows, by address."""
        self._board = SignalBoard()
        self._unknown = SignalTable.unknown(())
        """What is shown while there is no reading at all."""
        self._membership: Membership | None = None
        self.reading_bytes = 0
        """That the readings of all hosts take."""

    def reconfigure(self, signals: SignalSettings, faults: FaultSettings) -> None:
        """Take changed settings over."""
        self._signals, self._faults = signals, faults
        for address in self._computed:
            self._board.clear(address)
        self._computed.clear()

    def take(
        self, node: str, aliases: tuple[str, ...], stream: int, reading: NodeReading, reading_bytes: int = 0
    ) -> None:
        """Take an agent's report, which takes `reading_bytes`. Of two agents with one name the newest counts.

        Raises:
            PeerError: more hosts than `MAX_NODES`, or more than `MAX_KEPT_BYTES` of them.
        """
        before = self._nodes.get(node)
        more = reading_bytes - (0 if before is None else before.reading_bytes)
        self._make_room(node, more)
        self.reading_bytes += more
        self._nodes[node] = GpuSource(reading, Source.NVML, stream, aliases, reading_bytes=reading_bytes)
        if before is None or before.aliases != aliases:
            self._aliases = {alias: name for alias, name in self._aliases.items() if name != node}
            self._aliases.update(dict.fromkeys(aliases, node))
        self.metrics.reports.inc()
        self.metrics.nodes.set(len(self._nodes))
        self._notify(before, reading)

    def _make_room(self, node: str, more: int) -> None:
        """Make room for more bytes: forget hosts whose agents have left, in the order in which they left.

        Raises:
            PeerError: there is none.
        """
        lacking = self.reading_bytes + more - MAX_KEPT_BYTES
        too_many = len(self._nodes) + (node not in self._nodes) - MAX_NODES
        if lacking <= 0 and too_many <= 0:
            return
        ended = [name for name, source in self._nodes.items() if source.ended_at is not None and name != node]
        gone = []
        for name in sorted(ended, key=lambda name: self._nodes[name].ended_at or 0.0):
            if lacking <= 0 and too_many <= 0:
                break
            gone.append(name)
            lacking, too_many = lacking - self._nodes[name].reading_bytes, too_many - 1
        if lacking > 0 or too_many > 0:
            allowed = f"allowed: {MAX_NODES} hosts, and {MAX_KEPT_BYTES} bytes of them"
            raise PeerError(f"no room for one more host, or a larger report; {allowed}")
        self._drop(gone)

    def leave(self, node: str, stream: int, now: float) -> None:
        """Note that an agent's stream has ended: its reading is kept until it is stale."""
        source = self._nodes.get(node)
        if source is not None and source.stream == stream:
            source.ended_at = now

    def take_page(self, url: str, reading: NodeReading) -> None:
        """Take the reading of an exporter's page."""
        before = self._pages.get(url)
        self._pages[url] = GpuSource(reading, Source.DCGM)
        self._notify(before, reading)

    def keep_pages(self, urls: set[str]) -> None:
        """Forget pages that no endpoint names any more."""
        self._pages = {url: page for url, page in self._pages.items() if url in urls}

    def signals(self, membership: Membership, now: float) -> SignalTable:
        """Return the signals of every endpoint's GPUs.

        Old ones are in it too, with their time: readers drop what is stale.
        """
        self._forget(now)
        if not (self._nodes or self._pages or self._computed):
            if self._unknown.addresses is not membership.addresses:
                self._unknown = SignalTable.unknown(membership.addresses)
            return self._unknown
        if membership is not self._membership:
            self._membership = membership
            members = membership.by_address
            self._computed = {a: computed for a, computed in self._computed.items() if a in members}
            self._board.follow(membership.addresses)
        scores, unmatched = dict.fromkeys(self.metrics.endpoints, 0), 0
        for endpoint in membership.endpoints:
            signals = self._of(endpoint, now)
            if signals is None:
                continue
            unmatched += signals.missing
            score = signals.numbers.get("gpu_health_score")
            if score in scores:
                scores[score] += 1
        self.metrics.unmatched.set(unmatched)
        for value, gauge in self.metrics.endpoints.items():
            gauge.set(scores[value])
        return self._board.table()

    def readings(self) -> Mapping[str, GpuSource]:
        """Node's name, or page's URL, to its newest reading."""
        return {**self._nodes, **self._pages}

    def _of(self, endpoint: Endpoint, now: float) -> GpuSignals | None:
        """Return an endpoint's signals, and bring its column of the board up to date."""
        address, source = endpoint.address, self._source_of(endpoint, now)
        computed = self._computed.get(address)
        if source is None:
            if computed is not None:
                del self._computed[address]
                self._board.clear(address)
            return None
        if (
            computed is None
            or computed.endpoint is not endpoint
            or computed.reading is not source.reading
            or (computed.signals.until is not None and now >= computed.signals.until)
        ):
            signals = signals_of(source.reading, endpoint.gpus, source.source, now, self._faults)
            computed = self._computed[address] = _Computed(endpoint, source.reading, signals)
            self._board.put(address, signals.numbers, signals.sampled_at, signals.source)
        return computed.signals

    def _source_of(self, endpoint: Endpoint, now: float) -> GpuSource | None:
        """Return the reading of an endpoint's host while it is fresh, otherwise of its exporter's page."""
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
            for name, node in self._nodes.items()
            if node.ended_at is not None and now - node.ended_at > self._signals.stale_after_seconds
        ]
        if gone:
            self._drop(gone)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self.reading_bytes -= self._nodes.pop(name).reading_bytes
        self._aliases = {alias: node for alias, node in self._aliases.items() if node in self._nodes}
        self.metrics.nodes.set(len(self._nodes))

    def _notify(self, before: GpuSource | None, reading: NodeReading) -> None:
        if before is None or _faults(before.reading) != _faults(reading):
            self.on_change()


def _faults(reading: NodeReading) -> list[tuple[str, list[tuple[str, str, int]]]]:
    return [(gpu.uuid, [(e.kind, e.code, e.times) for e in gpu.events(0.0)]) for gpu in reading.gpus]
