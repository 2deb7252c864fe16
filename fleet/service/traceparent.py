"""W3C trace context (https://www.w3.org/TR/trace-context/): text to span context and back."""

from __future__ import annotations

import re
from typing import Final

from opentelemetry.trace import SpanContext, TraceFlags

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_INVALID_VERSION: Final = "ff"
_MAX_CHARS: Final = 512


def parse(text: str) -> SpanContext | None:
    """Read a traceparent; None if it is invalid. Of later versions, the fields of version 00 are read."""
    if not text or len(text) > _MAX_CHARS:
        return None
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == _INVALID_VERSION or (version == "00" and more is not None):
        return None
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return context if context.is_valid else None


def text_of(context: SpanContext) -> str:
    """Write a traceparent."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"
