"""Picks of engines that are down, without a second chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import to_clusters
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_PIECES: Final = frozenset({"BUFFERED_PARTIAL", "STREAMED", "FULL_DUPLEX_STREAMED"})
"""Modes in which a body is on its way before it is whole: mostly it cannot be sent again, or not safely."""
_COVERS: Final = frozenset({"connect-failure", "5xx", "gateway-error", "reset"})


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find ways where a refused connection is not retried although a pick chooses the host."""
    for passage, cluster in to_clusters(facts, context):
        picked = cluster.policy.name == "override_host" and passage.processors
        retry = passage.route.retry
        covered = retry is not None and retry.times and retry.on & _COVERS
        whole = all(ext_proc.mode.request_body not in _PIECES for _, _, ext_proc in passage.processors)
        if picked and whole and not covered:
            yield Finding(
                Severity.WARNING, f"{passage.route.where}.route.retry_policy", "no retry on connect-failure"
            )


RULE = Rule(
    title="picks without a retry on refused connections",
    why="`override_host` looks neither at outlier ejection nor at health: a pick of an engine that has "
    "just died is tried, and fails.",
    fix="`retry_on: connect-failure,refused-stream,reset-before-request`: retries walk on along the list "
    "of the pick, then go by weights.",
    check=check,
)
