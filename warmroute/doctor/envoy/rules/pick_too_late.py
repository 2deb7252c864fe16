"""Requests that leave before their pick is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import bodies
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_WHOLE: Final = frozenset({"BUFFERED", "BUFFERED_PARTIAL"})


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find processors that get a body, with nothing that holds the headers back meanwhile."""
    for passage in bodies(facts, context):
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


RULE = Rule(
    title="ext_proc reads the body, and the headers do not wait for it",
    why="The router chooses a host as soon as it sees the headers, before the body is read: the pick comes "
    "too late and is ignored.",
    fix="The filter `envoy.filters.http.buffer` right behind ext_proc, or `request_header_mode: SEND`.",
    check=check,
)
