"""Headers by which a client chooses the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doctor.envoy.ask import is_ours, ways
from doctor.finding import Finding, Severity
from doctor.rule import Rule
from fleet.names import DESTINATION_KEY, REMOVED_REQUEST_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from doctor.context import Context
    from doctor.envoy.facts import Facts, Passage


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find headers that steer, or that engines believe, and that a client can send."""
    for passage in ways(facts, context):
        told = _cleared(passage)
        where = passage.manager.where
        if steering := sorted(_steering(facts, passage) - told):
            yield Finding(Severity.WARNING, where, f"{', '.join(steering)} steers, and clients can send it")
        if not is_ours(passage):
            continue
        if open_ := [name for name in REMOVED_REQUEST_HEADERS if name not in told and name not in steering]:
            yield Finding(
                Severity.WARNING,
                where,
                f"{', '.join(open_)}: not removed",
                why="Where ext_proc is away or has nothing to say, engines and logs believe what a client "
                "wrote.",
            )


def _cleared(passage: Passage) -> frozenset[str]:
    """Headers of which nothing that a client sent reaches the first processor, or the router."""
    told = passage.manager.removes
    for held in passage.filters:
        if held.ext_proc is not None:
            break
        told |= held.removes
    return told


def _steering(facts: Facts, passage: Passage) -> set[str]:
    """Headers that choose an endpoint or a route here and are not meant for clients."""
    route, found = passage.route, set[str]()
    if cluster := facts.clusters.get(route.cluster):
        found |= {*cluster.policy.header_sources, cluster.destination_header} - {""}
    if passage.processors and route.cluster_header:
        found.add(route.cluster_header)
    ours = {*REMOVED_REQUEST_HEADERS, DESTINATION_KEY}
    return found | (ours & {*route.hash_headers, *(match.name for match in route.headers)})


RULE = Rule(
    title="routing headers are not removed at the door",
    why="Any client can choose an engine, pin a GPU, or probe another tenant's cache: when the processor "
    "is away or names nobody, the client's own header counts.",
    fix="Remove them in the connection manager's `early_header_mutation_extensions`: removal on the route "
    "comes after the host has been chosen. Better, take picks from dynamic metadata, which no client can "
    "set.",
    check=check,
)
