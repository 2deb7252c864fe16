"""Filters behind the external processor that belong before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import bodies
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts

_GATES: Final = frozenset(
    {
        "admission_control",
        "api_key_auth",
        "basic_auth",
        "cors",
        "csrf",
        "ext_authz",
        "jwt_authn",
        "local_ratelimit",
        "oauth2",
        "rate_limit_quota",
        "ratelimit",
        "rbac",
    }
)


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find gates and decompressors behind the first external processor."""
    for passage in bodies(facts, context):
        first = next((position for position, _, _ in passage.processors), None)
        for entry in passage.filters[first + 1 :] if first is not None else ():
            if entry.kind in _GATES:
                yield Finding(Severity.WARNING, entry.where, f"{entry.kind} stands behind ext_proc")
            elif entry.kind == "decompressor":
                yield Finding(
                    Severity.NOTE,
                    entry.where,
                    "decompressor stands behind ext_proc",
                    why="The processor gets compressed bodies and cannot read their prompts.",
                    fix="Put it before ext_proc.",
                )


RULE = Rule(
    title="authentication, rate limits and decompression behind ext_proc",
    why="Requests that are going to be refused are buffered, read and picked for first, and count as load "
    "that never comes.",
    fix="Put it before ext_proc; the order is: gates, ext_proc, buffer, router.",
    check=check,
)
