"""Picks that the load balancer does not look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.names import DESTINATION_NAMESPACE
from warmroute.doctor.envoy.ask import to_clusters
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Cluster, ExtProc, Facts, Route


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare what a processor may set with what the cluster behind it goes by."""
    for passage, cluster in to_clusters(facts, context):
        for _, entry, ext_proc in passage.processors:
            yield from _compare(entry.where, passage.route, ext_proc, cluster)


def _compare(where: str, route: Route, ext_proc: ExtProc, cluster: Cluster) -> Iterator[Finding]:
    policy = cluster.policy
    namespaces = {source.partition("/")[0] for source in policy.metadata_sources}
    headers = {*policy.header_sources, cluster.destination_header} - {""}
    if headers and headers <= route.removes:
        yield Finding(
            Severity.WARNING,
            f"{route.where}.request_headers_to_remove",
            f"{', '.join(sorted(headers))}, although {cluster.name} goes by it",
            why="The route removes headers after the filters and before a host is chosen: what the processor "
            "set is gone.",
            fix="Remove it in `early_header_mutation_extensions` instead.",
        )
    if headers or namespaces & ext_proc.receives:
        return
    policy_at = f"{cluster.where}.load_balancing_policy"
    if DESTINATION_NAMESPACE in ext_proc.receives:
        yield Finding(Severity.WARNING, policy_at, f"{policy.name}, although ext_proc sets picks in metadata")
    elif namespaces:
        named = ", ".join(sorted(namespaces))
        yield Finding(
            Severity.WARNING,
            f"{where}.metadata_options.receiving_namespaces",
            f"without {named}, although {cluster.name} goes by that metadata",
            fix=f"`metadata_options: {{receiving_namespaces: {{untyped: [{named}]}}}}`.",
        )
    else:
        yield Finding(
            Severity.NOTE, policy_at, f"{policy.name}: an external processor cannot choose the endpoint here"
        )


RULE = Rule(
    title="an external processor before a cluster that does not go by its picks",
    why="Each request waits for the processor, and its pick has no effect.",
    fix="`envoy.load_balancing_policies.override_host` with the source metadata envoy.lb / "
    "x-gateway-destination-endpoint and Maglev as its fallback.",
    check=check,
)
