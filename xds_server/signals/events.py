"""Endpoints that hang or fail, reported once per change: in the log, in counters and in gauges."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from prometheus_client import Counter, Gauge

from xds_server.signals.rows import BoolArray, FloatArray, IntArray, relaid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Endpoint

_log = logging.getLogger(__name__)

DISTRUSTED_BELOW: Final = 0.5
TRUSTED_ABOVE: Final = 0.8
"""Trust at which an endpoint is said to be distrusted, and to be trusted again."""
_EVENTS: Final = {
    "stalled": (logging.WARNING, "%s hangs: requests wait there and no sign of life"),
    "recovered": (logging.INFO, "%s is no longer held for hanging"),
    "distrusted": (logging.WARNING, "%s fails: most of its newest answers are faults"),
    "trusted": (logging.INFO, "%s answers well again"),
}


@dataclass(frozen=True, slots=True)
class EventMetrics:
    """What is counted of them."""

    stalled: Gauge
    distrusted: Gauge
    events: Counter

    @classmethod
    def of(cls, registry: CollectorRegistry) -> EventMetrics:
        """Create the metrics in a registry, with every event at 0."""
        events = Counter(
            "warmroute_endpoint_events",
            "Endpoints that were found hanging, working again, distrusted or trusted again",
            ["event"],
            registry=registry,
        )
        for event in _EVENTS:
            events.labels(event)
        return cls(
            Gauge("warmroute_stalled_endpoints", "Endpoints that hang", registry=registry),
            Gauge(
                "warmroute_distrusted_endpoints",
                "Endpoints whose answers have been faults of late",
                registry=registry,
            ),
            events,
        )


class EndpointEvents:
    """Remembers what was reported last, one row an endpoint."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._metrics = EventMetrics.of(registry)
        self._stalled: BoolArray = np.empty(0, np.bool_)
        self._distrusted: BoolArray = np.empty(0, np.bool_)

    def relay(self, source: IntArray) -> None:
        """Follow a changed membership (see `rows.relaid`)."""
        self._stalled = relaid(self._stalled, source, False)
        self._distrusted = relaid(self._distrusted, source, False)

    def restore(self, rows: IntArray) -> None:
        """Begin with these reported as stalled: they were, before a restart."""
        self._stalled[rows] = True

    def report(self, endpoints: Sequence[Endpoint], stalled: FloatArray, trust: FloatArray) -> None:
        """Log and count each change once; `endpoints` are in the order of the rows."""
        hanging = stalled == 1.0
        distrusted = np.where(self._distrusted, trust < TRUSTED_ABOVE, trust < DISTRUSTED_BELOW)
        for before, after, events in (
            (self._stalled, hanging, ("recovered", "stalled")),
            (self._distrusted, distrusted, ("trusted", "distrusted")),
        ):
            for row in np.flatnonzero(before != after).tolist():
                event = events[int(after[row])]
                level, text = _EVENTS[event]
                self._metrics.events.labels(event).inc()
                _log.log(level, text, endpoints[row].address)
        self._stalled, self._distrusted = hanging, distrusted
        self._metrics.stalled.set(int(hanging.sum()))
        self._metrics.distrusted.set(int(distrusted.sum()))
