"""Rules, their findings, and the facts about traffic that a configuration does not contain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEFAULT_LONGEST_PROMPT_BYTES: Final = 4 * 1024 * 1024
"""About a million tokens of text, or a few images."""
Facts = TypeVar("Facts")


class DoctorError(WarmrouteError):
    """Nothing can be examined; the text gives the reason.

    `document` names the input at fault: `configuration`, `clusters`, `stats`; "" if the text names it.
    """

    def __init__(self, text: str, document: str = "") -> None:
        super().__init__(text)
        self.document = document


class Severity(IntEnum):
    """The harm of a finding; the higher, the worse."""

    NOTE = 1
    """Worth knowing: a missed gain, or harm only in cases that the configuration does not show."""
    WARNING = 2
    """Requests get slow, go to the wrong engine, or fail under load or when a part is away."""
    ERROR = 3
    """Ordinary LLM requests fail or hang."""

    @property
    def word(self) -> str:
        """In small letters, as users write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Context:
    """Traffic as the operator described it."""

    longest_prompt_bytes: int = DEFAULT_LONGEST_PROMPT_BYTES
    """The longest request body that must pass."""
    p99_seconds: float | None = None
    """P99 of a whole answer's time; None: taken from the proxy's own statistics, if present."""
    pools: frozenset[str] | None = None
    """The clusters of engines; None: every cluster that a route of requests leads to."""
    ports: frozenset[int] | None = None
    """The ports of Envoy's listeners, for a proxy in front of it; None: every upstream counts."""
    ping_permits: Mapping[str, float] = field(default_factory=dict)
    """Cluster to the shortest time between pings that its gRPC server permits, in seconds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One harmful place in a configuration."""

    severity: Severity
    where: str
    """Path in the proxy's own terms: `clusters[pool].circuit_breakers`."""
    what: str
    """The content of that place, with its figures."""
    rule: str = ""
    """Name of the rule; `examine` fills it in."""
    why: str = ""
    """The effect on LLM traffic; empty: the rule's own reason."""
    fix: str = ""
    """The replacement; empty: the rule's own remedy."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[Facts]):
    """One trap: its check, the harm that it does, and the remedy."""

    title: str
    """What the rule looks for, in a few words."""
    why: str
    fix: str
    check: Callable[[Facts, Context], Iterable[Finding]]


def rule(
    *, title: str, why: str, fix: str
) -> Callable[[Callable[[Facts, Context], Iterable[Finding]]], Rule[Facts]]:
    """Make a rule of the check below it."""
    return lambda check: Rule(title, why, fix, check)


def examine(rules: Mapping[str, Rule[Facts]], facts: Facts, context: Context) -> list[Finding]:
    """Run every rule. The worst findings come first, equal ones in the order of the rules."""
    findings = [
        replace(finding, rule=name, why=finding.why or rule.why, fix=finding.fix or rule.fix)
        for name, rule in rules.items()
        for finding in dict.fromkeys(rule.check(facts, context))
    ]
    return sorted(findings, key=lambda finding: -finding.severity)
