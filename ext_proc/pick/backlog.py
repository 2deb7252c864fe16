"""What this worker has sent to a pool's endpoints and what of it is still ahead of the next request.

Gauges are as old as the last scrape; a burst inside one interval is spread by these counts alone.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.pace import Pace
from ext_proc.pick.prefill import Prefill

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

OTHERS_SECONDS: Final = 5.0
"""Over about this time is averaged what others send: gauges and other workers' counts lag."""
UNCERTAIN: Final = 0.5
"""Requests: a gauge that still tells of one of ours that has ended says nothing of others' requests."""
MOST_ELSEWHERE: Final = 63 / 64
"""As with the most workers that there can be."""
RECENT_SHARE: Final = 0.05
"""Weight of the newest pick in the running mean of cold prefill."""
RECENT_SECONDS: Final = 10.0
"""Time constant with which it is forgotten who got how many requests."""
MOST_TRIALS_LEFT: Final = 2.0
"""Trials that may be caught up with."""


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
        self.prefill = Prefill(len(addresses))
        self.recent_requests: NDArray[np.float64] = np.zeros(len(addresses))
        """Requests that each got lately: what ties are shared out by."""
        self.new_prefixes: NDArray[np.float64] = np.zeros(len(addresses))
        """Shares of the prompts of these requests that were not held there, summed up: new prefixes."""
        self._faded_at = -np.inf
        self._beyond: NDArray[np.float64] = np.zeros(len(addresses))
        self._ours = self._theirs = 0.0
        self._others_at = -np.inf
        self.pace = Pace(len(addresses))
        self.tried_at: NDArray[np.float64] = np.full(len(addresses), -np.inf)
        """When an endpoint that is not trusted was last tried, on the caller's clock."""
        self.trials_left = MOST_TRIALS_LEFT
        """Picks that may try somebody now: each pick adds the share of picks that may."""

    def carried_to(self, addresses: tuple[str, ...], in_flight: Callable[[str], int]) -> Backlog:
        """Return the same backlog over other endpoints: who stays keeps what was sent there."""
        moved = Backlog(addresses)
        moved.mean_cold_seconds = self.mean_cold_seconds
        moved.trials_left = self.trials_left
        sources = [self._position.get(address) for address in addresses]
        moved.pace.moved_from(self.pace, sources)
        moved.prefill.moved_from(self.prefill, sources)
        moved._others_at = self._others_at
        moved._ours, moved._theirs = self._ours, self._theirs
        moved._faded_at = self._faded_at
        # Who is new owes nothing: it is not to catch up with what the others got before it was there.
        moved.recent_requests[:] = self.recent_requests.mean() if self.recent_requests.size else 0.0
        moved.new_prefixes[:] = self.new_prefixes.mean() if self.recent_requests.size else 0.0
        for position, (address, source) in enumerate(zip(addresses, sources, strict=True)):
            moved.in_flight[position] = count = in_flight(address)
            if source is not None:
                moved.tried_at[position] = self.tried_at[source]
                moved._beyond[position] = self._beyond[source]
                moved.recent_requests[position] = self.recent_requests[source]
                moved.new_prefixes[position] = self.new_prefixes[source]
                if count:
                    moved.free_at[position] = self.free_at[source]
        return moved

    def learn_others(
        self, in_engine: NDArray[np.float64], elsewhere: NDArray[np.float64], now: float
    ) -> None:
        """Learn what others send: other workers' requests in flight, and what engines hold beyond those.

        `in_engine` is running plus waiting in the engine, `elsewhere` what other workers have in flight.
        Unknown counts as none. Both are averaged, because neither is of the same moment as our own counts.
        """
        kept = exp(-max(0.0, now - self._others_at) / OTHERS_SECONDS)
        self._others_at = now
        beyond = np.nan_to_num(in_engine - elsewhere - self.in_flight)
        self._beyond = beyond + (self._beyond - beyond) * kept
        ours, others = float(self.in_flight.sum()), float(elsewhere.sum())
        self._ours = ours + (self._ours - ours) * kept
        self._theirs = others + (self._theirs - others) * kept

    def fade(self, now: float) -> None:
        """Let what was recent_requests fade: once a tick."""
        kept = exp(-max(0.0, now - self._faded_at) / RECENT_SECONDS)
        self.recent_requests *= kept
        self.new_prefixes *= kept
        self._faded_at = now

    @property
    def others_in_engine(self) -> NDArray[np.float64]:
        """Requests in the engines that no worker has sent, beyond `UNCERTAIN`, never below 0."""
        result: NDArray[np.float64] = np.maximum(self._beyond - UNCERTAIN, 0.0)
        return result

    @property
    def elsewhere_share(self) -> float:
        """Share of the pool's requests that other workers send, 0 to below 1."""
        both = self._ours + self._theirs
        return min(self._theirs / both, MOST_ELSEWHERE) if both > 0 else 0.0

    def add(
        self, address: str, cold_seconds: float, now: float, cold_bytes: float = 0.0, cold_share: float = 0.0
    ) -> None:
        """Note a pick; `cold_bytes` of its text and `cold_share` of its blocks are not held there."""
        position = self._position[address]
        self.recent_requests[position] += 1.0
        self.new_prefixes[position] += cold_share
        self.prefill.note(position, cold_bytes)
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
