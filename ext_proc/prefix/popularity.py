"""How often leading runs of blocks are asked for: what tells a hot shared prefix from one conversation's.

A count-min sketch (Cormode and Muthukrishnan, 2005) with conservative update (Estan and Varghese, 2002),
whose counts decay: a request counts 1 at its arrival and exp(-age / average) later, so a steady rate reads as
itself. Instead of shrinking all counts, newer requests weigh more, and the sketch is scaled back at times.

Runs are counted at the depths of `_DEPTHS` only, at most a quarter apart, so a prompt of 512 blocks costs as
much as one of 28; a depth between counts as the one before it, unless it is counted as well (`also`): where
what is held changes, the caller wants to know exactly. What is told errs upwards, by collisions.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, pairwise
from math import exp
from operator import itemgetter
from typing import TYPE_CHECKING, Final, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

_SCALE_BACK_FROM: Final = 20.0
"""Averages of time after which the sketch is scaled back; exp(20) is far from the end of 32-bit floats."""


def _depths(most: int) -> tuple[int, ...]:
    found = [0]
    while found[-1] < most:
        found.append(max(found[-1] + 1, found[-1] * 5 // 4))
    return tuple(found)


def _with(depths: tuple[int, ...], also: Collection[int], last: int) -> list[int]:
    return [*depths, *(depth for depth in {*also}.difference(depths) if 0 <= depth < last)]


_DEPTHS: Final = _depths(1 << 20)
"""Positions in a prompt, from 0."""
_WIDTHS: Final = tuple(after - before for before, after in pairwise(_DEPTHS))


class Popularity:
    """Rates of requests by leading run. 8 bytes a cell, whatever is asked for."""

    def __init__(self, average_seconds: float = 30.0, cells_log2: int = 16) -> None:
        if average_seconds <= 0:
            raise ValueError(f"average_seconds {average_seconds}: allowed: above 0")
        self._average_seconds = average_seconds
        self._mask = (1 << cells_log2) - 1
        self._counts = np.zeros(2 << cells_log2, np.float32)
        self._cells = cast("memoryview[float]", self._counts.data)
        self._second = 1 << cells_log2
        self._since = 0.0
        """When a request weighed 1; on the clock of `now`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the sketch."""
        return int(self._counts.nbytes)

    def count(self, blocks: Sequence[int], now: float, also: Collection[int] = ()) -> None:
        """Note one request for a prompt of these blocks, at `now` in seconds; at depths `also`, too."""
        cells, mask, second, weight = self._cells, self._mask, self._second, self._weight(now)
        depths = _DEPTHS[: bisect_left(_DEPTHS, len(blocks))]
        for depth in _with(depths, also, len(blocks)) if also else depths:
            block = blocks[depth]
            one, two = block & mask, second + (block >> 32 & mask)
            counted, other = cells[one], cells[two]
            if counted <= other:
                cells[one] = counted = counted + weight
                if other < counted:
                    cells[two] = counted
            else:
                cells[two] = other = other + weight
                if counted < other:
                    cells[one] = other

    def rates(self, blocks: Sequence[int], now: float, also: Collection[int] = ()) -> NDArray[np.float64]:
        """Return for each block how many requests a second share the run up to it, whatever follows it.

        Decayed over `average_seconds`, over all requests that were counted, repeated ones too: they are load
        like others. Never rises with depth. At depths `also` what was counted there is told, as far as it
        lies between what the depths before and behind it tell: those are counted always.
        """
        weight, last = self._weight(now), len(blocks)
        depths = _DEPTHS[: bisect_left(_DEPTHS, last)]
        if not depths:
            return np.zeros(0)
        cells, mask, second = self._cells, self._mask, self._second
        found = [
            one if (one := cells[block & mask]) < (two := cells[second + (block >> 32 & mask)]) else two
            # With the first one twice, so that it is a tuple however few there are.
            for block in itemgetter(0, *depths)(blocks)
        ]
        found = list(accumulate(found, min))[1:]
        widths: Sequence[int] = _WIDTHS[: len(depths)]
        if extra := sorted({*also}.difference(depths)):
            merged, told = list(depths), found.copy()
            for depth in extra:
                if 0 <= depth < last:
                    place = bisect_left(depths, depth)
                    behind = found[place] if place < len(found) else 0.0
                    at = bisect_left(merged, depth)
                    merged.insert(at, depth)
                    # Of several between two depths, none tells more than the one before it.
                    told.insert(at, min(max(self._counted(blocks[depth]), behind), told[at - 1]))
            found = told
            widths = [after - before for before, after in pairwise((*merged, last))]
        rates = np.array(found) / (weight * self._average_seconds)
        return rates.repeat(widths)[:last]

    def rate_at(self, blocks: Sequence[int], depth: int, now: float) -> float:
        """Return as `rates` does with `depth` in `also`, of that block alone, up to what collisions add."""
        weight, counted = self._weight(now), self._counted(blocks[depth])
        place = bisect_left(_DEPTHS, depth)
        if _DEPTHS[place] < len(blocks):
            counted = max(counted, self._counted(blocks[_DEPTHS[place]]))
        return counted / (weight * self._average_seconds)

    def _counted(self, block: int) -> float:
        cells, mask = self._cells, self._mask
        one, two = cells[block & mask], cells[self._second + (block >> 32 & mask)]
        return min(one, two)

    def _weight(self, now: float) -> float:
        age = (now - self._since) / self._average_seconds
        if age > _SCALE_BACK_FROM:
            self._counts *= np.float32(exp(-min(age, 80.0)))
            self._since = now
            return 1.0
        return exp(max(age, -_SCALE_BACK_FROM))
