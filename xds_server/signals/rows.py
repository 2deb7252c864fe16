"""State of many endpoints as arrays: one row per endpoint, in the order of the membership."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_Scalar = TypeVar("_Scalar", bound=np.generic)


class Rows:
    """State of every endpoint. A subclass sets each array as a class attribute: a newcomer's row."""

    def __init__(self) -> None:
        for name, newcomer in self._newcomers():
            setattr(self, name, newcomer[:0])

    def remap_rows(self, source: IntArray) -> None:
        """Follow a changed membership (see `remapped`)."""
        for name, newcomer in self._newcomers():
            setattr(self, name, remapped(getattr(self, name), source, newcomer[0]))

    def _newcomers(self) -> list[tuple[str, npt.NDArray[np.generic]]]:
        return [(name, value) for name, value in vars(type(self)).items() if isinstance(value, np.ndarray)]


def rows_before(addresses: Sequence[str], before: Mapping[str, int]) -> IntArray:
    """Return, for each address, its row `before`, or -1 for a newcomer."""
    return np.array([before.get(address, -1) for address in addresses], np.int64)


def remapped(array: npt.NDArray[_Scalar], source: IntArray, fill: object) -> npt.NDArray[_Scalar]:
    """Return the array with its rows in another order: row i was `source[i]`; `fill` where that is -1.

    Rows that no source names are gone: state is bounded by the membership.
    """
    result = np.full((len(source), *array.shape[1:]), fill, array.dtype)
    present = source >= 0
    result[present] = array[source[present]]
    return result
