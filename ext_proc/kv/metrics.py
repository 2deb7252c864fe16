"""The metrics of KV events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry


class KvMetrics:
    """Created once a service, whether or not an engine publishes events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.endpoints = Gauge(
            "warmroute_kv_event_endpoints",
            "Endpoints with KV events, by completeness of their state",
            ["freshness"],
            registry=registry,
        )
        self.stale = Gauge(
            "warmroute_kv_event_stale_endpoints",
            "Endpoints whose KV events are stale, by cause",
            ["cause"],
            registry=registry,
        )
        self.blocks = Gauge(
            "warmroute_kv_event_index_blocks", "Blocks in the index of KV events", registry=registry
        )
        blocks = Counter(
            "warmroute_kv_event_blocks_total", "Blocks that engines reported", ["change"], registry=registry
        )
        faults = Counter(
            "warmroute_kv_event_faults_total",
            "Events of unknown kinds, unreadable messages, missing numbers, engines' restarts, own failures",
            ["fault"],
            registry=registry,
        )
        replays = Counter("warmroute_kv_event_replays_total", "Replays", ["outcome"], registry=registry)
        self.counters: Final[Mapping[str, Counter]] = {
            **{change: blocks.labels(change) for change in ("stored", "removed")},
            **{
                fault: faults.labels(fault)
                for fault in ("unknown_kind", "unreadable", "gap", "restart", "failed")
            },
            "replay": replays.labels("asked"),
            "replay_failed": replays.labels("failed"),
        }
        """By the names of `Tracker.counts`."""
