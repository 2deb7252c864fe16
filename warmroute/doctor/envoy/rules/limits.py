"""Limits on the size and the time of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.queries import engine_passages, p99_seconds, request_passages
from warmroute.doctor.rule import Finding, Severity, rule
from warmroute.doctor.units import seconds, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.envoy.facts import Facts, Passage
    from warmroute.doctor.rule import Context


@rule(
    title="a limit on buffered bodies below the longest prompt",
    why="Envoy answers 413 to a body that it must buffer whole and that is longer than the limit.",
    fix="Raise the limit, or send long bodies over a route with a content-length match whose ext_proc "
    "override is request_header_mode SEND with request_body_mode BUFFERED_PARTIAL and which disables the "
    "buffer filter.",
)
def buffer_limit(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare each limit with the longest body that can meet it."""
    for passage in request_passages(facts, context):
        longest = min(context.longest_prompt_bytes, passage.route.longest_body_bytes or 1 << 62)
        for where, limit in _buffer_limits(passage):
            if limit is not None and limit < longest:
                what = f"{size(limit)} at most, but bodies of up to {size(longest)} come here"
                yield Finding(Severity.ERROR, where, what)


def _buffer_limits(passage: Passage) -> Iterator[tuple[str, int | None]]:
    """The buffer limits; the buffer filter's own limit replaces the listener's."""
    buffers = [entry for entry in passage.filters if entry.kind == "buffer"]
    for entry in buffers:
        yield f"{entry.where}.max_request_bytes", entry.buffer_bytes
    if not buffers and any(ext_proc.mode.request_body == "BUFFERED" for _, _, ext_proc in passage.processors):
        own = passage.route.buffer_bytes
        yield (
            (f"{passage.route.where}.request_body_buffer_limit", own)
            if own is not None
            else (passage.manager.buffer_where, passage.manager.buffer_bytes)
        )


