"""What a rule is, for any proxy."""

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
    """One trap: how it is seen, why it hurts, how it is mended."""

    title: str
    """What the rule looks for, in a few words."""
    why: str
    fix: str
    check: Callable[[Facts, Context], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Proxy(Generic[Facts]):
    """One kind of proxy: how its configuration is read, and what is looked for in it."""

    read: Callable[[Any, Any, Any], Facts]
    """From its configuration, the states of its upstreams and its statistics, each as plain data, the last
    two None where nobody gave them, to facts. Raises `DoctorError`, also where there is nothing to judge."""
    looked_at: Callable[[Facts, Context], Mapping[str, int]]
    """How many of what there was to look at, by plural: nothing found in nothing is no good news."""
    rules: Mapping[str, Rule[Facts]]

    def examine(self, facts: Facts, context: Context) -> list[Finding]:
        """Ask every rule; the worst findings come first, then in the order of the rules."""
        found = [
            replace(found, rule=name, why=found.why or rule.why, fix=found.fix or rule.fix)
            for name, rule in self.rules.items()
            for found in dict.fromkeys(rule.check(facts, context))
        ]
        return sorted(found, key=lambda finding: -finding.severity)
