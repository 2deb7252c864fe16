"""Bodies that reach the engine twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import bodies
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts, Route

_PIECES: Final = frozenset({"BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED"})


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find retries of what a processor has passed on in pieces, where trailers are not kept away."""
    for passage in bodies(facts, context):
        route = passage.route
        modes = {ext_proc.mode.request_body for _, _, ext_proc in passage.processors} & _PIECES
        if modes and route.retry and route.retry.times and not _without_trailers(route):
            what = f"retries with request_body_mode {', '.join(sorted(modes))}, and trailers may come"
            yield Finding(Severity.WARNING, route.where, what)


def _without_trailers(route: Route) -> bool:
    return any(match.name == "trailer" and match.present and match.inverted for match in route.headers)


RULE = Rule(
    title="retries of bodies that ext_proc passes on in pieces",
    why="A request that ends with trailers reaches the engine with its body twice where ext_proc passes "
    "the body on in pieces and the route has retries (envoyproxy/envoy issue 45470; Envoy 1.40).",
    fix="Match these routes only where the header `trailer` is absent "
    "(`{name: trailer, present_match: true, invert_match: true}`), or give them no retries.",
    check=check,
)
