"""Token streams that pass through the external processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import processors
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_BUFFERED: Final = frozenset({"BUFFERED", "BUFFERED_PARTIAL"})


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find response bodies that are buffered, or that cost one message a chunk."""
    for passage, entry, ext_proc in processors(facts, context):
        mode = ext_proc.mode.response_body
        what = f"response_body_mode {mode} of {entry.name}"
        if mode in _BUFFERED:
            yield Finding(Severity.ERROR, passage.route.where, what)
        elif mode != "NONE":
            yield Finding(
                Severity.NOTE,
                passage.route.where,
                what,
                why="Each token of each answer waits for a round trip to the processor.",
            )


RULE = Rule(
    title="response bodies go through ext_proc",
    why="Envoy holds a token stream back until it has ended or its buffer is full: clients see nothing, then "
    "everything, and long answers fail.",
    fix="`response_body_mode: NONE`; the access log tells what became of each request.",
    check=check,
)
