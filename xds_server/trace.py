"""Spans: one for each weight update, with what changed and which signals said so; one for each refusal."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import StatusCode

from fleet.load import LOAD_FIELDS
from xds_server.discovery.status import NullObserver

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from xds_server.discovery.client import Client
    from xds_server.weigh import WeightChange, WeightUpdate

MAX_EVENTS: Final = 128
"""The SDK's own limit of events on a span: what is beyond it is only counted."""
_MAX_REMEMBERED: Final = 1024


class TracedNacks(NullObserver):
    """An observer of discovery: one span for each content that is refused, however many clients refuse it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._traced: OrderedDict[tuple[str, str], None] = OrderedDict()

    def nacked(self, client: Client, type_url: str, version: str, message: str) -> None:
        """Record who refused what first, and why."""
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


def trace_update(tracer: Tracer, update: WeightUpdate, version: str) -> None:
    """Record a published update; called only when something changed."""
    with tracer.start_as_current_span("warmroute.weight_update") as span:
        span.set_attribute("warmroute.endpoints_changed", len(update.changes))
        span.set_attribute("warmroute.endpoints_unhealthy", len(update.unhealthy))
        span.set_attribute("warmroute.eds_version", version)
        for change in update.changes[:MAX_EVENTS]:
            span.add_event("weight_change", _attributes(change))


def _attributes(change: WeightChange) -> dict[str, str | int | float]:
    attributes: dict[str, str | int | float] = {
        "warmroute.endpoint": change.address,
        "warmroute.weight": change.new,
        "warmroute.reason": change.reason,
    }
    if change.old is not None:
        attributes["warmroute.weight_before"] = change.old
    for name in LOAD_FIELDS:
        held = getattr(change.load, name)
        if held is not None:
            attributes[f"warmroute.{name}"] = held.value
    return attributes
