"""What a trace backend's spans say of weight updates: complete or not, and how long they took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from warmroute.demo import report
from warmroute.demo.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testing.spans import Span
    from warmroute.demo.report import Target

_STEPS: Final = ("collect", "compute", "publish")
_MARGIN_SECONDS: Final = 0.25
_SAME: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Change:
    """One signal that was changed."""

    at: float
    """Unix seconds."""
    address: str
    memory_used_ratio: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The changes made, and the spans that the backend stored."""

    changes: tuple[Change, ...]
    spans: tuple[Span, ...]
    expected_acks: int
    """ACK spans that xds_server said it had ended by an ACK, before the spans were read."""
    dropped: float
    """Spans that xds_server says it has lost."""


def acked(span: Span) -> bool:
    """Whether a client took what the span was waiting for."""
    return span.name == "warmroute.ack" and span.attributes.get("warmroute.outcome") == "ack"


def result_of(measured: Measured, tick: float, scrape: float) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and its targets."""
    traces: dict[str, list[Span]] = {}
    for span in measured.spans:
        traces.setdefault(span.trace_id, []).append(span)
    updates = [trace for trace in traces.values() if any(s.name == "warmroute.weight_update" for s in trace)]
    acks = [span for span in measured.spans if acked(span)]
    complete = [trace for trace in updates if _complete(trace)]
    change_traces = [_trace_of(change, complete) for change in measured.changes]
    signal_to_ack = [
        next(span.end for span in trace if acked(span)) - change.at
        for trace, change in zip(change_traces, measured.changes, strict=True)
        if trace is not None
    ]
    durations = [ack.end - ack.start for ack in acks]
    changes = len(measured.changes)
    result = {
        "changes": changes,
        "tick_seconds": tick,
        "scrape_interval_seconds": scrape,
        "spans_read_back": len(measured.spans),
        "traces_of_updates": len(updates),
        "acks_read_back": len(acks),
        "acks_told_by_xds_server": measured.expected_acks,
        "spans_dropped": measured.dropped,
        "spans_with_a_wrong_parent": sum(_misplaced(trace) for trace in traces.values()),
        "changes_with_a_complete_trace": len(signal_to_ack),
        "updates_with_old_and_new_weight": sum(_has_weights(trace) for trace in updates),
        "signal_to_ack_p50_seconds": percentile(signal_to_ack, 0.5) if signal_to_ack else None,
        "signal_to_ack_max_seconds": max(signal_to_ack, default=None),
        "ack_span_p50_seconds": percentile(durations, 0.5) if durations else None,
        "ack_span_max_seconds": max(durations, default=None),
    }
    targets = [
        report.exactly("changes_with_a_complete_trace", result["changes_with_a_complete_trace"], changes),
        report.at_least("acks_read_back", len(acks), measured.expected_acks),
        report.exactly("spans_with_a_wrong_parent", result["spans_with_a_wrong_parent"], 0),
        report.exactly(
            "updates_with_old_and_new_weight", result["updates_with_old_and_new_weight"], len(updates)
        ),
        report.exactly("spans_dropped", measured.dropped, 0),
        report.at_most(
            "signal_to_ack_max_seconds", result["signal_to_ack_max_seconds"], tick + scrape + _MARGIN_SECONDS
        ),
    ]
    return result, targets


def _trace_of(change: Change, traces: Sequence[Sequence[Span]]) -> Sequence[Span] | None:
    """Return the first trace whose root has the changed signal; None without one."""
    telling = [
        trace
        for trace in traces
        if any(
            attributes.get("warmroute.endpoint") == change.address
            and abs(attributes.get("warmroute.memory_used_ratio", -1.0) - change.memory_used_ratio) < _SAME
            and attributes.get("warmroute.weight") != attributes.get("warmroute.weight_before")
            for _, attributes in _root(trace).events
        )
        and _root(trace).end >= change.at
    ]
    return min(telling, key=lambda trace: _root(trace).start, default=None)


def _root(trace: Sequence[Span]) -> Span:
    return next(span for span in trace if span.name == "warmroute.weight_update")


def _complete(trace: Sequence[Span]) -> bool:
    names = [span.name for span in trace]
    steps = all(names.count(f"warmroute.{step}") == 1 for step in _STEPS)
    return steps and names.count("warmroute.weight_update") == 1 and any(acked(span) for span in trace)


def _misplaced(trace: Sequence[Span]) -> int:
    """Spans of updates that are neither a root nor below the root of their trace."""
    roots = {span.span_id for span in trace if not span.parent_id and span.name == "warmroute.weight_update"}
    if not roots:
        return sum(span.name != "warmroute.nack" for span in trace)
    return sum(span.span_id not in roots and span.parent_id not in roots for span in trace)


def _has_weights(trace: Sequence[Span]) -> bool:
    """Whether the root has each changed endpoint's new weight and reason; new ones have no old weight."""
    events = [attributes for name, attributes in _root(trace).events if name == "weight_change"]
    needed = {"warmroute.endpoint", "warmroute.weight", "warmroute.reason"}
    return bool(events) and all(needed <= attributes.keys() for attributes in events)
