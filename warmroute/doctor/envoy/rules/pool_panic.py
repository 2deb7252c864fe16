"""Pools in which every endpoint can be taken out at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import pools
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find pools with a panic threshold of 0 and health checks or outlier detection."""
    for cluster in pools(facts, context):
        marked = cluster.health_checks or cluster.outlier or cluster.discovery == "EDS"
        if marked and not cluster.panic_percent:
            yield Finding(
                Severity.WARNING, f"{cluster.where}.common_lb_config.healthy_panic_threshold", "0 %"
            )


RULE = Rule(
    title="a pool without a panic threshold",
    why="A wave of load makes checks fail everywhere: when the last endpoint is marked, every request gets "
    "503 although engines still work.",
    fix="Leave `healthy_panic_threshold` at its default of 50 for pools; 0 is for the ext_proc cluster.",
    check=check,
)
