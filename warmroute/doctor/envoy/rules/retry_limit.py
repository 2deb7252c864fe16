"""More retries at once than the pool's cluster allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import counted, to_clusters
from warmroute.doctor.envoy.facts import DEFAULT_RETRIES_AT_ONCE, Facts
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find pools with retries and without a choice of how many at once."""
    for passage, cluster in to_clusters(facts, context):
        retry, breakers = passage.route.retry, cluster.breakers
        if retry is None or not retry.times or breakers.max_retries is not None or breakers.retry_budget:
            continue
        what = f"{DEFAULT_RETRIES_AT_ONCE} at once in the whole pool (the default)"
        if refused := counted(facts, cluster.name, "upstream_rq_retry_overflow"):
            what += f", and {refused:,.0f} were refused"
        yield Finding(Severity.WARNING, f"{cluster.where}.circuit_breakers.max_retries", what)


RULE = Rule(
    title="at most 3 retries at once, Envoy's default",
    why="When an engine dies, all requests on their way to it want a retry in the same moment: all but three "
    "fail.",
    fix="`max_retries` or a `retry_budget` in the cluster's circuit breakers.",
    check=check,
)
