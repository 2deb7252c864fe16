"""Columns over a pool's endpoints, taken over to another membership of the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

_Item = TypeVar("_Item", bound=np.generic)


def sources_of(addresses: Iterable[str], position: Mapping[str, int]) -> NDArray[np.intp]:
    """Return each endpoint's row before, by the rows in `position`; -1 for a new endpoint."""
    return np.array([position.get(address, -1) for address in addresses], np.intp)


def moved(column: NDArray[_Item], sources: NDArray[np.intp], new: Any = 0.0) -> NDArray[_Item]:
    """Return a column (the last axis) in the order of `sources`; new endpoints get `new`."""
    result = np.full((*column.shape[:-1], sources.size), new, column.dtype)
    stays = sources >= 0
    result[..., stays] = column[..., sources[stays]]
    return result
