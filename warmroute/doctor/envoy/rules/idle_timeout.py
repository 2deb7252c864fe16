"""Silences that Envoy takes for dead requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import p99_seconds, seconds, ways
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts, Passage

_SHORT_SECONDS: Final = 60.0
_QUIET_SOCKET_SECONDS: Final = 600.0
_SHORT_UPLOAD_SECONDS: Final = 30.0


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at how long a request, an answer or a WebSocket may be silent, and how long a request may take."""
    for passage in ways(facts, context):
        where, limit = _limit(passage)
        p99 = p99_seconds(facts, context, passage.route.cluster)
        if not limit:
            pass
        elif passage.upgrade:
            if limit < _QUIET_SOCKET_SECONDS:
                yield Finding(
                    Severity.NOTE, where, f"WebSockets that are quiet for {seconds(limit)} are closed"
                )
        elif p99 is not None and limit <= p99:
            yield Finding(Severity.ERROR, where, f"{seconds(limit)}, under the P99 of {seconds(p99)}")
        elif limit < _SHORT_SECONDS:
            yield Finding(Severity.WARNING, where, seconds(limit))
        upload = passage.manager.request_seconds
        if 0 < upload < _SHORT_UPLOAD_SECONDS and not passage.upgrade:
            yield Finding(
                Severity.WARNING,
                f"{passage.manager.where}.request_timeout",
                seconds(upload),
                why="A long prompt over a slow line takes longer than this to arrive whole: 408.",
                fix="Leave `request_timeout` out, or allow minutes.",
            )


def _limit(passage: Passage) -> tuple[str, float]:
    """The route's limit, where it has one, else the connection manager's."""
    if passage.route.idle_seconds is not None:
        return f"{passage.route.where}.route.idle_timeout", passage.route.idle_seconds
    return f"{passage.manager.where}.stream_idle_timeout", passage.manager.stream_idle_seconds


RULE = Rule(
    title="idle limits under a long prefill, a long answer that is not streamed, or a quiet WebSocket",
    why="Waiting in the engine's queue, a long prefill and an answer that is not streamed are all silence.",
    fix="`stream_idle_timeout` above the longest silence, for example 3600s.",
    check=check,
)
