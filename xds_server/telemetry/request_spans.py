"""The outcome of a traced request: a span below its pick, predicted and real time to the first token.

The real time is Envoy's time to the first byte of the host's answer. An answer that is not streamed comes
at its end, so there it says nothing of the first token, and such a request is left out of the error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanKind, StatusCode
from prometheus_client import Histogram

from fleet.names import METADATA_EXPECTED, METADATA_TRACE
from fleet.service import traceparent

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from prometheus_client import CollectorRegistry

    from xds_server.access_log.finished import Finished

_STREAMED_SHARE: Final = 0.98
"""If the first byte comes later than this share of the whole duration, the answer came in one piece."""
_MAX_FLAGS: Final = 8
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class RequestSpans:
    """An observer of finished requests, on the event loop."""

    def __init__(self, tracer: Tracer, registry: CollectorRegistry) -> None:
        self._tracer = tracer
        error = Histogram(
            "warmroute_ttft_prediction_error_seconds",
            "How far the predicted time to the first token was from Envoy's, by whether the answer came late",
            ["direction"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._late = error.labels("late")
        self._early = error.labels("early")

    def note(self, finished: Finished) -> None:
        """Record the prediction's error, and the span of a traced request."""
        expected = _seconds(finished.metadata.get(METADATA_EXPECTED, ""))
        error = _error(finished, expected)
        if error is not None:
            (self._late if error >= 0 else self._early).observe(abs(error))
        pick = traceparent.parse(finished.metadata.get(METADATA_TRACE, ""))
        if pick is None or not pick.trace_flags.sampled:
            return
        parent = trace.set_span_in_context(NonRecordingSpan(pick))
        span = self._tracer.start_span(
            "warmroute.request", parent, SpanKind.CLIENT, start_time=_ns(finished.started_at)
        )
        if span.is_recording():
            _set_attributes(span, finished, expected, error)
        span.end(_ns(finished.started_at + (finished.duration_seconds or finished.first_byte_seconds or 0.0)))


def _set_attributes(span: Span, finished: Finished, expected: float | None, error: float | None) -> None:
    attributes: dict[str, str | int | float | None] = {
        "warmroute.endpoint": finished.address or None,
        "warmroute.picked": finished.picked or None,
        "warmroute.pool": finished.cluster or None,
        "warmroute.request_id": finished.request_id[:128] or None,
        "warmroute.attempts": finished.attempts,
        "warmroute.flags": ",".join(finished.flags[:_MAX_FLAGS]) or None,
        "warmroute.first_byte_seconds": finished.first_byte_seconds,
        "warmroute.duration_seconds": finished.duration_seconds,
        "warmroute.expected_seconds": expected,
        "warmroute.prediction_error_seconds": error,
        "http.response.status_code": finished.status or None,
    }
    span.set_attributes({name: value for name, value in attributes.items() if value is not None})
    if finished.first_byte_seconds is not None:
        span.add_event("first_byte", timestamp=_ns(finished.started_at + finished.first_byte_seconds))
    if finished.faulty:
        span.set_status(
            StatusCode.ERROR, ",".join(finished.flags[:_MAX_FLAGS]) or f"status {finished.status}"
        )


def _error(finished: Finished, expected: float | None) -> float | None:
    """Real minus predicted seconds; None: they are not comparable, or one is unknown."""
    real, whole = finished.first_byte_seconds, finished.duration_seconds
    if expected is None or real is None or whole is None or real >= _STREAMED_SHARE * whole:
        return None
    served_as_picked = finished.picked == finished.address and finished.attempts <= 1
    if not served_as_picked or finished.aborted or not 200 <= finished.status < 300:
        return None
    return real - expected


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
