"""How often leading runs of blocks are asked for: what tells a hot shared prefix from one conversation's.

A count-min sketch (Cormode and Muthukrishnan, 2005) with conservative update (Estan and Varghese, 2002),
whose counts decay: a request counts 1 at its arrival and exp(-age / average) later, so a steady rate reads as
itself. Instead of shrinking all counts, newer requests weigh more, and the sketch is scaled back at times.

Runs are counted at the depths of `_DEPTHS` only, at most a quarter apart, so a prompt of 512 blocks costs as
much as one of 28; a depth between counts as the one before it, unless it is counted as well (`also`): where
what is held changes, the caller wants to know exactly. What is told errs upwards, by collisions.

A count says how hot a run is only beside that of all requests over the same time, and a run that is new has
had less of it than the average. So each cell keeps, beside its count, how many of all requests (`total`) came
before its run did (`since`). Where a run is asked for rarely, its time is taken to have begun later: it never
held more than `look_back` requests for each one of the run. So one that was hardly asked for, and now is,
counts as new.
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
_WIDTHS: Final = np.array([after - before for before, after in pairwise(_DEPTHS)], np.intp)


class Popularity:
    """Rates of requests by leading run. 16 bytes a cell, whatever is asked for."""

    def __init__(self, average_seconds: float = 30.0, cells_log2: int = 16) -> None:
        if average_seconds <= 0:
            raise ValueError(f"average_seconds {average_seconds}: allowed: above 0")
        self._average_seconds = average_seconds
        # A count and its mark stand side by side, so that they share a line of the processor's cache.
        self._mask = (2 << cells_log2) - 2
        self._counts = np.zeros(4 << cells_log2, np.float32)
        self._cells = cast("memoryview[float]", self._counts.data)
        """At even places counts; behind each how many of all requests came before the run of its cell."""
        self._second = 2 << cells_log2
        self._since = 0.0
        """When a request weighed 1; on the clock of `now`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the sketch."""
        return int(self._counts.nbytes)

    def count(
        self,
        blocks: Sequence[int],
        now: float,
        also: Collection[int] = (),
        total: float = 0.0,
        look_back: float = 0.0,
    ) -> None:
        """Note one request for a prompt of these blocks, at `now` in seconds; at depths `also`, too.

        `total` are all requests that it is to be compared with, itself included, faded as counts are.
        """
        cells, mask, second, weight = self._cells, self._mask, self._second, self._weight(now)
        before = (total - 1.0) * weight
        # More of a run than this, and it looks back on all.
        few = before / look_back if look_back else 0.0
        depths = _DEPTHS[: bisect_left(_DEPTHS, len(blocks))]
        for depth in _with(depths, also, len(blocks)) if also else depths:
            block = blocks[depth]
            one, two = block & mask, second + (block >> 32 & mask)
            counted, other = cells[one], cells[two]
            if counted > other:
                one, two, counted, other = two, one, other, counted
            more = counted + weight
            cells[one] = more
            if other < more:
                cells[two] = more
            if counted < few:
                mark = before - look_back * counted
                if cells[one + 1] < mark:
                    cells[one + 1] = mark
                if other < more and cells[two + 1] < mark:
                    cells[two + 1] = mark

    def rates_and_totals(
        self, blocks: Sequence[int], now: float, also: Collection[int] = (), total: float = 0.0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `rates`, and for each block how many of `total` requests came since its run's time began.

        Neither rises with depth. Between the depths that are counted always, the second is that of the one
        before.
        """
        weight, last = self._weight(now), len(blocks)
        depths = _DEPTHS[: bisect_left(_DEPTHS, last)]
        if not depths:
            return np.zeros(0), np.zeros(0)
        cells, mask, second = self._cells, self._mask, self._second
        found, marked = [], []
        # With the first one twice, so that it is a tuple however few there are.
        for block in itemgetter(0, *depths)(blocks):
            one = block & mask
            counted = cells[one]
            if counted > (other := cells[two := second + (block >> 32 & mask)]):
                one, counted = two, other
            found.append(counted)
            marked.append(cells[one + 1])
        found = list(accumulate(found, min))[1:]
        widths: NDArray[np.intp] | list[int] = _WIDTHS[: len(depths)]
        earlier = np.array(list(accumulate(marked, max))[1:]) / weight
        since = np.maximum(total - earlier, 0.0).repeat(widths)[:last]
        if extra := sorted({*also}.difference(depths)):
            merged, told = list(depths), found.copy()
            for depth in extra:
                if 0 <= depth < last:
                    place = bisect_left(depths, depth)
                    behind = found[place] if place < len(found) else 0.0
                    at = bisect_left(merged, depth)
                    merged.insert(at, depth)
                    # Of several between two depths, none tells more than the one before it.
                    told.insert(at, min(max(self._told(blocks[depth])[0], behind), told[at - 1]))
            found = told
            widths = [after - before for before, after in pairwise((*merged, last))]
        rates = np.array(found) / (weight * self._average_seconds)
        return rates.repeat(widths)[:last], since

    def rate_and_total(
        self, blocks: Sequence[int], depth: int, now: float, total: float
    ) -> tuple[float, float]:
        """Return as `rates_and_totals` does with `depth` in `also`, of that block, up to what collisions add."""
        weight = self._weight(now)
        counted, mark = self._told(blocks[depth])
        place = bisect_left(_DEPTHS, depth)
        if (at := _DEPTHS[place]) != depth and at < len(blocks):
            behind = self._told(blocks[at])
            if behind[0] > counted:
                counted, mark = behind
        return counted / (weight * self._average_seconds), max(0.0, total - mark / weight)

    def _told(self, block: int) -> tuple[float, float]:
        """Return count and mark of a block: of its cell with the least count."""
        cells, mask = self._cells, self._mask
        one, two = block & mask, self._second + (block >> 32 & mask)
        if cells[one] > cells[two]:
            one = two
        return cells[one], cells[one + 1]

    def _weight(self, now: float) -> float:
        age = (now - self._since) / self._average_seconds
        if age > _SCALE_BACK_FROM:
            self._counts *= np.float32(exp(-min(age, 80.0)))
            self._since = now
            return 1.0
        return exp(max(age, -_SCALE_BACK_FROM))
