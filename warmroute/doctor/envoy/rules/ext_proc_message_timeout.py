"""The time limit of a request's wait for an external processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import processors, seconds
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_LONG_SECONDS: Final = 1.0
_SHORT_SECONDS: Final = 0.02
"""Pauses of a garbage collector or of a busy machine are as long."""
_MANY_TIMEOUTS_SHARE: Final = 0.01
_ENOUGH_TIMEOUTS: Final = 10


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Check the limit, and the number of timeouts."""
    counters = _timeouts_and_streams(facts)
    for passage, entry, ext_proc in processors(facts, context):
        limit = ext_proc.message_timeout_seconds
        where = f"{entry.where}.message_timeout"
        if limit > _LONG_SECONDS:
            yield Finding(Severity.WARNING, where, seconds(limit))
        elif limit < _SHORT_SECONDS:
            yield Finding(
                Severity.WARNING,
                where,
                seconds(limit),
                why="A pause of the processor or of the machine is as long: requests lose their pick by "
                "chance.",
                fix="A quarter of a second.",
            )
        timeouts, streams = counters.get(passage.manager.stat_prefix, (0.0, 0.0))
        if timeouts >= _ENOUGH_TIMEOUTS and timeouts > streams * _MANY_TIMEOUTS_SHARE:
            yield Finding(
                Severity.WARNING,
                where,
                f"{seconds(limit)}, and it has struck {timeouts:,.0f} times in {streams:,.0f} streams",
                why="The processor is too slow or was frozen: each time a request waited for nothing.",
                fix="Look at the processor's CPU and at the sizes of bodies that it gets; a health check "
                "on its cluster takes a frozen one out.",
            )


def _timeouts_and_streams(facts: Facts) -> dict[str, tuple[float, float]]:
    """Timeouts and streams of the external processors of each connection manager, by its prefix."""
    by_prefix: dict[str, list[float]] = {}
    for name, value in facts.stats.values.items():
        prefix, separator, rest = name.removeprefix("http.").partition(".ext_proc.")
        for position, counter in enumerate(("message_timeouts", "streams_started")):
            if separator and rest.rpartition(".")[2] == counter:
                by_prefix.setdefault(prefix, [0.0, 0.0])[position] += value
    return {prefix: (timeouts, streams) for prefix, (timeouts, streams) in by_prefix.items()}


RULE = Rule(
    title="ext_proc `message_timeout` too long or too short, or striking often",
    why="A processor that is frozen, not dead, costs every request this much before it goes on without a "
    "pick.",
    fix="A quarter of a second, and a gRPC health check on the processor's cluster.",
    check=check,
)
