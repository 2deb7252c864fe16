"""Active health checks that take a busy engine for a dead one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import pools, seconds
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts, HealthCheck

_SHORT_SECONDS: Final = 1.0
_PATIENT_SECONDS: Final = 10.0


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find checks that a single late or odd answer can fail."""
    for cluster in pools(facts, context):
        for held in cluster.health_checks:
            if held.timeout_seconds <= _SHORT_SECONDS and _patience(held) < _PATIENT_SECONDS:
                what = (
                    f"{seconds(held.timeout_seconds)}, unhealthy after {held.unhealthy_threshold} in a "
                    f"row, every {seconds(held.interval_seconds)}"
                )
                yield Finding(Severity.WARNING, f"{held.where}.timeout", what)

            if held.one_answer_is_enough:
                yield Finding(
                    Severity.NOTE,
                    f"{held.where}.http_health_check.retriable_statuses",
                    "none",
                    why="One answer with another status than 200 takes an engine out at once, whatever "
                    "`unhealthy_threshold` says.",
                    fix="`retriable_statuses: [{start: 100, end: 600}]`: then such answers count like the "
                    "late ones.",
                )


def _patience(held: HealthCheck) -> float:
    """Seconds of silence after which an engine is out."""
    return held.timeout_seconds + (held.unhealthy_threshold - 1) * max(held.interval_seconds, 0.0)


RULE = Rule(
    title="health checks of engines with a time limit of a second or less",
    why="An engine that computes a long prefill may answer its health page seconds late: the check takes "
    "it out in the middle of its work, its load goes to the others, and they follow.",
    fix="A time limit of several seconds, several failures in a row, and the engine's own signals for "
    "weights.",
    check=check,
)
