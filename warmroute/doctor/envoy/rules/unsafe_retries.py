"""Retries of requests that may have been worked on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.ask import bodies
from warmroute.doctor.finding import Finding, Severity
from warmroute.doctor.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.doctor.context import Context
    from warmroute.doctor.envoy.facts import Facts, Retry

_UNSAFE: Final = frozenset(
    {"5xx", "gateway-error", "reset", "retriable-4xx", "cancelled", "deadline-exceeded", "internal"}
)
_BY_STATUS: Final = "retriable-status-codes"
_REFUSALS: Final = frozenset({429, 503})
"""What an engine answers before it does any work."""
_KEY: Final = "idempotency-key"


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    """Find conditions that repeat a request after its engine may have begun, without an idempotency key."""
    for passage in bodies(facts, context):
        retry = passage.route.retry
        if retry is None or not retry.times or any(name.endswith(_KEY) for name in passage.route.adds):
            continue
        if unsafe := _unsafe(retry):
            yield Finding(Severity.WARNING, f"{retry.where}.retry_on", ", ".join(sorted(unsafe)))


def _unsafe(retry: Retry) -> set[str]:
    conditions = set(retry.on & _UNSAFE)
    if _BY_STATUS in retry.on and (codes := retry.status_codes - _REFUSALS):
        conditions.add(f"{_BY_STATUS} ({', '.join(str(code) for code in sorted(codes))})")
    return conditions


RULE = Rule(
    title="retries of requests that may have had an effect",
    why="A POST that failed late has cost an engine its work, and perhaps used tools or been billed: a retry "
    "does it again, and under overload it doubles the load.",
    fix="`retry_on: connect-failure,refused-stream,reset-before-request`, or an idempotency key that the "
    "engines honour.",
    check=check,
)
