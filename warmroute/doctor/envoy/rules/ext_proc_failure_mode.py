"""Requests that fail because their external processor is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import processors
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find processors without `failure_mode_allow`."""
    for passage, entry, ext_proc in processors(facts, context):
        where = f"{entry.where}.failure_mode_allow"
        if not ext_proc.failure_mode_allow:
            yield Finding(Severity.ERROR, where, "false, or not set")
        elif ext_proc.mode.request_body == "FULL_DUPLEX_STREAMED":
            yield Finding(
                Severity.NOTE,
                passage.route.where,
                "failure_mode_allow with request_body_mode FULL_DUPLEX_STREAMED",
                why="Once the processor has taken a piece of the body, Envoy cannot go on without it: a "
                "processor that ends in the middle makes requests fail.",
                fix="request_body_mode BUFFERED, and BUFFERED_PARTIAL for long bodies.",
            )


RULE = Rule(
    title="ext_proc with `failure_mode_allow: false`",
    why="While the processor is away or too slow, every request fails with a 500 or 504, although the "
    "engines are well.",
    fix="`failure_mode_allow: true`: requests then go by weights.",
    check=check,
)
