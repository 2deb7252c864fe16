"""A frozen external processor that still gets requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import processor_clusters
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find processors' clusters with health checks and a panic threshold above 0."""
    for cluster in processor_clusters(facts, context):
        if cluster.health_checks and cluster.panic_percent:
            yield Finding(
                Severity.WARNING,
                f"{cluster.where}.common_lb_config.healthy_panic_threshold",
                f"{cluster.panic_percent:g} %",
            )


RULE = Rule(
    title="the ext_proc cluster goes into panic",
    why="With too few healthy processors left, Envoy asks the unhealthy ones again, and requests wait for "
    "them.",
    fix="`common_lb_config: {healthy_panic_threshold: {value: 0}}`: requests then go on without a pick at "
    "once.",
    check=check,
)
