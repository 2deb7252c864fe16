"""From a pick to the endpoint: filters, load balancing, headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.names import DESTINATION_NAMESPACE, REMOVED_REQUEST_HEADERS
from warmroute.doctor.envoy.queries import (
    counter_sum,
    engine_passages,
    is_ours,
    passages_with_cluster,
    pools,
    request_passages,
)
from warmroute.doctor.rule import Finding, Severity, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.envoy.facts import Cluster, ExtProc, Facts, Passage, Route
    from warmroute.doctor.rule import Context


_GATES: Final = frozenset(
    {
        "admission_control",
        "api_key_auth",
        "basic_auth",
        "cors",
        "csrf",
        "ext_authz",
        "jwt_authn",
        "local_ratelimit",
        "oauth2",
        "rate_limit_quota",
        "ratelimit",
        "rbac",
    }
)


@rule(
    title="authentication, rate limits and decompression behind ext_proc",
    why="Requests that are going to be refused are buffered, read and picked for first, and count as load "
    "that never comes.",
    fix="Put it before ext_proc; the order is: gates, ext_proc, buffer, router.",
)
def filter_order(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find gates and decompressors behind the first external processor."""
    for passage in request_passages(facts, context):
        first = next((position for position, _, _ in passage.processors), None)
        for entry in passage.filters[first + 1 :] if first is not None else ():
            if entry.kind in _GATES:
                yield Finding(Severity.WARNING, entry.where, f"{entry.kind} stands behind ext_proc")
            elif entry.kind == "decompressor":
                yield Finding(
                    Severity.NOTE,
                    entry.where,
                    "decompressor stands behind ext_proc",
                    why="The processor gets compressed bodies and cannot read their prompts.",
                    fix="Put it before ext_proc.",
                )


_WHOLE: Final = frozenset({"BUFFERED", "BUFFERED_PARTIAL"})


