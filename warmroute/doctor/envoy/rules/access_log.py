"""A gateway without an access log to Warmroute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import bodies, is_ours
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find connection managers with our picks and without a gRPC access log to the control plane."""
    for passage in bodies(facts, context):
        logs = passage.manager.log_clusters
        logged = facts.ads_cluster in logs if facts.ads_cluster else bool(logs)
        if passage.processors and is_ours(passage) and not logged:
            yield Finding(
                Severity.NOTE, f"{passage.manager.where}.access_log", "no http_grpc log to xds_server"
            )


RULE = Rule(
    title="no access log to xds_server",
    why="Without it nobody knows the time to the first token, errors and retries of each engine: weights and "
    "picks go by the engines' own pages alone.",
    fix="`envoy.access_loggers.http_grpc` with the cluster of xds_server, log_name `warmroute` and "
    "buffer_flush_interval 0.25s.",
    check=check,
)
