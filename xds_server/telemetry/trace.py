"""One trace for each weight update, and a span for each content that clients refuse.

    warmroute.weight_update       weights before and after, signals and reason by endpoint
      warmroute.collect           signals by source and age
      warmroute.compute           signals to weights
      warmroute.publish           weights to the snapshot that streams are written from
      warmroute.ack               a client: from the push to its ACK or NACK

There is a trace only when something changed. The first four spans end with the tick and are exported at
once; ACKs come later, and end spans of the same trace.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from fleet.names import TYPE_ENDPOINT
from fleet.signals import Source
from xds_server.discovery.status import DiscoveryObserver
from xds_server.telemetry.ack_spans import TIMEOUT_SECONDS, AckSpans

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer
    from prometheus_client import CollectorRegistry

    from fleet.signals import SignalTable
    from xds_server.discovery.client import Client
    from xds_server.weights.weigh import WeightChange, WeightUpdate

MAX_EVENTS: Final = 128
"""The SDK's own limit of events on a span; further ones are only counted."""
MAX_LOADS: Final = 512
"""Endpoints whose signals the span `warmroute.collect` counts."""
_MAX_REMEMBERED: Final = 1024
_MAX_UPDATES: Final = 64
_ROOT: Final = trace.set_span_in_context(trace.INVALID_SPAN)
"""No parent, whatever span is current."""


class TracedNacks(DiscoveryObserver):
    """An observer of discovery: one span for each content that is refused, however many clients refuse it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._traced: OrderedDict[tuple[str, str], None] = OrderedDict()

    def nacked(self, client: Client, type_url: str, version: str, message: str) -> None:
        """Record the first client that refused the content, and its message."""
        content = (type_url, version)
        if content in self._traced:
            return
        self._traced[content] = None
        if len(self._traced) > _MAX_REMEMBERED:
            self._traced.popitem(last=False)
        with self._tracer.start_as_current_span("warmroute.nack") as span:
            span.set_attribute("warmroute.node", client.node_id)
            span.set_attribute("warmroute.type", type_url)
            span.set_attribute("warmroute.version", version)
            span.set_status(StatusCode.ERROR, message)


class TickTimes:
    """Unix nanoseconds at which the steps of one tick ended; the tick begins when this is created."""

    __slots__ = ("_clock_ns", "began_ns", "collected_ns", "computed_ns")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.began_ns = self.collected_ns = self.computed_ns = clock_ns()

    def collected(self) -> None:
        """Record that the signals are collected."""
        self.collected_ns = self.computed_ns = self._clock_ns()

    def computed(self) -> None:
        """Record that the weights are computed."""
        self.computed_ns = self._clock_ns()


@dataclass(frozen=True, slots=True)
class _Update:
    context: Context
    published_ns: int


class UpdateTraces(DiscoveryObserver):
    """Makes the traces of weight updates; an observer of discovery.

    `version_for` returns the version of endpoints for a client now: groups of clients may have one of their
    own, so one update has as many versions as groups. Single-threaded.
    """

    def __init__(
        self,
        tracer: Tracer,
        registry: CollectorRegistry,
        version_for: Callable[[Client], str | None],
        *,
        max_open: int,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._tracer = tracer
        self._version_for = version_for
        self._timeout_ns = int(timeout_seconds * 1e9)
        self._clock_ns = clock_ns
        self._spans = AckSpans(tracer, registry, max_open, timeout_seconds)
        self._newest: _Update | None = None
        self._by_version: OrderedDict[str, _Update] = OrderedDict()

    def tick(self) -> TickTimes:
        """Begin to measure a tick, and end the spans that have waited too long."""
        self._spans.expire(self._clock_ns())
        return TickTimes(self._clock_ns)

    def published(
        self, times: TickTimes, update: WeightUpdate, version: str, signals: SignalTable, now: float
    ) -> None:
        """Trace a new snapshot, whose endpoints have `version` for clients without a group.

        To be called for each, so that pushes are not taken for those of an earlier update; one without a
        changed weight, health mark or membership makes no trace. `now` is on the clock of the signals.
        """
        self._newest = None
        if not update.changed:
            return
        published_ns = self._clock_ns()
        root = self._tracer.start_span("warmroute.weight_update", _ROOT, start_time=times.began_ns)
        if not root.is_recording():
            return
        context = trace.set_span_in_context(root, _ROOT)
        _set_changes(root, update, version)
        self._step(context, "collect", times.began_ns, times.collected_ns, _collected(signals, now))
        self._step(context, "compute", times.collected_ns, times.computed_ns, _computed(update))
        attributes = {"warmroute.eds_version": version}
        self._step(context, "publish", times.computed_ns, published_ns, attributes)
        root.end(published_ns)
        self._newest = _Update(context, published_ns)
        self._remember(version, self._newest)

    def pushed(self, client: Client, type_url: str, version: str) -> None:
        """Begin a client's span, if the push is a traced update's."""
        if type_url == TYPE_ENDPOINT:
            now_ns = self._clock_ns()
            update = self._update_of(client, version, now_ns)
            if update is None:
                self._spans.superseded(client, now_ns)
            else:
                self._spans.pushed(client, version, update.context, update.published_ns, now_ns)

    def acked(self, client: Client, type_url: str, version: str) -> None:
        """End the client's span with success."""
        if type_url == TYPE_ENDPOINT:
            self._answered(client, version, None)

    def nacked(self, client: Client, type_url: str, version: str, message: str) -> None:
        """End the client's span as an error."""
        if type_url == TYPE_ENDPOINT:
            self._answered(client, version, message)

    def closed(self, client: Client, type_urls: Collection[str]) -> None:
        """End the client's span if its stream has ended."""
        if TYPE_ENDPOINT in type_urls:
            self._spans.left(client, self._clock_ns())

    def _answered(self, client: Client, version: str, message: str | None) -> None:
        now_ns = self._clock_ns()
        if self._update_of(client, version, now_ns) is not None:
            self._spans.answered(client, version, message, now_ns)

    def _update_of(self, client: Client, version: str, now_ns: int) -> _Update | None:
        """Return the update that published a version; None: it has no trace, or is too old."""
        newest = self._newest
        # The newest first: content that comes back has an old version.
        if newest is not None and self._version_for(client) == version:
            self._remember(version, newest)
            update: _Update | None = newest
        else:
            update = self._by_version.get(version)
        return None if update is None or now_ns - update.published_ns > self._timeout_ns else update

    def _remember(self, version: str, update: _Update) -> None:
        if self._by_version.get(version) is update:
            return
        self._by_version[version] = update
        self._by_version.move_to_end(version)
        if len(self._by_version) > _MAX_UPDATES:
            self._by_version.popitem(last=False)

    def _step(
        self,
        context: Context,
        name: str,
        began_ns: int,
        ended_ns: int,
        attributes: Mapping[str, str | int | float],
    ) -> None:
        span = self._tracer.start_span(
            f"warmroute.{name}", context, attributes=attributes, start_time=began_ns
        )
        span.end(ended_ns)


