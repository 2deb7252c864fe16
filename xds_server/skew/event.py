"""A detected skew, and the actions that it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SkewEvent:
    """One skew of one endpoint or pool. Times are seconds on the clock of `SkewWatch.observe`."""

    kind: str
    """A key of `DETECTORS`."""
    pool: str
    address: str | None
    """None: the pool as a whole."""
    began_at: float
    evidence: Mapping[str, float]
    """Name to figure at its begin."""
    hint: str
    ended_at: float | None = None
    """None while it lasts."""

    @property
    def where(self) -> str:
        """For logs and people."""
        return f"pool {self.pool}" if self.address is None else f"{self.address} (pool {self.pool})"

    def as_json(self, now: float) -> dict[str, Any]:
        """Return plain values; ages in seconds instead of times of a private clock."""
        return {
            "kind": self.kind,
            "pool": self.pool,
            "address": self.address,
            "began_seconds_ago": round(now - self.began_at, 3),
            "ended_seconds_ago": None if self.ended_at is None else round(now - self.ended_at, 3),
            "evidence": dict(self.evidence),
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions that the active skews ask for. A hint changes nothing by itself."""

    sampling_ratio_floor: float = 0.0
    """Least share of picks that get a span; 0 asks for nothing."""
    batching_hint: frozenset[str] = frozenset()
    """Addresses whose batches have collapsed."""
    warmup_hint: frozenset[str] = frozenset()
    """Addresses with a burst of long contexts, whose shared prefixes are worth warming."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "sampling_ratio_floor": self.sampling_ratio_floor,
            "batching_hint": sorted(self.batching_hint),
            "warmup_hint": sorted(self.warmup_hint),
        }
