"""Attempts that end before a slow answer begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.doctor.envoy.ask import bodies, p99_seconds, seconds
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Compare each attempt's limit with P99, if known."""
    for passage in bodies(facts, context):
        retry = passage.route.retry
        p99 = p99_seconds(facts, context, passage.route.cluster)
        if retry and p99 is not None and 0 < retry.per_try_seconds <= p99:
            yield Finding(
                Severity.WARNING,
                f"{retry.where}.per_try_timeout",
                f"{seconds(retry.per_try_seconds)}, under the P99 of {seconds(p99)}",
            )


RULE = Rule(
    title="`per_try_timeout` under the P99 of whole answers",
    why="An answer that is not streamed shows nothing, not even headers, until it is complete: the attempt "
    "is given up, and its work is lost or done again.",
    fix="A limit above the slowest answer that is not streamed, or none.",
    check=check,
)
