"""Connections that Envoy keeps for longer than the engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import seconds, to_clusters
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_ENGINE_SECONDS: Final = 5.0
"""Of uvicorn, in which vLLM and SGLang run."""
_COVERS: Final = frozenset({"reset-before-request", "reset", "5xx", "gateway-error"})


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find HTTP/1.1 pools with long idle times and no retry for a connection that was just closed."""
    for passage, cluster in to_clusters(facts, context):
        if cluster.http2 or 0 < cluster.idle_seconds < _ENGINE_SECONDS:
            continue
        retry = passage.route.retry
        if retry is None or not retry.times or not retry.on & _COVERS:
            shown = seconds(cluster.idle_seconds) if cluster.idle_seconds else "off"
            where = f"{cluster.where}.common_http_protocol_options.idle_timeout"
            yield Finding(
                Severity.WARNING, where, f"{shown}; engines often close after {seconds(_ENGINE_SECONDS)}"
            )


RULE = Rule(
    title="idle connections to engines outlive the engines' own keep-alive",
    why="A request that meets a connection which the engine is just closing fails with 503, now and then, on "
    "quiet pools.",
    fix="`idle_timeout: 4s` in the pool's common_http_protocol_options, and `reset-before-request` in "
    "retry_on.",
    check=check,
)
