"""Long bodies that are never read to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import bodies
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find the buffer filter behind a processor that gets the leading part."""
    for passage in bodies(facts, context):
        for position, _, ext_proc in passage.processors:
            behind = [entry for entry in passage.filters[position + 1 :] if entry.kind == "buffer"]
            if ext_proc.mode.request_body == "BUFFERED_PARTIAL" and behind:
                yield Finding(
                    Severity.ERROR,
                    passage.route.where,
                    f"{behind[0].name} is on, behind ext_proc with request_body_mode BUFFERED_PARTIAL",
                )


RULE = Rule(
    title="the buffer filter behind an ext_proc that gets the leading part",
    why="The buffer filter raises the limit while the request is paused at the old one: Envoy 1.40 then "
    "never reads the rest, and the request hangs.",
    fix="Disable the buffer filter on this route (`BufferPerRoute: {disabled: true}`).",
    check=check,
)
