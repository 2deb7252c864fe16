"""The outcome of a traced request: a span below its pick.

Envoy's time to the first byte is no time to first token: engines send the headers of a stream at once, and
an answer in one piece at its end. So the span has that time and the prediction, and no difference of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanKind, StatusCode

from fleet.names import METADATA_EXPECTED, METADATA_TRACE
from fleet.service import traceparent

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from xds_server.access_log.finished import Finished

_MAX_FLAGS: Final = 8


class RequestSpans:
    """An observer of finished requests, on the event loop."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def note(self, finished: Finished) -> None:
        """Record the span of a traced request."""
        pick = traceparent.parse(finished.metadata.get(METADATA_TRACE, ""))
        if pick is None or not pick.trace_flags.sampled:
            return
        parent = trace.set_span_in_context(NonRecordingSpan(pick))
        span = self._tracer.start_span(
            "warmroute.request", parent, SpanKind.CLIENT, start_time=_ns(finished.started_at)
        )
        if span.is_recording():
            _set_attributes(span, finished)
        span.end(_ns(finished.started_at + (finished.duration_seconds or finished.first_byte_seconds or 0.0)))


def _set_attributes(span: Span, finished: Finished) -> None:
    attributes: dict[str, str | int | float | None] = {
        "warmroute.endpoint": finished.address or None,
        "warmroute.picked": finished.picked or None,
        "warmroute.pool": finished.cluster or None,
        "warmroute.request_id": finished.request_id[:128] or None,
        "warmroute.attempts": finished.attempts,
        "warmroute.flags": ",".join(finished.flags[:_MAX_FLAGS]) or None,
        "warmroute.first_byte_seconds": finished.first_byte_seconds,
        "warmroute.duration_seconds": finished.duration_seconds,
        "warmroute.expected_seconds": _seconds(finished.metadata.get(METADATA_EXPECTED, "")),
        "http.response.status_code": finished.status or None,
    }
    span.set_attributes({name: value for name, value in attributes.items() if value is not None})
    if finished.first_byte_seconds is not None:
        span.add_event("first_byte", timestamp=_ns(finished.started_at + finished.first_byte_seconds))
    if finished.faulty:
        span.set_status(
            StatusCode.ERROR, ",".join(finished.flags[:_MAX_FLAGS]) or f"status {finished.status}"
        )


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
