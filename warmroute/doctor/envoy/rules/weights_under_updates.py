"""Balancing that forgets the weights with each update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import counted, pools
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Cluster, Facts

_STARVING: Final = frozenset({"round_robin", "least_request"})
_OFTEN_SECONDS: Final = 60.0
_ENOUGH_SECONDS: Final = 600.0
"""A younger Envoy has not shown yet how often updates come."""


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find pools with weights from EDS whose policy restarts at each update, or ignores weights."""
    for cluster in pools(facts, context):
        policy = cluster.policy.by_weights
        if cluster.discovery != "EDS":
            continue
        where = f"{cluster.where}.load_balancing_policy"
        if policy in _STARVING:
            yield Finding(*_judge(facts, cluster, where))
        elif policy == "random" and _weighted(cluster):
            yield Finding(
                Severity.WARNING, where, "random, although endpoints have weights", why="It ignores weights."
            )


def _judge(facts: Facts, cluster: Cluster, where: str) -> tuple[Severity, str, str]:
    policy = cluster.policy.by_weights
    uptime = facts.stats.of("server.uptime")
    updates = counted(facts, cluster.name, "update_success")
    if uptime >= _ENOUGH_SECONDS:
        if updates * _OFTEN_SECONDS < uptime:
            return Severity.NOTE, where, f"{policy}; {updates:,.0f} updates of endpoints in {uptime:,.0f} s"
        return (
            Severity.WARNING,
            where,
            f"{policy}, with {updates:,.0f} updates of endpoints in {uptime:,.0f} s",
        )
    if not _weighted(cluster):
        return Severity.NOTE, where, f"{policy}; all endpoints have equal weights now"
    return Severity.WARNING, where, f"{policy}, with weights from EDS"


def _weighted(cluster: Cluster) -> bool:
    return cluster.weights is None or len(set(cluster.weights)) > 1


RULE = Rule(
    title="round_robin, least_request or random under weights that change",
    why="Each update builds the schedule anew, and it begins with the heavy endpoints: light ones starve. "
    "Measured at 20 requests and 10 updates a second: shares of 51/49/0 and 76/24/0 for weights of 70/20/10.",
    fix="Maglev (72/18/9 without and 69/19/12 with updates), by itself or as the fallback of override_host.",
    check=check,
)
