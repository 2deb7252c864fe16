"""Headers by which a client chooses the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.names import REMOVED_REQUEST_HEADERS
from warmroute.doctor.envoy.ask import is_ours, ways
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts, Passage


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find headers that steer, or that engines believe, and that a client can send."""
    for passage in ways(facts, context):
        early = _cleared_early(passage)
        removed = early | passage.route.removes
        where = passage.manager.where
        steering = sorted((_matched(passage) - early) | (_choosing(facts, passage) - removed))
        if steering:
            yield Finding(Severity.WARNING, where, f"clients can send {', '.join(steering)}, and it steers")
        open_ = [name for name in REMOVED_REQUEST_HEADERS if name not in removed and name not in steering]
        if open_ and is_ours(passage):
            yield Finding(
                Severity.WARNING,
                where,
                f"clients can send {', '.join(open_)}",
                why="Where ext_proc is away or has nothing to say, engines and logs believe what a client "
                "wrote.",
            )


def _cleared_early(passage: Passage) -> frozenset[str]:
    """Headers that are removed before the first processor, or before the router without one."""
    removed = passage.manager.removes
    for entry in passage.filters:
        if entry.ext_proc is not None:
            break
        removed |= entry.removes
    return removed


def _choosing(facts: Facts, passage: Passage) -> set[str]:
    """Headers that choose the endpoint, after the route has removed what it removes."""
    names = set[str]()
    if cluster := facts.clusters.get(passage.route.cluster):
        names |= {*cluster.policy.header_sources, cluster.destination_header} - {""}
    return names


def _matched(passage: Passage) -> set[str]:
    """Headers that choose the route, the cluster or the hash here and that only a processor or we may set."""
    route = passage.route
    names = {*route.hash_headers, *(match.name for match in route.headers)} & set(REMOVED_REQUEST_HEADERS)
    return names | ({route.cluster_header} - {""} if passage.processors else set())


RULE = Rule(
    title="routing headers are not removed at the door",
    why="Any client can choose an engine, pin a GPU, or probe another tenant's cache: when the processor "
    "is away or names nobody, the client's own header counts.",
    fix="Remove them in the connection manager's `early_header_mutation_extensions`: removal on the route "
    "takes the processor's own header away as well. Better, take picks from dynamic metadata, which no "
    "client can set.",
    check=check,
)
