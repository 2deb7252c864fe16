"""More requests in flight than the external processor's cluster allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import counted, processor_clusters
from warmroute.doctor.envoy.facts import DEFAULT_BREAKER, Facts
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at the thresholds that streams meet, and at whether they have been met."""
    for cluster in processor_clusters(facts, context):
        breakers = cluster.breakers
        met = counted(facts, cluster.name, "upstream_rq_pending_overflow", "upstream_rq_active_overflow")
        limits = {"max_requests": breakers.max_requests, "max_pending_requests": breakers.max_pending}
        for name, setting in limits.items():
            limit = DEFAULT_BREAKER if setting is None else setting
            if limit > DEFAULT_BREAKER and not met:
                continue
            what = f"{limit:,}" + (" (the default)" if setting is None else "")
            if met:
                what += f", and streams were refused {met:,.0f} times"
            yield Finding(
                Severity.ERROR if met else Severity.WARNING,
                f"{cluster.where}.circuit_breakers.{name}",
                what,
            )


RULE = Rule(
    title="circuit breakers of the ext_proc cluster at Envoy's default of 1,024 or below",
    why="A stream to the processor lives as long as its request, so this is a limit on requests in flight: "
    "those beyond it go without a pick, or fail without `failure_mode_allow`.",
    fix="`max_requests` and `max_pending_requests` far above the number of requests in flight, such as "
    "1000000.",
    check=check,
)
