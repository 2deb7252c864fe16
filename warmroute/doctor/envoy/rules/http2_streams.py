"""Few streams on an HTTP/2 connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import pools, processor_clusters, ways
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_FEW: Final = 100


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at `max_concurrent_streams` of listeners, pools and external processors."""
    field = "http2_protocol_options.max_concurrent_streams"
    for manager in dict.fromkeys(passage.manager for passage in ways(facts, context)):
        limit = manager.max_concurrent_streams
        if limit is not None and limit < _FEW:
            yield Finding(Severity.WARNING, f"{manager.where}.{field}", f"{limit} a connection")
    for cluster in dict.fromkeys([*processor_clusters(facts, context), *pools(facts, context)]):
        limit = cluster.max_concurrent_streams
        if limit is not None and limit < _FEW:
            yield Finding(
                Severity.NOTE,
                f"{cluster.where}.{field}",
                f"{limit} a connection",
                why="Envoy opens a new connection for each so many requests in flight.",
            )


RULE = Rule(
    title="fewer than 100 HTTP/2 streams on a connection",
    why="An LLM request holds its stream for minutes. A gateway or client library with one connection "
    "waits, or gets REFUSED_STREAM, when so many are in flight.",
    fix="`max_concurrent_streams` of some hundreds to a thousand.",
    check=check,
)
