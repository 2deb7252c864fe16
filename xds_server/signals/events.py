"""Endpoints that hang or fail, reported once per change: in the log, in counters and in gauges."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np
from prometheus_client import Counter, Gauge

from xds_server.signals.rows import BoolArray, FloatArray, IntArray, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry

_log = logging.getLogger(__name__)

DISTRUSTED_BELOW: Final = 0.5
TRUSTED_ABOVE: Final = 0.8
"""Trust at which an endpoint is said to be distrusted, and to be trusted again."""
_EVENTS: Final = {
    "stalled": (logging.WARNING, "%s hangs: requests wait there and no sign of life"),
    "recovered": (logging.INFO, "%s no longer counts as hanging"),
    "distrusted": (logging.WARNING, "%s fails: most of its newest answers are faults"),
    "unproductive": (
        logging.WARNING,
        "%s answers, and its counters stand still: its answers may be errors, or its page another's",
    ),
    "productive": (logging.INFO, "%s is no longer unproductive"),
    "trusted": (logging.INFO, "%s answers well again"),
}


class EndpointEvents(Rows):
    """Remembers what was reported last of each endpoint."""

    _stalled: BoolArray = np.zeros(1, np.bool_)
    _distrusted: BoolArray = np.zeros(1, np.bool_)
    _unproductive: BoolArray = np.zeros(1, np.bool_)

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the metrics in a registry, with every event at 0."""
        super().__init__()
        self._events = Counter(
            "warmroute_endpoint_events",
            "Endpoints that began to hang, lost trust or answer without work, and those that recovered",
            ["event"],
            registry=registry,
        )
        for event in _EVENTS:
            self._events.labels(event)
        self._stalled_endpoints = Gauge(
            "warmroute_stalled_endpoints", "Endpoints that hang", registry=registry
        )
        self._distrusted_endpoints = Gauge(
            "warmroute_distrusted_endpoints",
            "Endpoints whose answers have been faults of late",
            registry=registry,
        )

        self._unproductive_endpoints = Gauge(
            "warmroute_unproductive_endpoints",
            "Endpoints that answer picks while none of their counters moves",
            registry=registry,
        )

    def restore(self, rows: IntArray) -> None:
        """Begin with these reported as stalled: they were, before a restart."""
        self._stalled[rows] = True

    def report(
        self, addresses: Sequence[str], stalled: FloatArray, trust: FloatArray, unproductive: BoolArray
    ) -> None:
        """Log and count each change once; `addresses` are in the order of the rows."""
        hanging = stalled == 1.0
        distrusted = np.where(self._distrusted, trust < TRUSTED_ABOVE, trust < DISTRUSTED_BELOW)
        for before, after, events in (
            (self._stalled, hanging, ("recovered", "stalled")),
            (self._distrusted, distrusted, ("trusted", "distrusted")),
            (self._unproductive, unproductive, ("productive", "unproductive")),
        ):
            for row in np.flatnonzero(before != after).tolist():
                event = events[int(after[row])]
                level, text = _EVENTS[event]
                self._events.labels(event).inc()
                _log.log(level, text, addresses[row])
        self._stalled, self._distrusted, self._unproductive = hanging, distrusted, unproductive
        self._unproductive_endpoints.set(int(unproductive.sum()))
        self._stalled_endpoints.set(int(hanging.sum()))
        self._distrusted_endpoints.set(int(distrusted.sum()))
