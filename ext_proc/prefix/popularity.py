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
from itertools import pairwise
from math import exp, inf
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


_DEPTHS: Final = _depths(1 << 20)
"""Positions in a prompt, from 0."""
_DEPTH_SET: Final = frozenset(_DEPTHS)
_AT: Final = [itemgetter(0, *_DEPTHS[:count]) for count in range(len(_DEPTHS) + 1)]
"""By number of depths: what reads the blocks there, the first one twice, so that it is a tuple."""
_WIDTHS: Final = np.array([after - before for before, after in pairwise(_DEPTHS)], np.intp)


def _counted(blocks: Sequence[int], also: Collection[int]) -> Sequence[int]:
    """Return the blocks at the depths of `_DEPTHS` and at those of `also`, each once."""
    count = len(blocks)
    depths = bisect_left(_DEPTHS, count)
    if not depths:
        return ()
    counted: tuple[int, ...] = _AT[depths](blocks)[1:]
    if more := [depth for depth in also if 0 <= depth < count and depth not in _DEPTH_SET]:
        counted = (*counted, *(blocks[depth] for depth in more))
    return counted


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
        for block in _counted(blocks, also):
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
        depths = bisect_left(_DEPTHS, last)
        cells, mask, second = self._cells, self._mask, self._second
        least, latest, since = inf, 0.0, max(total, 0.0)
        counts: list[float] = []
        totals: list[float] = []
        for block in _AT[depths](blocks)[1:] if depths else ():
            one, two = block & mask, second + (block >> 32 & mask)
            counted = cells[one]
            if counted > (other := cells[two]):
                one, counted = two, other
            if counted < least:
                least = counted
            if (mark := cells[one + 1]) > latest:
                latest, since = mark, max(total - mark / weight, 0.0)
            counts.append(least)
            totals.append(since)
        widths, average = _WIDTHS[:depths], weight * self._average_seconds
        rates = (np.array(counts) / average).repeat(widths)[:last]
        for depth in sorted(also):
            if 0 <= depth < last and depth not in _DEPTH_SET:
                place = bisect_left(_DEPTHS, depth)
                behind = counts[place] if place < depths else 0.0
                # Of several between two depths, none has more than the one before it.
                rate = min(max(self._cell(blocks[depth])[0], behind) / average, rates.item(depth))
                rates[depth : _DEPTHS[place]] = rate
        return rates, np.array(totals).repeat(widths)[:last]

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
