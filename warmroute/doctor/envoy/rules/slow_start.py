"""Slow start over weights that are too small for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import pools
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_LEAST_WEIGHT: Final = 10
"""Slow start begins with a tenth by default."""


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find pools with slow start whose lightest endpoint would have a share of less than 1."""
    for cluster in pools(facts, context):
        if not cluster.policy.slow_start:
            continue
        where = f"{cluster.where}.slow_start_config"
        if cluster.weights is None:
            yield Finding(Severity.NOTE, where, "slow start; the endpoints' weights are not known")
        elif cluster.weights and (least := min(cluster.weights)) < _LEAST_WEIGHT:
            yield Finding(
                Severity.WARNING, where, f"slow start, and the lightest endpoint has weight {least}"
            )


RULE = Rule(
    title="slow start over endpoint weights below 10",
    why="A tenth of such a weight is less than 1: a new endpoint gets nothing, even after its time.",
    fix="Weights in the hundreds, or slow start in the control plane (Warmroute's `pools.joining`) instead.",
    check=check,
)
