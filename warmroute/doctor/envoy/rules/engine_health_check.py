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
        for health_check in cluster.health_checks:
            if health_check.timeout_seconds <= _SHORT_SECONDS and _patience(health_check) < _PATIENT_SECONDS:
                threshold = health_check.unhealthy_threshold
                what = (
                    f"{seconds(health_check.timeout_seconds)}, unhealthy after {threshold} in a row, every"
                    f" {seconds(health_check.interval_seconds)}"
                )
                yield Finding(Severity.WARNING, f"{health_check.where}.timeout", what)

            if health_check.one_answer_is_enough:
                yield Finding(
                    Severity.NOTE,
                    f"{health_check.where}.http_health_check.retriable_statuses",
                    "none",
                    why="One answer with another status than 200 takes an engine out at once, whatever "
                    "`unhealthy_threshold` says.",
                    fix="`retriable_statuses: [{start: 100, end: 600}]`: then such answers count like the "
                    "late ones.",
                )


def _patience(health_check: HealthCheck) -> float:
    """Seconds of silence after which an engine is out."""
    return health_check.timeout_seconds + (health_check.unhealthy_threshold - 1) * max(
        health_check.interval_seconds, 0.0
    )


RULE = Rule(
    title="health checks of engines with a time limit of a second or less",
    why="An engine that computes a long prefill may answer its health page seconds late: the check takes "
    "it out in the middle of its work, its load goes to the others, and they follow.",
    fix="A time limit of several seconds, several failures in a row, and the engine's own signals for "
    "weights.",
    check=check,
)
