"""Bodies that are shown to the processor after the headers have left."""

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
    """Find STREAMED request bodies."""
    for passage, entry, ext_proc in processors(facts, context):
        if ext_proc.mode.request_body == "STREAMED":
            yield Finding(
                Severity.WARNING, passage.route.where, f"request_body_mode STREAMED of {entry.name}"
            )


RULE = Rule(
    title="ext_proc with `request_body_mode: STREAMED`",
    why="The headers leave before the first piece of the body is read, and the host with them: nothing that "
    "stands in the body can choose it.",
    fix="`request_body_mode: BUFFERED` for ordinary bodies and BUFFERED_PARTIAL for long ones.",
    check=check,
)
