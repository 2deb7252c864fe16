"""Rules and proxies: the types that every proxy of the doctor shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from warmroute.doctor.context import Context
    from warmroute.doctor.finding import Finding

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Facts]):
    """One trap: its check, the harm that it does, and the remedy."""

    title: str
    """What the rule looks for, in a few words."""
    why: str
    fix: str
    check: Callable[[Facts, Context], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Proxy(Generic[Facts]):
    """One kind of proxy: the reader of its configuration, and the rules that apply to it."""

    read: Callable[[Any, Any, Any], Facts]
    """Turns its configuration, the states of its upstreams and its statistics, each as plain data, into
    facts. The last two may be None. Raises `DoctorError`, also when there is nothing to judge."""
    looked_at: Callable[[Facts, Context], Mapping[str, int]]
    """Counts of the examined parts, by plural noun: no finding among no routes proves nothing."""
    rules: Mapping[str, Rule[Facts]]

    def examine(self, facts: Facts, context: Context) -> list[Finding]:
        """Run every rule. The worst findings come first, equal ones in the order of the rules."""
        findings = [
            replace(finding, rule=name, why=finding.why or rule.why, fix=finding.fix or rule.fix)
            for name, rule in self.rules.items()
            for finding in dict.fromkeys(rule.check(facts, context))
        ]
        return sorted(findings, key=lambda finding: -finding.severity)
