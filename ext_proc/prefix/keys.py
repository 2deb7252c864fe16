"""Hashes of blocks as keys of a `BlockTable`, which keeps two numbers for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.prefix.table import RESERVED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_STAND_IN: Final = 0x9E37_79B9_7F4A_7C15
"""Added to the hashes that the table reserves."""


def key_of(block: int) -> int:
    """Return the key that a hash is held by: itself, but for the two that mark slots."""
    return block if block >= RESERVED else block + _STAND_IN


def keys_of(blocks: Sequence[int]) -> NDArray[np.uint64]:
    """Return the keys of many hashes."""
    keys = np.fromiter(blocks, np.uint64, len(blocks))
    if keys.size and keys.min() < RESERVED:
        keys[keys < RESERVED] += np.uint64(_STAND_IN)
    return keys
