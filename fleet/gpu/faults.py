"""From a GPU's faults to its health score. Pure: faults and the time in, a score out.

A transient fault limits for `transient_seconds`, one that isolates does so for `isolated_seconds`, and one
that drains does so until its log is cleared. The log is cleared when the GPU agent restarts, or when the
GPU, or its driver, was away and answers again, or asks for no recovery any more; what the GPU then still says
of itself (its states) counts immediately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from fleet.gpu.fault_table import (
    CUDA_CODES,
    CUDA_ERRORS,
    CUDA_NAMES,
    STATE_RULES,
    UNKNOWN_CLASS,
    XIDS,
    FaultClass,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.settings.weights import FaultSettings

FaultKind = Literal["xid", "cuda", "state"]
FAULT_KINDS: Final[tuple[FaultKind, ...]] = ("xid", "cuda", "state")
MAX_REMEMBERED: Final = 64
"""Different faults of one GPU; beyond that the oldest is forgotten."""


class FaultEvent(NamedTuple):
    """A fault of one GPU, and how often it occurred."""

    kind: FaultKind
    code: str
    """The XID's number, the CUDA error's number, or the name of a state."""
    at: float
    """When it occurred last, in seconds on this process's monotonic clock."""
    times: int = 1


class Health(NamedTuple):
    """Health of a GPU by its faults."""

    score: float
    """1.0 fine, 0.9 limited, 0.4 isolated, 0.0 drained."""
    cause: FaultEvent | None = None
    """The worst fault; None when fine."""
    until: float | None = None
    """When the score may change without a new fault; None: never."""


def cuda_code(text: str) -> int | None:
    """Return the number of a CUDA error by its name or number; None for neither."""
    if text in CUDA_CODES:
        return CUDA_CODES[text]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None


def classify(kind: FaultKind, code: str) -> FaultClass:
    """Return the class of a fault; `UNKNOWN_CLASS` if the table lacks it."""
    if kind == "state":
        return STATE_RULES[code][0] if code in STATE_RULES else UNKNOWN_CLASS
    number = cuda_code(code)
    rule = None if number is None else (XIDS if kind == "xid" else CUDA_ERRORS).get(number)
    return UNKNOWN_CLASS if rule is None else rule.fault_class


def describe(kind: FaultKind, code: str) -> str:
    """Return a fault in words."""
    if kind == "state":
        return STATE_RULES[code][1] if code in STATE_RULES else code
    number = cuda_code(code)
    rule = None if number is None else (XIDS if kind == "xid" else CUDA_ERRORS).get(number)
    meaning = "not in the table" if rule is None else rule.meaning
    name = (
        f"XID {code}" if kind == "xid" else CUDA_NAMES.get(-1 if number is None else number, f"CUDA {code}")
    )
    return f"{name}: {meaning}"


def health(events: Iterable[FaultEvent], now: float, settings: FaultSettings) -> Health:
    """Rate a GPU by the worst of its faults that still count."""
    worst, cause, until = FaultClass.FINE, None, None
    for event in events:
        fault_class = classify(event.kind, event.code)
        ends = _ends(event, fault_class, settings)
        if fault_class is FaultClass.FINE or (ends is not None and ends <= now):
            continue
        if ends is not None:
            until = ends if until is None else min(until, ends)
        if fault_class.value < worst.value:
            worst, cause = fault_class, event
    return Health(worst.value, cause, until)


def _ends(event: FaultEvent, fault_class: FaultClass, settings: FaultSettings) -> float | None:
    """Return when a fault stops counting; None: never."""
    if fault_class is FaultClass.DRAINED:
        return None
    if fault_class is FaultClass.ISOLATED:
        return event.at + settings.isolated_seconds
    return event.at + settings.transient_seconds


class FaultLog:
    """The faults of one GPU, in bounded memory."""

    def __init__(self) -> None:
        self._events: dict[tuple[FaultKind, str], FaultEvent] = {}

    def note(self, kind: FaultKind, code: str, now: float) -> None:
        """Add a fault that has just occurred."""
        before = self._events.pop((kind, code), None)
        times = 1 if before is None else before.times + 1
        # The order of the dict is that of the last occurrence.
        self._events[kind, code] = FaultEvent(kind, code, now, times)
        if len(self._events) > MAX_REMEMBERED:
            del self._events[next(iter(self._events))]

    def clear(self) -> None:
        """Forget all: the GPU was reset, or its driver restarted."""
        self._events.clear()

    def events(self) -> tuple[FaultEvent, ...]:
        """Return the remembered faults, the newest last."""
        return tuple(self._events.values())
