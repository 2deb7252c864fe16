"""Weighted rendezvous hashing: replicas that know the same endpoints agree without talking.

For a prefix each endpoint draws `u = (mix(xxh3_64(address) XOR leading_hash) // 2**11 + 0.5) / 2**53` and
scores `-ln(u) / weight`; the lowest score wins. So an endpoint wins in proportion to its weight, and a
changed weight or membership moves only the prefixes that this endpoint wins or loses. `mix` is the finaliser
of SplitMix64 (Steele, Lea, Flood 2014), which makes the draws of one address independent between prefixes.
Source of the score: Schindelhauer and Schomaker, "Weighted distributed hash tables" (2005).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


def scores(
    leading_hash: int, hashes: NDArray[np.uint64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Score endpoints for a prefix; the lowest wins. All weights are above 0."""
    mixed = hashes ^ np.uint64(leading_hash & _MASK)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    draws = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    result: NDArray[np.float64] = -np.log(draws) / weights
    return result
