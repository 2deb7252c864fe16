"""How much a prefix is asked for, against who holds it: what the price of its cold work depends on.

Cold work is dear, because it delays those who come later (`cold_price`). But what is computed stays, and
where many others ask for the same run of blocks, those who come later profit by it: the work is paid once and
used by all of them. So its price is shared among those who will use it.

    N       requests for the endpoints in question within the window, since block b's time began
    N_b     those of them that share the prompt's run of blocks up to block b
    f_b     fair share of the endpoints that hold block b: their weights over all weights
    n       endpoints in question
    excess  = max(0, N_b - N * f_b)     requests that the holders had beyond their fair share
    uses_b  = min(excess, N / n)        as many of them as one more holder would have taken off them
    price_b = cold_price / (1 + uses_b)

A conversation asks for its own blocks seldom, as seen from the pool: its N_b is below its one holder's fair
share, the price is the full one, and it stays where it is. A system prompt that most requests begin with
spreads to one more endpoint after the other, each time for a few milliseconds of price, until its holders'
fair share covers its demand. What is computed for it is counted in full where it delays: in the forecast.

The window is the one in which requests are counted: as it was lately, so it is taken to go on. A prefix that
is younger than the window is held against what came since it was first seen: against all of the window it
would have to outgrow what is over. And a prefix that had less than half of one endpoint's fair share is held
against no more requests than would have made it that half: seldom asked for until now, it counts as new.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOOK_BACK: Final = 2.0
"""For each request of a prefix so many are looked back on, times the endpoints: half of a fair share."""


class Demand:
    """A count of requests that fades with a time constant: each counts 1 at first."""

    __slots__ = ("_at", "_count", "window_seconds")

    def __init__(self, window_seconds: float) -> None:
        self.window_seconds = window_seconds
        self._count = 0.0
        self._at = 0.0

    def add(self, now: float) -> None:
        """Count one request."""
        self._count = self.at(now) + 1.0
        self._at = max(now, self._at)

    def raise_to(self, count: float, now: float) -> None:
        """Make it at least so many."""
        if count > self.at(now):
            self._count, self._at = count, max(now, self._at)

    def at(self, now: float) -> float:
        """Return the count."""
        return self._count * exp(-max(0.0, now - self._at) / self.window_seconds)


def uses(count: float, total: float, holders_share: float, endpoints: int) -> float:
    """Return `uses_b` of the module's formula for one thing that can be held."""
    return min(max(0.0, count - total * holders_share), total / endpoints)


def prices(
    cold_price: float,
    counts: NDArray[np.float64],
    totals: NDArray[np.float64] | float,
    matched: NDArray[np.int64],
    shares: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the price of each of a prompt's blocks, by the module's formula.

    `counts` are N_b and `totals` N, for all blocks or each of them; `matched` how many leading blocks each
    endpoint holds, `shares` their fair shares.
    """
    # Those who hold no more than up to a block, summed up: who holds it are all the others.
    below = np.bincount(matched, weights=shares, minlength=counts.size + 1).cumsum()
    uses: NDArray[np.float64] = below[: counts.size] - below[-1]
    uses *= totals
    uses += counts
    np.maximum(uses, 0.0, out=uses)
    np.minimum(uses, totals / shares.size, out=uses)
    uses += 1.0
    return np.divide(cold_price, uses, out=uses)


def priced_bytes(
    prices: NDArray[np.float64], cold_price: float, block_bytes: int, text_bytes: int
) -> NDArray[np.float64]:
    """Return by number of leading blocks held, from none to all, the rest of the text in priced bytes."""
    left = np.zeros(prices.size + 1)
    prices.cumsum(out=left[1:])
    np.subtract(left[-1], left, out=left)
    left *= block_bytes
    left += cold_price * (text_bytes - prices.size * block_bytes)
    return left
