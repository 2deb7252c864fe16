"""One span for each weight update: what changed, from what to what, and which signals said so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.load import LOAD_FIELDS

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from xds_server.weigh import WeightChange, WeightUpdate

MAX_EVENTS: Final = 128
"""The SDK's own limit of events on a span: what is beyond it is only counted."""


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
