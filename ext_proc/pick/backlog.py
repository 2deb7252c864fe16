"""What this worker has sent to a pool's endpoints and what of it is still ahead of the next request.

Gauges are as old as the last scrape; a burst inside one interval is spread by these counts alone.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.candidates import neutral
from ext_proc.pick.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

RATE_MEMORY_SECONDS: Final = 60.0
"""Time constant with which a remembered prefill rate falls to what the engine tells."""
OTHERS_SECONDS: Final = 5.0
"""Over about this time is averaged what others send: gauges and other workers' counts lag."""
UNCERTAIN: Final = 0.5
"""Requests: a gauge that still tells of one of ours that has ended says nothing of others' requests."""
MOST_ELSEWHERE: Final = 63 / 64
"""As with the most workers that there can be."""
RECENT_SHARE: Final = 0.05
"""Weight of the newest pick in the running mean of cold prefill."""
EVIDENT_BYTES: Final = 2048.0
"""Cold work of a request from which on an engine's prefill rate is its own: the time of less is a step's."""
_LEAST_EVIDENCE: Final = 0.01
GIVEN_SECONDS: Final = 10.0
"""Time constant with which it is forgotten who got how many requests."""


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
        self.given: NDArray[np.float64] = np.zeros(len(addresses))
        """Requests that each got lately: what ties are shared out by."""
        self._cold_bytes: NDArray[np.float64] = np.zeros(len(addresses))
        """Of these requests together, what was not held there."""
        self._given_at = -np.inf
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
        moved._given_at = self._given_at
        # Who is new owes nothing: it is not to catch up with what the others got before it was there.
        moved.given[:] = self.given.mean() if self.given.size else 0.0
        moved._cold_bytes[:] = self._cold_bytes.mean() if self.given.size else 0.0
        for position, (address, source) in enumerate(zip(addresses, sources, strict=True)):
            moved.in_flight[position] = count = in_flight(address)
            if source is not None:
                moved.rates[position] = self.rates[source]
                moved.tried_at[position] = self.tried_at[source]
                moved._beyond[position] = self._beyond[source]
                moved.given[position] = self.given[source]
                moved._cold_bytes[position] = self._cold_bytes[source]
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

    def evident_rates(self, rows: NDArray[np.intp] | slice, default: float) -> NDArray[np.float64]:
        """Return the prefill rate of each row, as far as it is told by more than steps that compute little.

        An engine that has almost all of its prompts in its cache computes some tokens in each step, and tells
        a rate that is the step's overhead and chance. So a rate counts by the cold work that it rests on, up
        to `EVIDENT_BYTES` a request, against the mean rate of the peers. Unknown counts as that mean, or as
        `default` when all is unknown. As long as we have sent nothing, all that is told counts in full.
        """
        rates, sent = self.rates[rows], self.given.sum()
        if not sent:
            return neutral(rates, default)
        usual = self._cold_bytes.sum() / sent
        cold = (self._cold_bytes[rows] + usual) / (self.given[rows] + 1.0)
        if cold.min() >= EVIDENT_BYTES:
            return neutral(rates, default)
        known = ~np.isnan(rates)
        if not known.any():
            return np.full(rates.size, default)
        evidence = np.clip(cold / EVIDENT_BYTES, _LEAST_EVIDENCE, 1.0)
        mean = np.average(rates[known], weights=evidence[known] ** 2)
        result: NDArray[np.float64] = np.where(known, mean + (rates - mean) * evidence, mean)
        return result

    def forget_given(self, now: float) -> None:
        """Let what was given fade: once a tick."""
        kept = exp(-max(0.0, now - self._given_at) / GIVEN_SECONDS)
        self.given *= kept
        self._cold_bytes *= kept
        self._given_at = now

    @property
    def unseen(self) -> NDArray[np.float64]:
        """Requests in the engines that no worker has sent, beyond `UNCERTAIN`, never below 0."""
        result: NDArray[np.float64] = np.maximum(self._beyond - UNCERTAIN, 0.0)
        return result

    @property
    def elsewhere_share(self) -> float:
        """Share of the pool's requests that other workers send, 0 to below 1."""
        both = self._ours + self._theirs
        return min(self._theirs / both, MOST_ELSEWHERE) if both > 0 else 0.0

    def add(self, address: str, cold_seconds: float, now: float, cold_bytes: float = EVIDENT_BYTES) -> None:
        """Note a pick; `cold_bytes` is the text that is not held there."""
        position = self._position[address]
        self.given[position] += 1.0
        self._cold_bytes[position] += cold_bytes
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
