"""GPUs as their hosts' agents and DCGM exporters tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from fleet.errors import PeerError
from fleet.gpu.fault_table import FaultClass
from xds_server.signals.gpu.columns import GpuSignals, signals_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Endpoint, Membership
    from fleet.gpu.reading import NodeReading
    from fleet.load import Signal
    from fleet.settings import FaultSettings, SignalSettings

MAX_NODES: Final = 4096
"""Hosts, and streams of their agents; one more is refused."""
MAX_KEPT_BYTES: Final = 112 * 1024 * 1024
"""That the newest readings of all hosts take: some 27,000 each where they have eight GPUs."""
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
    kept_bytes: int = 0


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
        self.kept_bytes = 0
        """That the readings of all hosts take."""

    def reconfigure(self, signals: SignalSettings, faults: FaultSettings) -> None:
        """Take changed settings over."""
        self._signals, self._faults = signals, faults
        self._made.clear()

    def take(
        self, node: str, aliases: tuple[str, ...], stream: int, reading: NodeReading, kept_bytes: int = 0
    ) -> None:
        """Take an agent's report, which takes `kept_bytes`. Of two agents with one name the newest counts.

        Raises:
            PeerError: more hosts than `MAX_NODES`, or more than `MAX_KEPT_BYTES` of them.
        """
        before = self._nodes.get(node)
        more = kept_bytes - (0 if before is None else before.kept_bytes)
        self._make_room(node, more)
        self.kept_bytes += more
        self._nodes[node] = Held(reading, NVML, stream, aliases, kept_bytes=kept_bytes)
        if before is None or before.aliases != aliases:
            self._aliases = {alias: held for alias, held in self._aliases.items() if held != node}
            self._aliases.update(dict.fromkeys(aliases, node))
        self.metrics.reports.inc()
        self.metrics.nodes.set(len(self._nodes))
        self._tell(before, reading)

    def _make_room(self, node: str, more: int) -> None:
        """See to room for so many bytes: hosts whose agents have left make it, the first that left first.

        Raises:
            PeerError: there is none.
        """
        lacking = self.kept_bytes + more - MAX_KEPT_BYTES
        too_many = len(self._nodes) + (node not in self._nodes) - MAX_NODES
        if lacking <= 0 and too_many <= 0:
            return
        left = [name for name, held in self._nodes.items() if held.ended_at is not None and name != node]
        gone = []
        for name in sorted(left, key=lambda name: self._nodes[name].ended_at or 0.0):
            if lacking <= 0 and too_many <= 0:
                break
            gone.append(name)
            lacking, too_many = lacking - self._nodes[name].kept_bytes, too_many - 1
        if lacking > 0 or too_many > 0:
            allowed = f"allowed: {MAX_NODES} hosts, and {MAX_KEPT_BYTES} bytes of them"
            raise PeerError(f"no room for one more host, or a larger report; {allowed}")
        self._drop(gone)

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
        if gone:
            self._drop(gone)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self.kept_bytes -= self._nodes.pop(name).kept_bytes
        self._aliases = {alias: node for alias, node in self._aliases.items() if node in self._nodes}
        self.metrics.nodes.set(len(self._nodes))

    def _tell(self, before: Held | None, reading: NodeReading) -> None:
        if before is None or _faults(before.reading) != _faults(reading):
            self.on_change()


def _faults(reading: NodeReading) -> list[tuple[str, list[tuple[str, str, int]]]]:
    return [(gpu.uuid, [(e.kind, e.code, e.times) for e in gpu.events(0.0)]) for gpu in reading.gpus]
