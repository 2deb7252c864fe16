"""A frozen external processor without detection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import processor_clusters, seconds
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_SLOW_SECONDS: Final = 5.0


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find processors' clusters without health checks, or with checks that come once a minute."""
    for cluster in processor_clusters(facts, context):
        if not cluster.health_checks:
            yield Finding(Severity.WARNING, f"{cluster.where}.health_checks", "none")
        for health_check in cluster.health_checks:
            if health_check.no_traffic_seconds > _SLOW_SECONDS:
                yield Finding(
                    Severity.WARNING,
                    f"{health_check.where}.no_traffic_interval",
                    seconds(health_check.no_traffic_seconds),
                    why="Envoy goes by this interval for the ext_proc cluster whatever its real traffic, "
                    "so a frozen processor is noticed only after so long.",
                )
            elif health_check.interval_seconds > _SLOW_SECONDS:
                yield Finding(
                    Severity.WARNING, f"{health_check.where}.interval", seconds(health_check.interval_seconds)
                )


RULE = Rule(
    title="no health check of the ext_proc cluster, or one without `no_traffic_interval`",
    why="A processor that is frozen keeps its connections: every request waits for the whole "
    "message_timeout.",
    fix="`health_checks` with `grpc_health_check: {}`, and `interval` and `no_traffic_interval` of a "
    "quarter of a second.",
    check=check,
)
