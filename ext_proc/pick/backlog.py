"""What this worker has sent to a pool's endpoints and what of it is still ahead of the next request.

Gauges are as old as the last scrape; a burst inside one interval is spread by these counts alone.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

RATE_MEMORY_SECONDS: Final = 60.0
"""Time constant with which a remembered prefill rate falls to what the engine tells."""
OTHERS_SECONDS: Final = 5.0
"""Over about this time is averaged what others send: gauges and other workers' counts lag."""
MOST_ELSEWHERE: Final = 63 / 64
"""As with the most workers that there can be."""
RECENT_SHARE: Final = 0.05
"""Weight of the newest pick in the running mean of cold prefill."""


class Backlog:
    """Columns over a pool's endpoints, in the pool's order.

    `free_at` is when an endpoint would have prefilled all that was sent to it, were it alone with us:
    `free_at = max(now, free_at) + cold_seconds` at each pick. It is forgotten when nothing of ours is in
    flight there.
    """

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._position = {address: position for position, address in enumerate(addresses)}
        self.in_flight: NDArray[np.float64] = np.zeros(len(addresses))
        self.free_at: NDArray[np.float64] = np.full(len(addresses), -np.inf)
        """Seconds on the caller's clock."""
        self.mean_cold_seconds: float | None = None
        """Running mean over recent picks; None before the first."""
        self.rates: NDArray[np.float64] = np.full(len(addresses), np.nan)
        """Prefill tokens a second that each endpoint is capable of, see `learn_rates`; NaN is unknown."""
        self._rates_at = -np.inf
        self._beyond: NDArray[np.float64] = np.zeros(len(addresses))
        self._ours = self._theirs = 0.0
        self._others_at = -np.inf
        self.pace = Pace(len(addresses))
        self.tried_at: NDArray[np.float64] = np.full(len(addresses), -np.inf)
        """When an endpoint that is not trusted was last tried, on the caller's clock."""

    def carried_to(self, addresses: tuple[str, ...], in_flight: Callable[[str], int]) -> Backlog:
        """Return the same backlog over other endpoints: who stays keeps what was sent there."""
        moved = Backlog(addresses)
        moved.mean_cold_seconds = self.mean_cold_seconds
        sources = [self._position.get(address) for address in addresses]
        moved.pace.moved_from(self.pace, sources)
        moved._rates_at = self._rates_at
        moved._others_at = self._others_at
        moved._ours, moved._theirs = self._ours, self._theirs
        for position, (address, source) in enumerate(zip(addresses, sources, strict=True)):
            moved.in_flight[position] = count = in_flight(address)
            if source is not None:
                moved.rates[position] = self.rates[source]
                moved.tried_at[position] = self.tried_at[source]
                moved._beyond[position] = self._beyond[source]
                if count:
                    moved.free_at[position] = self.free_at[source]
        return moved

    def learn_rates(self, told: NDArray[np.float64], now: float) -> None:
        """Take over the prefill rates that engines tell: higher ones at once, lower ones by and by.

        A rate is a mean over the engine's window. After a bad time it stays low until the window has passed,
        and on an engine that is given little work for that very reason, for longer. How slow an engine is now
        is for `Pace` to say; this is what it can do. Unknown or 0 changes nothing.
        """
        kept = exp(-max(0.0, now - self._rates_at) / RATE_MEMORY_SECONDS)
        self._rates_at = now
        told = np.where(told > 0, told, self.rates)
        self.rates = np.fmax(told, told + (self.rates - told) * kept)

    def learn_others(self, told: NDArray[np.float64], elsewhere: NDArray[np.float64], now: float) -> None:
        """Learn what others send: from other workers' requests in flight, and what engines tell beyond.

        `told` is running plus waiting in the engine, `elsewhere` what other workers have in flight. Unknown
        is none. Both are averaged, because neither is of the same moment as our own counts.
        """
        kept = exp(-max(0.0, now - self._others_at) / OTHERS_SECONDS)
        self._others_at = now
        beyond = np.nan_to_num(told - elsewhere - self.in_flight)
        self._beyond = beyond + (self._beyond - beyond) * kept
        ours, others = float(self.in_flight.sum()), float(elsewhere.sum())
        self._ours = ours + (self._ours - ours) * kept
        self._theirs = others + (self._theirs - others) * kept

    @property
    def unseen(self) -> NDArray[np.float64]:
        """Requests in the engines that no worker has sent, never below 0."""
        result: NDArray[np.float64] = np.maximum(self._beyond, 0.0)
        return result

    @property
    def elsewhere_share(self) -> float:
        """Share of the pool's requests that other workers send, 0 to below 1."""
        both = self._ours + self._theirs
        return min(self._theirs / both, MOST_ELSEWHERE) if both > 0 else 0.0

    def add(self, address: str, cold_seconds: float, now: float) -> None:
        """Note a pick."""
        position = self._position[address]
        self.free_at[position] = max(now, float(self.free_at[position])) + cold_seconds
        mean = self.mean_cold_seconds
        self.mean_cold_seconds = cold_seconds if mean is None else mean + RECENT_SHARE * (cold_seconds - mean)

    def set_in_flight(self, address: str, count: int, now: float) -> None:
        """Take over an endpoint's count; one that is no longer in the pool is of no interest."""
        position = self._position.get(address)
        if position is None:
            return
        self.pace.note(position, int(self.in_flight[position]), count, now)
        self.in_flight[position] = count
        if count <= 0:
            self.free_at[position] = -np.inf
