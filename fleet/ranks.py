"""Data-parallel ranks behind endpoints, where picks choose among them (docs/decisions/0034)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RANK_SIGNALS: Final = (
    "queue_depth",
    "running",
    "memory_used_ratio",
    "first_tokens_total",
    "first_token_seconds_total",
)
"""Signals that each rank has for itself."""
PARTED_SIGNALS: Final = (
    "kv_capacity_tokens",
    "prefilling_mean",
    "generation_tokens_per_second",
    "batch_limit",
)
"""Signals of an endpoint that count for its ranks in equal parts."""
MOST_RANKS: Final = 256
"""Of an endpoint."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolRanks:
    """The ranks of a pool whose endpoints all have the same number."""

    named: bool
    """Whether requests may name their rank: every endpoint that Envoy may choose has that number."""
    values: NDArray[np.float64]
    """By `RANK_SIGNALS`, endpoint in the pool's order, and rank; NaN is unknown."""

    @property
    def count(self) -> int:
        """Ranks of an endpoint, 2 or more."""
        return int(self.values.shape[2])


def rank_name(address: str, rank: int) -> str:
    """Return the name of an endpoint's rank: no address has the mark."""
    return f"{address}#{rank}"


def address_of_rank(name: str) -> str:
    """Return the address of the endpoint that a rank's or an endpoint's name belongs to."""
    return name.partition("#")[0]
