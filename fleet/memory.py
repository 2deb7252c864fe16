"""Which memory counts, by `weights.memory`: one meaning for weights and picks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet.settings.weights import Memory


def memory_that_counts(
    chosen: Memory, kv: NDArray[np.float64], gpu: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the share in use of the KV cache, of the GPU's memory (`gpu`), or the higher one (`highest`).

    NaN is unknown. Engines reserve most of a GPU's memory at their start, so it does not replace an unknown
    share of the KV cache.
    """
    if chosen == "gpu":
        return gpu
    return np.fmax(kv, gpu) if chosen == "highest" else kv