def _set_changes(span: Span, update: WeightUpdate, version: str) -> None:
    changes = update.changes
    span.set_attribute("warmroute.endpoints_changed", len(changes))
    span.set_attribute("warmroute.endpoints_unhealthy", len(update.unhealthy))
    span.set_attribute("warmroute.changes_left_out", max(0, len(changes) - MAX_EVENTS))
    span.set_attribute("warmroute.eds_version", version)
    for change in changes[:MAX_EVENTS]:
        span.add_event("weight_change", _change(change))


def _change(change: WeightChange) -> dict[str, str | int | float]:
    attributes: dict[str, str | int | float] = {
        "warmroute.endpoint": change.address,
        "warmroute.weight": change.new,
        "warmroute.reason": change.reason,
    }
    if change.old is not None:
        attributes["warmroute.weight_before"] = change.old
    if change.score is not None:
        attributes["warmroute.score"] = change.score
    attributes.update({f"warmroute.factor.{name}": factor for name, factor in change.factors.items()})
    attributes.update({f"warmroute.{name}": value for name, value in change.signals.items()})
    return attributes


def _computed(update: WeightUpdate) -> dict[str, str | int | float]:
    return {
        "warmroute.endpoints": len(update.weights),
        "warmroute.endpoints_changed": len(update.changes),
        "warmroute.blind_pools": len(update.blind_pools),
    }


def _collected(signals: SignalTable, now: float) -> dict[str, str | int | float]:
    """Count signals by source, with the ages of the newest and the oldest."""
    counted = signals.part(0, MAX_LOADS)
    observed = ~np.isnan(counted.values)
    counts = np.bincount(counted.sources[observed], minlength=len(Source)).tolist()
    by_source = {source.label: counts[source] for source in Source if counts[source]}
    attributes: dict[str, str | int | float] = {
        "warmroute.endpoints": len(signals),
        "warmroute.endpoints_counted": len(counted),
        "warmroute.endpoints_without_signal": int((~observed.any(axis=0)).sum()),
        "warmroute.signals": int(observed.sum()),
        **{f"warmroute.signals.{source}": count for source, count in sorted(by_source.items())},
    }
    if by_source:
        ages = np.maximum(now - counted.observed_at[observed], 0.0)
        attributes["warmroute.youngest_signal_seconds"] = float(ages.min())
        attributes["warmroute.oldest_signal_seconds"] = float(ages.max())
    return attributes