@rule(
    title="ext_proc reads the body, and the headers do not wait for it",
    why="The router chooses a host as soon as it sees the headers, before the body is read: the pick comes "
    "too late and is ignored.",
    fix="The filter `envoy.filters.http.buffer` right behind ext_proc, or `request_header_mode: SEND`.",
)
def pick_too_late(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find processors that get a body, with nothing that holds the headers back meanwhile."""
    for passage in request_passages(facts, context):
        for position, _, ext_proc in passage.processors:
            mode = ext_proc.mode
            if mode.request_headers != "SKIP" or mode.request_body not in _WHOLE:
                continue
            if any(entry.kind == "buffer" for entry in passage.filters[position + 1 :]):
                continue
            early = any(entry.kind == "buffer" for entry in passage.filters[:position])
            what = f"request_header_mode SKIP with request_body_mode {mode.request_body}, "
            what += (
                "and the buffer filter stands before ext_proc" if early else "and no buffer filter behind it"
            )
            yield Finding(Severity.WARNING, passage.route.where, what)


@rule(
    title="an external processor before a cluster that does not go by its picks",
    why="Each request waits for the processor, and its pick has no effect.",
    fix="`envoy.load_balancing_policies.override_host` with the source metadata envoy.lb / "
    "x-gateway-destination-endpoint and Maglev as its fallback.",
)
def pick_ignored(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare what a processor may set with what the cluster behind it goes by."""
    for passage, cluster in passages_with_cluster(facts, context):
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
        names = ", ".join(sorted(namespaces))
        yield Finding(
            Severity.WARNING,
            f"{where}.metadata_options.receiving_namespaces",
            f"without {names}, although {cluster.name} goes by that metadata",
            fix=f"`metadata_options: {{receiving_namespaces: {{untyped: [{names}]}}}}`.",
        )
    else:
        yield Finding(
            Severity.NOTE, policy_at, f"{policy.name}: an external processor cannot choose the endpoint here"
        )


_PIECEMEAL: Final = frozenset({"BUFFERED_PARTIAL", "STREAMED", "FULL_DUPLEX_STREAMED"})
"""Modes in which a body is on its way before it is whole: mostly it cannot be sent again, or not safely."""
_COVERS_REFUSAL: Final = frozenset({"connect-failure", "5xx", "gateway-error", "reset"})


@rule(
    title="picks without a retry on refused connections",
    why="`override_host` looks neither at outlier ejection nor at health: a pick of an engine that has "
    "just died is tried, and fails.",
    fix="`retry_on: connect-failure,refused-stream,reset-before-request`: retries walk on along the list "
    "of the pick, then go by weights.",
)
def dead_picks(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find routes with picks that do not retry a refused connection."""
    for passage, cluster in passages_with_cluster(facts, context):
        picked = cluster.policy.name == "override_host" and passage.processors
        retry = passage.route.retries
        covered = retry is not None and retry.on & _COVERS_REFUSAL
        whole = all(ext_proc.mode.request_body not in _PIECEMEAL for _, _, ext_proc in passage.processors)
        if picked and whole and not covered:
            yield Finding(
                Severity.WARNING, f"{passage.route.where}.route.retry_policy", "no retry on connect-failure"
            )


_STARVING: Final = frozenset({"round_robin", "least_request"})
_OFTEN_SECONDS: Final = 60.0
_ENOUGH_UPTIME_SECONDS: Final = 600.0
"""A younger Envoy has not shown yet how often updates come."""


@rule(
    title="round_robin, least_request or random under weights that change",
    why="Each update builds a new schedule that begins with the heavy endpoints: light ones starve. "
    "Measured at 20 requests and 10 updates a second: shares of 51/49/0 and 76/24/0 for weights of 70/20/10.",
    fix="Maglev (72/18/9 without and 69/19/12 with updates), by itself or as the fallback of override_host.",
)
def weights_under_updates(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find pools with weights from EDS whose policy restarts at each update, or ignores weights."""
    for cluster in pools(facts, context):
        policy = cluster.policy.by_weights
        if cluster.discovery != "EDS":
            continue
        where = f"{cluster.where}.load_balancing_policy"
        if policy in _STARVING:
            yield Finding(*_restarts(facts, cluster, where))
        elif policy == "random" and _weighted(cluster):
            yield Finding(
                Severity.WARNING, where, "random, although endpoints have weights", why="It ignores weights."
            )


def _restarts(facts: Facts, cluster: Cluster, where: str) -> tuple[Severity, str, str]:
    policy = cluster.policy.by_weights
    uptime = facts.stats.of("server.uptime")
    updates = counter_sum(facts, cluster.name, "update_success")
    if uptime >= _ENOUGH_UPTIME_SECONDS:
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


_LEAST_WEIGHT: Final = 10
"""Slow start begins with a tenth by default."""


@rule(
    title="slow start over endpoint weights below 10",
    why="A tenth of such a weight is less than 1: a new endpoint gets nothing, even after its time.",
    fix="Weights in the hundreds, or slow start in the control plane (Warmroute's `pools.joining`) instead.",
)
def slow_start(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find pools with slow start whose lightest endpoint would have a share of less than 1."""
    for cluster in pools(facts, context):
        if not cluster.policy.slow_start:
            continue
        where = f"{cluster.where}.slow_start_config"
        if cluster.weights is None:
            yield Finding(Severity.NOTE, where, "slow start; the endpoints' weights are unknown")
        elif cluster.weights and (least := min(cluster.weights)) < _LEAST_WEIGHT:
            yield Finding(
                Severity.WARNING, where, f"slow start, and the lightest endpoint has weight {least}"
            )


@rule(
    title="routing headers are not removed at the door",
    why="Any client can choose an engine, pin a GPU, or probe another tenant's cache: when the processor "
    "is away or sets no pick, the client's own header counts.",
    fix="Remove them in the connection manager's `early_header_mutation_extensions`: removal on the route "
    "takes the processor's own header away as well. Better, take picks from dynamic metadata, which no "
    "client can set.",
)
def header_removal(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find headers that steer, or that engines believe, and that a client can send."""
    for passage in engine_passages(facts, context):
        early = _cleared_early(passage)
        removed = early | passage.route.removes
        where = passage.manager.where
        steering = sorted((_matching(passage) - early) | (_choosing(facts, passage) - removed))
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


def _matching(passage: Passage) -> set[str]:
    """Headers that choose the route, the cluster or the hash here and that only a processor or we may set."""
    route = passage.route
    names = {*route.hash_headers, *(match.name for match in route.headers)} & set(REMOVED_REQUEST_HEADERS)
    return names | ({route.cluster_header} - {""} if passage.processors else set())
