"""The demand for a prefix, compared with the share of its holders: it decides the price of cold work.

Cold work is dear, because it delays later requests (`price`, see `forecast`). But computed blocks stay, and
if many other requests have the same run of blocks, later requests profit by it: the work is paid once and
used by all of them. So its price is shared among its future users.

    N       requests for the endpoints in question within the window, since block b's time began
    N_b     those of them that share the prompt's run of blocks up to block b
    f_b     fair share of the endpoints that hold block b: their weights over all weights
    n       endpoints in question
    excess  = max(0, N_b - N * f_b)     requests that the holders had beyond their fair share
    uses_b  = min(excess, N / n)        as many of them as one more holder would have taken off them
    price_b = price / (1 + uses_b)

A conversation is rare among the pool's requests: its N_b is below its one holder's fair share, the price is
the full one, and it stays where it is. A system prompt that most requests begin with spreads to one endpoint
after the other, each time for a few milliseconds of price, until its holders' fair share covers its demand.
The forecast counts its cold work in full, because it delays in full.

Requests are counted over one window, as a prediction of the next one. A prefix that is younger than the
window is compared with the requests since its first one: otherwise it would have to outgrow demand that is
over. And a prefix with less than half of one endpoint's fair share is compared with no more requests than
would have made it that half: rare until now, it counts as new.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# As arrays without an axis, numbers take half the time in operations over columns.
_NONE: Final = np.zeros(())
_ONE: Final = np.ones(())
LOOK_BACK: Final = 2.0
"""Requests to compare with for each request of a prefix, times the endpoints: half of a fair share."""


class Demand:
    """A count of requests that fades with a time constant: each counts 1 at first."""

    __slots__ = ("_at", "_count", "window_seconds")

    def __init__(self, window_seconds: float) -> None:
        self.window_seconds = window_seconds
        self._count = 0.0
        self._at = 0.0

    def add(self, now: float) -> float:
        """Count one request, and return the count."""
        self._count = count = self.at(now) + 1.0
        self._at = max(now, self._at)
        return count

    def raise_to(self, count: float, now: float) -> None:
        """Make it at least so many."""
        if count > self.at(now):
            self._count, self._at = count, max(now, self._at)

    def at(self, now: float) -> float:
        """Return the count."""
        return self._count * exp(-max(0.0, now - self._at) / self.window_seconds)


def uses(count: float, total: float, holders_share: float, endpoints: int) -> float:
    """Return `uses_b` of the module's formula for one prefix or adapter."""
    return min(max(0.0, count - total * holders_share), total / endpoints)


def prices(
    price: float,
    counts: NDArray[np.float64],
    totals: NDArray[np.float64] | float,
    matched: NDArray[np.int64],
    shares: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the price of each of a prompt's blocks, by the module's formula.

    `counts` are N_b and `totals` N, for all blocks or each of them; `matched` how many leading blocks each
    endpoint holds, `shares` their fair shares.
    """
    # The share of endpoints that hold no more than up to a block: all others hold it.
    below = np.add.accumulate(np.bincount(matched, shares, counts.size + 1))
    uses: NDArray[np.float64] = below[: counts.size] - _ONE
    uses *= totals
    uses += counts
    np.maximum(uses, _NONE, out=uses)
    np.minimum(uses, totals * np.array(1.0 / shares.size), out=uses)
    uses += _ONE
    np.divide(np.array(price), uses, out=uses)
    return uses


def priced_bytes(
    prices: NDArray[np.float64], price: float, ends: NDArray[np.float64], text_bytes: int
) -> NDArray[np.float64]:
    """Return by number of leading blocks held, from none to all, the rest of the text in priced bytes.

    `ends` are the bytes of leading blocks, by their number.
    """
    count = prices.size
    left = np.zeros(count + 1)
    np.add.accumulate(prices * (ends[1 : count + 1] - ends[:count]), out=left[1:])
    whole = left.item(-1) + price * (text_bytes - ends.item(count))
    np.subtract(np.array(whole), left, out=left)
    return left
