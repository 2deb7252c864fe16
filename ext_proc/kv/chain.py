"""Keys of token prefixes that depend on the tokens alone, not on their division into blocks.

The key of a prefix is a sum over its tokens of (mixed token x the position's own odd number), modulo 2^64:
a multilinear hash. So a block's key follows from its parent's key and its own tokens, and engines with blocks
of different sizes share one pass of numpy over a prompt. Two different prefixes share a key with a chance of
about 2^-64; that would cost a wrong guess of warmth and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TOKENS: Final = 1 << 21
"""Longer prefixes have no key."""
LOW_64: Final = (1 << 64) - 1
_INITIAL_POSITIONS: Final = 4096
_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function (Steele, Lea and Flood, 2014): every bit depends on every bit."""
    values = values + _GAMMA
    values ^= values >> np.uint64(30)
    values *= _MIX_1
    values ^= values >> np.uint64(27)
    values *= _MIX_2
    values ^= values >> np.uint64(31)
    return values


class Chain:
    """The positions' factors, as far as the longest prompt reaches; 8 bytes a token."""

    def __init__(self) -> None:
        self._positions = _position_factors(_INITIAL_POSITIONS)

    def root(self, adapter: str) -> int:
        """Return the key of the empty prefix under an adapter ("" for none)."""
        return xxh3_64_intdigest(adapter.encode("utf-8", "surrogatepass"))

    def further(self, extra: bytes, position: int) -> int:
        """Return the summand for an engine's further identity of the block that begins at `position`."""
        return xxh3_64_intdigest(extra, position) if extra else 0

    def terms(self, tokens: NDArray[np.uint64], start: int) -> NDArray[np.uint64]:
        """Return each token's summand; the first token is at position `start` of the prompt.

        Raises:
            ValueError: the tokens reach beyond `MAX_TOKENS`.
        """
        end = start + len(tokens)
        if end > len(self._positions):
            if end > MAX_TOKENS:
                raise ValueError(f"{end} tokens; allowed: {MAX_TOKENS}")
            self._positions = _position_factors(min(MAX_TOKENS, 1 << (end - 1).bit_length()))
        return _mix(tokens) * self._positions[start:end]

    def prefix_keys(self, tokens: NDArray[np.uint64], root: int) -> NDArray[np.uint64]:
        """Return the key of each prefix of 1, 2, ... tokens. Raises ValueError as `terms` does."""
        keys = np.cumsum(self.terms(tokens, 0), dtype=np.uint64)
        keys += np.uint64(root & LOW_64)
        return keys


def _position_factors(count: int) -> NDArray[np.uint64]:
    # Odd numbers lose nothing of a token in the product.
    return _mix(np.arange(1 << 40, (1 << 40) + count, dtype=np.uint64)) | np.uint64(1)
