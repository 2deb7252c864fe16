"""Buffered bodies that exceed the buffer limit: 413."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import bodies, size
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts, Passage


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare each limit with the longest body that can meet it."""
    for passage in bodies(facts, context):
        longest = min(context.longest_prompt_bytes, passage.route.longest_body_bytes or 1 << 62)
        for where, limit in _limits(passage):
            if limit is not None and limit < longest:
                what = f"{size(limit)} at most, but bodies of up to {size(longest)} come here"
                yield Finding(Severity.ERROR, where, what)


def _limits(passage: Passage) -> Iterator[tuple[str, int | None]]:
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


RULE = Rule(
    title="a limit on buffered bodies below the longest prompt",
    why="Envoy answers 413 to a body that has to be held whole and is longer than the limit.",
    fix="Raise the limit, or send long bodies over a route with a content-length match whose ext_proc "
    "override is request_header_mode SEND with request_body_mode BUFFERED_PARTIAL and which disables the "
    "buffer filter.",
    check=check,
)
