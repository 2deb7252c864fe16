"""Queries on the facts that several rules share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.names import METADATA_NAMESPACE, UPSTREAM_HEADERS, pool_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.envoy.facts import Cluster, ExtProc, Facts, Filter, Passage
    from warmroute.doctor.rule import Context

_ENOUGH_REQUESTS: Final = 100
"""Fewer have no P99; connections too."""


def engine_passages(facts: Facts, context: Context) -> Iterator[Passage]:
    """Every passage to engines."""
    for passage in facts.passages:
        named = context.pools is None or pool_of(passage.route.cluster) in context.pools
        if named or passage.route.cluster_header:
            yield passage


def request_passages(facts: Facts, context: Context) -> Iterator[Passage]:
    """Every passage of ordinary requests to engines."""
    return (passage for passage in engine_passages(facts, context) if not passage.upgrade)


def passages_with_cluster(facts: Facts, context: Context) -> Iterator[tuple[Passage, Cluster]]:
    """Every passage of ordinary requests to engines, with its cluster, if the configuration contains it."""
    for passage in request_passages(facts, context):
        if cluster := facts.clusters.get(passage.route.cluster):
            yield passage, cluster


def pools(facts: Facts, context: Context) -> Iterator[Cluster]:
    """The clusters of engines."""
    clusters = dict.fromkeys(passage.route.cluster for passage in engine_passages(facts, context))
    return (facts.clusters[name] for name in clusters if name in facts.clusters)


def coverage(facts: Facts, context: Context) -> dict[str, int]:
    """Counts of the examined parts; routes only to engines."""
    return {
        "listeners": len({manager.listener for manager in facts.managers}),
        "routes": len({passage.route.where for passage in engine_passages(facts, context)}),
        "clusters": len(facts.clusters),
    }


def processors(facts: Facts, context: Context) -> Iterator[tuple[Passage, Filter, ExtProc]]:
    """Every external processor that ordinary requests wait for."""
    for passage in request_passages(facts, context):
        for _, ext_proc_filter, ext_proc in passage.processors:
            yield passage, ext_proc_filter, ext_proc


def processor_clusters(facts: Facts, context: Context) -> Iterator[Cluster]:
    """The clusters through which external processors are reached."""
    named = [
        ext_proc.cluster
        for passage in engine_passages(facts, context)
        for _, _, ext_proc in passage.processors
    ]
    return (facts.clusters[name] for name in dict.fromkeys(named) if name in facts.clusters)


def p99_seconds(facts: Facts, context: Context, cluster: str) -> float | None:
    """P99 of whole answers, from the operator, otherwise from Envoy's statistics; None if unknown."""
    if context.p99_seconds is not None:
        return context.p99_seconds
    if facts.stats.of(f"cluster.{stat_name(cluster)}.upstream_rq_total") < _ENOUGH_REQUESTS:
        return None
    milliseconds = facts.stats.p99s.get(f"cluster.{stat_name(cluster)}.upstream_rq_time")
    return None if milliseconds is None else milliseconds / 1000


def connect_p99_seconds(facts: Facts, cluster: str) -> float | None:
    """P99 of the time to connect, TLS handshake included, from Envoy's statistics; None if unknown."""
    if counter_sum(facts, cluster, "upstream_cx_total") < _ENOUGH_REQUESTS:
        return None
    milliseconds = facts.stats.p99s.get(f"cluster.{stat_name(cluster)}.upstream_cx_connect_ms")
    return None if milliseconds is None else milliseconds / 1000


def counter_sum(facts: Facts, cluster: str, *names: str) -> float:
    """The sum of a cluster's counters."""
    return sum(facts.stats.of(f"cluster.{stat_name(cluster)}.{name}") for name in names)


def stat_name(cluster: str) -> str:
    """Return how Envoy spells a cluster in its statistics."""
    return cluster.replace(":", "_")


def is_ours(passage: Passage) -> bool:
    """Whether Warmroute serves this passage."""
    sets_metadata = any(METADATA_NAMESPACE in ext_proc.receives for _, _, ext_proc in passage.processors)
    return sets_metadata or bool(passage.route.adds & UPSTREAM_HEADERS.keys())
