"""Whole answers that take longer than the route allows: 504, or a stream that is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import bodies, p99_seconds, seconds
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_SHORT_SECONDS: Final = 60.0
_ENOUGH_SECONDS: Final = 300.0
"""Some thousands of tokens at the pace of a loaded engine."""


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare the time limit of each route, 15 s where none is set, with P99 or with long answers."""
    for passage in bodies(facts, context):
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
        elif p99 is None and limit < _SHORT_SECONDS:
            severity, what = Severity.WARNING, shown
        elif p99 is None and limit < _ENOUGH_SECONDS:
            severity, what = Severity.NOTE, f"{shown}; answers of thousands of tokens take longer"
        else:
            continue
        yield Finding(severity, f"{route.where}.route.timeout", what)


RULE = Rule(
    title="a route's time limit under the P99 of whole answers (15 s by default)",
    why="The limit covers the answer to its last token: slow answers get 504, token streams are cut.",
    fix="`timeout: 0s`, and `stream_idle_timeout` against silence.",
    check=check,
)
