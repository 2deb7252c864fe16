"""Diagnosis: facts to a named cause with its evidence, by the decision table. Pure, over the whole fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xds_server.skew.rules import RULES, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.skew.layout import FloatArray, IntArray, Layout
    from xds_server.skew.rules import Rule

_ESTIMATES: Final = frozenset({"kv_fragmentation_estimate"})


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of one endpoint, or of a pool if `address` is None."""

    pool: str
    address: str | None
    cause: str
    healthy: bool
    evidence: Mapping[str, float]
    """Known facts by name."""
    advice: str
    missing: tuple[str, ...] = ()
    """Facts that an earlier rule lacked."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "pool": self.pool,
            "address": self.address,
            "cause": self.cause,
            "healthy": self.healthy,
            "evidence": dict(self.evidence),
            "estimates": sorted(_ESTIMATES.intersection(self.evidence)),
            "advice": self.advice,
            "missing": list(self.missing),
        }


def diagnose(layout: Layout, facts: Mapping[str, FloatArray]) -> tuple[Diagnosis, ...]:
    """Name the cause of every column."""
    columns = layout.columns
    chosen: IntArray = np.full(columns, len(RULES) - 1, dtype=np.intp)
    open_ = np.ones(columns, dtype=np.bool_)
    missing: dict[str, np.ndarray[Any, np.dtype[np.bool_]]] = {}
    for number, rule in enumerate(RULES):
        matches = [test.holds(facts) for test in rule.tests]
        unknown = [np.isnan(facts[test.fact]) for test in rule.tests]
        # A test that fails decides its rule, whatever the unknown facts are.
        undecided = open_ & np.logical_and.reduce(
            [here | lacking for here, lacking in zip(matches, unknown, strict=True)] or [np.ones_like(open_)]
        )
        for test, lacking in zip(rule.tests, unknown, strict=True):
            missing[test.fact] = missing.get(test.fact, np.zeros_like(open_)) | (undecided & lacking)
        matched = open_ & np.logical_and.reduce(matches or [np.ones_like(open_)])
        chosen[matched] = number
        open_ &= ~matched
    return tuple(
        _diagnosis(layout, facts, missing, RULES[number], column)
        for column, number in enumerate(chosen.tolist())
    )


def _diagnosis(
    layout: Layout,
    facts: Mapping[str, FloatArray],
    missing: Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]],
    rule: Rule,
    column: int,
) -> Diagnosis:
    scope = layout.scopes[column]
    figures = {name: float(facts[name][column]) for name in rule.evidence}
    evidence = {name: float(f"{value:.6g}") for name, value in figures.items() if value == value}
    lacking = tuple(name for name, where in missing.items() if where[column])
    return Diagnosis(scope.pool, scope.address, rule.cause, rule.healthy, evidence, rule.advice, lacking)


__all__ = ["RULES", "UNKNOWN", "Diagnosis", "diagnose"]