@rule(
    title="the buffer filter behind an ext_proc that gets the leading part",
    why="The buffer filter raises the limit while the request is paused at the old one: Envoy 1.40 then "
    "never reads the rest, and the request hangs.",
    fix="Disable the buffer filter on this route (`BufferPerRoute: {disabled: true}`).",
)
def leading_part_behind_buffer(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find the buffer filter behind a processor that gets the leading part."""
    for passage in request_passages(facts, context):
        for position, _, ext_proc in passage.processors:
            behind = [entry for entry in passage.filters[position + 1 :] if entry.kind == "buffer"]
            if ext_proc.mode.request_body == "BUFFERED_PARTIAL" and behind:
                yield Finding(
                    Severity.ERROR,
                    passage.route.where,
                    f"{behind[0].name} is on, behind ext_proc with request_body_mode BUFFERED_PARTIAL",
                )


@rule(
    title="WebSocket upgrades behind filters that read bodies",
    why="An upgrade's body does not end: the handshake never completes, or frames never arrive.",
    fix="A route that matches `upgrade` ahead of the others and turns the buffer filter off and ext_proc "
    "off or to request_body_mode NONE, or a filter chain of its own in `upgrade_configs`.",
)
def upgrade_behind_buffer(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find passages of upgrades with a filter that reads bodies."""
    for passage in engine_passages(facts, context):
        if not passage.upgrade:
            continue
        for entry in passage.filters:
            if entry.kind == "buffer":
                yield Finding(Severity.ERROR, passage.route.where, f"{entry.name} is on for upgrades")
            elif entry.ext_proc and entry.ext_proc.mode.request_body != "NONE":
                mode = entry.ext_proc.mode.request_body
                yield Finding(
                    Severity.ERROR,
                    passage.route.where,
                    f"{entry.name} with request_body_mode {mode} for upgrades",
                )


_SHORT_ROUTE_SECONDS: Final = 60.0
_LONG_ROUTE_SECONDS: Final = 300.0
"""Some thousands of tokens at the pace of a loaded engine."""


@rule(
    title="a route's time limit under the P99 of whole answers (15 s by default)",
    why="The limit covers the answer to its last token: slow answers get 504, token streams are cut.",
    fix="`timeout: 0s`, and `stream_idle_timeout` against silence.",
)
def route_timeout(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare the time limit of each route, 15 s where none is set, with P99 or with long answers."""
    for passage in request_passages(facts, context):
        route = passage.route
        limit = route.timeout_seconds
        if not limit:
            continue
        p99 = p99_seconds(facts, context, route.cluster)
        shown = seconds(limit) if route.timeout_is_set else f"none is set, so {seconds(limit)}"
        if p99 is not None and limit <= p99:
            severity, what = Severity.ERROR, f"{shown}, under the P99 of {seconds(p99)}"
        elif not route.timeout_is_set:
            severity, what = Severity.ERROR, shown
        elif p99 is None and limit < _SHORT_ROUTE_SECONDS:
            severity, what = Severity.WARNING, shown
        elif p99 is None and limit < _LONG_ROUTE_SECONDS:
            severity, what = Severity.NOTE, f"{shown}; answers of thousands of tokens take longer"
        else:
            continue
        yield Finding(severity, f"{route.where}.route.timeout", what)


_SHORT_IDLE_SECONDS: Final = 60.0
_QUIET_SOCKET_SECONDS: Final = 600.0
_SHORT_UPLOAD_SECONDS: Final = 30.0


@rule(
    title="idle limits under a long prefill, a long answer that is not streamed, or a quiet WebSocket",
    why="Waiting in the engine's queue, a long prefill and an answer that is not streamed are all silence.",
    fix="`stream_idle_timeout` above the longest silence, for example 3600s.",
)
def idle_timeout(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at how long a request, an answer or a WebSocket may be silent, and how long a request may take."""
    for passage in engine_passages(facts, context):
        where, limit = _idle_limit(passage)
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
        elif limit < _SHORT_IDLE_SECONDS:
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


def _idle_limit(passage: Passage) -> tuple[str, float]:
    """The route's limit; without one, the connection manager's."""
    if passage.route.idle_seconds is not None:
        return f"{passage.route.where}.route.idle_timeout", passage.route.idle_seconds
    return f"{passage.manager.where}.stream_idle_timeout", passage.manager.stream_idle_seconds


_LONG_STREAM_SECONDS: Final = 3600.0


@rule(
    title="`max_stream_duration` under an hour",
    why="Token streams and WebSockets are cut in the middle, however busy they are.",
    fix="Leave `max_stream_duration` out for LLM routes; `stream_idle_timeout` finds those that are dead.",
)
def stream_duration(facts: Facts, context: Context) -> Iterator[Finding]:
    """Look at `max_stream_duration` of routes, connection managers and clusters."""
    for passage in engine_passages(facts, context):
        p99 = p99_seconds(facts, context, passage.route.cluster)
        for where, limit in _stream_limits(facts, passage):
            if 0 < limit < _LONG_STREAM_SECONDS:
                fatal = p99 is not None and limit <= p99
                yield Finding(
                    Severity.ERROR if fatal else Severity.WARNING,
                    where,
                    f"{seconds(limit)}, under the P99 of {seconds(p99)}" if fatal and p99 else seconds(limit),
                )


def _stream_limits(facts: Facts, passage: Passage) -> Iterator[tuple[str, float]]:
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


@rule(
    title="`per_try_timeout` under the P99 of whole answers",
    why="An answer that is not streamed shows nothing, not even headers, until it is complete: the attempt "
    "is given up, and its work is lost or done again.",
    fix="A limit above the slowest answer that is not streamed, or none.",
)
def per_try_timeout(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare each attempt's limit with P99, if known."""
    for passage in request_passages(facts, context):
        retry = passage.route.retry
        p99 = p99_seconds(facts, context, passage.route.cluster)
        if retry and p99 is not None and 0 < retry.per_try_seconds <= p99:
            yield Finding(
                Severity.WARNING,
                f"{retry.where}.per_try_timeout",
                f"{seconds(retry.per_try_seconds)}, under the P99 of {seconds(p99)}",
            )
