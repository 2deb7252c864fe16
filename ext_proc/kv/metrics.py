"""The metrics of KV events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True)
class KvMetrics:
    """Created once a service, whether or not any engine tells events."""

    endpoints: Gauge
    blocks: Gauge
    stored: Counter
    removed: Counter
    unknown: Counter
    unreadable: Counter
    gaps: Counter
    restarts: Counter
    failures: Counter
    replays: Counter
    failed_replays: Counter

    @classmethod
    def of(cls, registry: CollectorRegistry) -> KvMetrics:
        """Create them."""
        blocks = Counter(
            "warmroute_kv_event_blocks_total",
            "Blocks that engines told of",
            ["change"],
            registry=registry,
        )
        events = Counter(
            "warmroute_kv_event_faults_total",
            "Events of unknown kinds, unreadable messages, missing numbers, engines' restarts, own failures",
            ["fault"],
            registry=registry,
        )
        replays = Counter(
            "warmroute_kv_event_replays_total", "Replays asked for", ["outcome"], registry=registry
        )
        return cls(
            endpoints=Gauge(
                "warmroute_kv_event_endpoints",
                "Endpoints that tell KV events, by what their word is worth",
                ["freshness"],
                registry=registry,
            ),
            blocks=Gauge(
                "warmroute_kv_event_index_blocks", "Blocks held in the index of KV events", registry=registry
            ),
            stored=blocks.labels("stored"),
            removed=blocks.labels("removed"),
            unknown=events.labels("unknown_kind"),
            unreadable=events.labels("unreadable"),
            gaps=events.labels("gap"),
            restarts=events.labels("restart"),
            failures=events.labels("failed"),
            replays=replays.labels("asked"),
            failed_replays=replays.labels("failed"),
        )
