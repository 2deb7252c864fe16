"""The rates of requests by leading run of blocks: they separate a hot shared prefix from one conversation.

A count-min sketch (Cormode and Muthukrishnan, 2005) with conservative update (Estan and Varghese, 2002),
whose counts decay: a request counts 1 at its arrival and exp(-age / average) later, so a steady rate reads as
itself. Instead of shrinking all counts, newer requests weigh more, and the sketch is scaled back at times.

Runs are counted at the depths of `_DEPTHS` only, at most a quarter apart, so a prompt of 512 blocks costs as
much as one of 28. A depth between counts as the one before it, unless the caller counts it too (`also`): it
does so where the number of holders changes. Collisions make rates too high, never too low.

A rate means something only next to that of all requests over the same time, and a new run has had less time
than the average. So each cell also keeps the number of all requests (`total`) before its run. A rare run
looks back on at most `look_back` requests for each one of its own, so a run that gets hot after a rare start
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
    depths = [0]
    while depths[-1] < most:
        depths.append(max(depths[-1] + 1, depths[-1] * 5 // 4))
    return tuple(depths)


def _with(depths: tuple[int, ...], also: Collection[int], last: int) -> list[int]:
    return [*depths, *(depth for depth in {*also}.difference(depths) if 0 <= depth < last)]


_DEPTHS: Final = _depths(1 << 20)
"""Positions in a prompt, from 0."""
_WIDTHS: Final = np.array([after - before for before, after in pairwise(_DEPTHS)], np.intp)


class Popularity:
    """Rates of requests by leading run. 16 bytes a cell, whatever the number of runs."""

    def __init__(self, average_seconds: float = 30.0, cells_log2: int = 16) -> None:
        if average_seconds <= 0:
            raise ValueError(f"average_seconds {average_seconds}: allowed: above 0")
        self._average_seconds = average_seconds
        # A count and its mark stand side by side, so that they share a line of the processor's cache.
        self._mask = (2 << cells_log2) - 2
        self._counts = np.zeros(4 << cells_log2, np.float32)
        self._cells = cast("memoryview[float]", self._counts.data)
        """At even places counts; behind each the number of all requests before the run of its cell."""
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
        """Count one request for a prompt of these blocks, at `now` in seconds; at depths `also`, too.

        `total` is the number of all requests of the comparison, itself included, decayed as counts are.
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
        """Return for each block the rate of its run, and the number of `total` requests since the run began.

        The rate is in requests a second over `average_seconds`, whatever follows the run, repeated requests
        included. Neither figure rises with depth. At depths `also` the rate is the one counted there, within
        those of the depths before and behind it; the second figure is that of the depth before.
        """
        weight, last = self._weight(now), len(blocks)
        depths = _DEPTHS[: bisect_left(_DEPTHS, last)]
        if not depths:
            return np.zeros(0), np.zeros(0)
        cells, mask, second = self._cells, self._mask, self._second
        counts, marks = [], []
        # With the first one twice, so that it is a tuple however few there are.
        for block in itemgetter(0, *depths)(blocks):
            one = block & mask
            counted = cells[one]
            if counted > (other := cells[two := second + (block >> 32 & mask)]):
                one, counted = two, other
            counts.append(counted)
            marks.append(cells[one + 1])
        counts = list(accumulate(counts, min))[1:]
        widths: NDArray[np.intp] | list[int] = _WIDTHS[: len(depths)]
        earlier = np.array(list(accumulate(marks, max))[1:]) / weight
        since = np.maximum(total - earlier, 0.0).repeat(widths)[:last]
        if extra := sorted({*also}.difference(depths)):
            merged, lower = list(depths), counts.copy()
            for depth in extra:
                if 0 <= depth < last:
                    place = bisect_left(depths, depth)
                    behind = counts[place] if place < len(counts) else 0.0
                    at = bisect_left(merged, depth)
                    merged.insert(at, depth)
                    # Of several between two depths, none has more than the one before it.
                    lower.insert(at, min(max(self._cell(blocks[depth])[0], behind), lower[at - 1]))
            counts = lower
            widths = [after - before for before, after in pairwise((*merged, last))]
        rates = np.array(counts) / (weight * self._average_seconds)
        return rates.repeat(widths)[:last], since

    def rate_and_total(
        self, blocks: Sequence[int], depth: int, now: float, total: float
    ) -> tuple[float, float]:
        """Return both figures of one block, as with `depth` in `also`, up to the effect of collisions."""
        weight = self._weight(now)
        counted, mark = self._cell(blocks[depth])
        place = bisect_left(_DEPTHS, depth)
        if (at := _DEPTHS[place]) != depth and at < len(blocks):
            behind = self._cell(blocks[at])
            if behind[0] > counted:
                counted, mark = behind
        return counted / (weight * self._average_seconds), max(0.0, total - mark / weight)

    def _cell(self, block: int) -> tuple[float, float]:
        """Return count and mark of a block, by its cell with the least count."""
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
