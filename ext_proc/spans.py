"""One span for each sampled request, `warmroute.pick`: what was chosen, what it was compared with, and why.

Which requests are sampled
    Of requests whose traceparent says `sampled`: a share of `telemetry.client_sample_ratio`; the span is a
    child of the client's. Of all others, those that say `not sampled` included: a share of
    `telemetry.pick_sample_ratio`, in a trace of its own, which links to the client's where it named one. The
    sampling floor in the fleet's view raises both shares for as long as something is to be looked at.

A span has addresses, numbers and reasons; nothing that the client wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode

from ext_proc.pick.result import Reason
from fleet.service import traceparent

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Span, Tracer

    from ext_proc.pick.result import Decision
    from ext_proc.protocol.endpoint_picker import ViewSource
    from fleet.settings.telemetry import TelemetrySettings

_ROOT: Final = trace.set_span_in_context(trace.INVALID_SPAN)
"""Not the span that happens to be current."""


class PickSpans:
    """Decides which requests are sampled, and makes the spans."""

    def __init__(self, tracer: Tracer, draw: Callable[[], float], source: ViewSource) -> None:
        """`draw` is uniform in [0, 1); the views of `source` have the least share to sample now."""
        self._tracer = tracer
        self._draw = draw
        self._source = source

    def begin(self, client_traceparent: str, settings: TelemetrySettings) -> Span | None:
        """Begin the span of a request whose client sent this traceparent; None: it is not sampled."""
        client = traceparent.parse(client_traceparent) if client_traceparent else None
        continues = client is not None and client.trace_flags.sampled
        ratio = settings.client_sample_ratio if continues else settings.pick_sample_ratio
        draw = self._draw()
        if draw >= ratio and ((view := self._source.view) is None or draw >= view.sampling_ratio_floor):
            return None
        span = self._start(client, continues=continues)
        return span if span.is_recording() else None

    def _start(self, client: SpanContext | None, *, continues: bool) -> Span:
        if client is not None and continues:
            parent = trace.set_span_in_context(NonRecordingSpan(client))
            return self._tracer.start_span("warmroute.pick", parent, SpanKind.SERVER)
        links = None if client is None else [Link(client)]
        return self._tracer.start_span("warmroute.pick", _ROOT, SpanKind.SERVER, links=links)


def traceparent_of(span: Span) -> str:
    """Return the header by which others continue from a span."""
    return traceparent.text_of(span.get_span_context())


def end(span: Span, decision: Decision, seconds: float, request_id: str) -> None:
    """Record the decision and end the span. `seconds` is what the pick took, 0 where nothing was read."""
    result = decision.result
    span.set_attribute("warmroute.reason", result.reason.value)
    span.set_attribute("warmroute.candidates", decision.candidates)
    span.set_attribute("warmroute.pick_seconds", seconds)
    if request_id:
        span.set_attribute("warmroute.request_id", request_id)
    if result.endpoints:
        span.set_attribute("warmroute.endpoint", result.endpoints[0])
        span.set_attribute("warmroute.fallbacks", result.endpoints[1:])
        span.set_attribute("warmroute.matched_share", result.matched_share)
    if result.expected_seconds is not None:
        span.set_attribute("warmroute.expected_seconds", result.expected_seconds)
    if decision.expected is not None:
        span.set_attribute("warmroute.expected_p90_seconds", decision.expected.p90)
    for rank, entry in enumerate(decision.considered, 1):
        span.add_event(
            "candidate",
            {
                "warmroute.endpoint": entry.address,
                "warmroute.rank": rank,
                "warmroute.cost_seconds": entry.cost,
                "warmroute.wait_seconds": entry.wait_seconds,
                "warmroute.cold_seconds": entry.cold_seconds,
                "warmroute.price_seconds": entry.price_seconds,
                "warmroute.penalty_seconds": entry.penalty_seconds,
                "warmroute.matched_blocks": entry.matched_blocks,
            },
        )
    if result.reason is Reason.FAULT:
        span.set_status(StatusCode.ERROR)
    span.end()
