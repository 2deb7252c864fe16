"""Retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.facts import DEFAULT_RETRIES_AT_ONCE
from warmroute.doctor.envoy.queries import counter_sum, passages_with_cluster, request_passages
from warmroute.doctor.rule import Finding, Severity, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.envoy.facts import Facts, Retry, Route
    from warmroute.doctor.rule import Context


_UNSAFE: Final = frozenset(
    {"5xx", "gateway-error", "reset", "retriable-4xx", "cancelled", "deadline-exceeded", "internal"}
)
_BY_STATUS: Final = "retriable-status-codes"
_REFUSALS: Final = frozenset({429, 503})
"""What an engine answers before it does any work."""
_KEY: Final = "idempotency-key"


@rule(
    title="retries of requests that may have had an effect",
    why="A POST that failed late has cost an engine its work, and perhaps used tools or been billed: a retry "
    "does it again, and under overload it doubles the load.",
    fix="`retry_on: connect-failure,refused-stream,reset-before-request`, or an idempotency key that the "
    "engines honour.",
)
def unsafe_retries(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find conditions that repeat a request after its engine may have begun, without an idempotency key."""
    for passage in request_passages(facts, context):
        retry = passage.route.retries
        if retry is None or any(name.endswith(_KEY) for name in passage.route.adds):
            continue
        if unsafe := _unsafe(retry):
            yield Finding(Severity.WARNING, f"{retry.where}.retry_on", ", ".join(sorted(unsafe)))


def _unsafe(retry: Retry) -> set[str]:
    conditions = set(retry.on & _UNSAFE)
    if _BY_STATUS in retry.on and (codes := retry.status_codes - _REFUSALS):
        conditions.add(f"{_BY_STATUS} ({', '.join(str(code) for code in sorted(codes))})")
    return conditions


@rule(
    title="at most 3 retries at once, Envoy's default",
    why="When an engine dies, all requests on their way to it want a retry in the same moment: all but three "
    "fail.",
    fix="`max_retries` or a `retry_budget` in the cluster's circuit breakers.",
)
def retry_limit(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find pools with retries and without a choice of how many at once."""
    for passage, cluster in passages_with_cluster(facts, context):
        retry, breakers = passage.route.retries, cluster.breakers
        if retry is None or breakers.max_retries is not None or breakers.retry_budget:
            continue
        what = f"{DEFAULT_RETRIES_AT_ONCE} at once in the whole pool (the default)"
        if refused := counter_sum(facts, cluster.name, "upstream_rq_retry_overflow"):
            what += f", and {refused:,.0f} were refused"
        yield Finding(Severity.WARNING, f"{cluster.where}.circuit_breakers.max_retries", what)


_PIECES: Final = frozenset({"BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED"})


@rule(
    title="retries of bodies that ext_proc passes on in pieces",
    why="A request that ends with trailers reaches the engine with its body twice where ext_proc passes "
    "the body on in pieces and the route has retries (envoyproxy/envoy issue 45470; Envoy 1.40).",
    fix="Match these routes only where the header `trailer` is absent "
    "(`{name: trailer, present_match: true, invert_match: true}`), or give them no retries.",
)
def doubled_body(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find retries of what a processor has passed on in pieces, where trailers are not kept away."""
    for passage in request_passages(facts, context):
        route = passage.route
        modes = {ext_proc.mode.request_body for _, _, ext_proc in passage.processors} & _PIECES
        if modes and route.retries and not _without_trailers(route):
            what = f"retries with request_body_mode {', '.join(sorted(modes))}, and trailers may come"
            yield Finding(Severity.WARNING, route.where, what)


def _without_trailers(route: Route) -> bool:
    return any(match.name == "trailer" and match.present and match.inverted for match in route.headers)
