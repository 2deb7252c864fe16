"""WebSocket handshakes behind filters that wait for a body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import ways
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find ways of upgrades on which a filter reads bodies."""
    for passage in ways(facts, context):
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


RULE = Rule(
    title="WebSocket upgrades behind filters that read bodies",
    why="An upgrade's body does not end: the handshake never completes, or frames never arrive.",
    fix="A route that matches `upgrade` ahead of the others and turns the buffer filter off and ext_proc "
    "off or to request_body_mode NONE, or a filter chain of its own in `upgrade_configs`.",
    check=check,
)
