"""More requests in flight than a pool's cluster allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import counted, pools
from warmroute.doctor.envoy.facts import DEFAULT_BREAKER, Cluster, Facts
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find default thresholds, and thresholds that requests have reached."""
    for cluster in pools(facts, context):
        where = f"{cluster.where}.circuit_breakers"
        met = counted(
            facts,
            cluster.name,
            "upstream_rq_pending_overflow",
            "upstream_rq_active_overflow",
        )
        missing = [name for name, limit in _limits(cluster).items() if limit is None]
        if met:
            yield Finding(Severity.ERROR, where, f"requests were refused {met:,.0f} times")
        elif missing:
            yield Finding(
                Severity.WARNING, where, f"{', '.join(missing)} at the default of {DEFAULT_BREAKER:,}"
            )


def _limits(cluster: Cluster) -> dict[str, int | None]:
    breakers = cluster.breakers
    limits = {"max_pending_requests": breakers.max_pending, "max_requests": breakers.max_requests}
    # An HTTP/1.1 connection carries one request at a time.
    return {"max_connections": breakers.max_connections, **limits} if cluster.http1 else limits


RULE = Rule(
    title="circuit breakers of a pool at Envoy's default of 1,024, or refusing requests",
    why="LLM requests last for seconds to minutes, so thousands are in flight at once: Envoy answers 503 to "
    "those beyond the limit while engines would have queued them.",
    fix="Choose `max_connections`, `max_pending_requests` and `max_requests` on purpose, above what the "
    "engines hold together.",
    check=check,
)
