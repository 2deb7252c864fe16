"""Limits on how long a stream may live at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import p99_seconds, seconds, ways
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts, Passage

_LONG_SECONDS: Final = 3600.0


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at `max_stream_duration` of routes, connection managers and clusters."""
    for passage in ways(facts, context):
        p99 = p99_seconds(facts, context, passage.route.cluster)
        for where, limit in _limits(facts, passage):
            if 0 < limit < _LONG_SECONDS:
                fatal = p99 is not None and limit <= p99
                yield Finding(
                    Severity.ERROR if fatal else Severity.WARNING,
                    where,
                    f"{seconds(limit)}, under the P99 of {seconds(p99)}" if fatal and p99 else seconds(limit),
                )


def _limits(facts: Facts, passage: Passage) -> Iterator[tuple[str, float]]:
    """The limits in force; a route's takes the place of the connection manager's."""
    if passage.route.max_stream_seconds is not None:
        yield f"{passage.route.where}.route.max_stream_duration", passage.route.max_stream_seconds
    else:
        common = f"{passage.manager.where}.common_http_protocol_options"
        yield f"{common}.max_stream_duration", passage.manager.max_stream_seconds
    if cluster := facts.clusters.get(passage.route.cluster):
        yield (
            f"{cluster.where}.common_http_protocol_options.max_stream_duration",
            cluster.max_stream_seconds,
        )


RULE = Rule(
    title="`max_stream_duration` under an hour",
    why="Token streams and WebSockets are cut in the middle, however busy they are.",
    fix="Leave `max_stream_duration` out for LLM routes; `stream_idle_timeout` finds those that are dead.",
    check=check,
)
