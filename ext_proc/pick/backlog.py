"""Our requests to a pool's endpoints, and the work that is still ahead of the next request.

Gauges are as old as the last scrape; only these counts spread a burst within one interval.
"""

from __future__ import annotations

from itertools import accumulate
from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.first_token import FirstTokens
from ext_proc.pick.pace import Pace
from ext_proc.pick.prefill import Prefill
from ext_proc.pick.rows import moved
from fleet.columns import MOST_PREFILL_SECONDS, lower_median, unknown_as_zero

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

OTHERS_SECONDS: Final = 5.0
"""Time constant of the average of others' requests: gauges and other workers' counts lag."""
MOST_TIMES: Final = 4.0
"""Of the requests in the pool's median engine, and `MOST_MORE`: others' requests beyond that count as that.
One absurd gauge would take the average a minute to forget."""
MOST_MORE: Final = 16.0
FULL_REUSE: Final = 0.25
"""Mean share of prompts that is cached where they go: from it on, placement may cost all that it can."""
UNCERTAIN: Final = 0.5
"""Requests: a gauge that still counts one of ours after its end proves no request of others."""
MOST_ELSEWHERE: Final = 63 / 64
"""As with the maximum number of workers."""
RECENT_SHARE: Final = 0.05
"""Weight of the newest pick in the running mean of cold prefill."""
RECENT_SECONDS: Final = 10.0
"""Time constant of the fading counts of requests and prefixes."""
LOAD_SECONDS: Final = 60.0
"""Time constant of the requests a second and of the share of time in prefill."""
MOST_BUSY_SHARE: Final = 0.9
"""Share of time in prefill from which on queues are not taken to last longer."""
MOST_AHEAD_SECONDS: Final = 600.0
"""Of work that other workers report."""
_SIZES: Final = 32
"""Powers of two of bytes."""
MOST_TRIALS_LEFT: Final = 2.0
"""Trials that may be saved up."""


class Backlog:
    """Columns over a pool's endpoints, in the pool's order.

    `free_at` is the time at which an endpoint would have prefilled all requests of ours and of the workers
    that report their prefill: `free_at = max(now, free_at) + cold_seconds` at each pick, and with the growth
    of the others' sum at each of their reports. It is reset when none of these is in flight there.
    """

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._position = {address: position for position, address in enumerate(addresses)}
        self.in_flight: NDArray[np.float64] = np.zeros(len(addresses))
        self.free_at: NDArray[np.float64] = np.full(len(addresses), -np.inf)
        """Seconds on the caller's clock."""
        self.mean_cold_seconds: float | None = None
        """Running mean over recent picks; None before the first."""
        self.prefill = Prefill(len(addresses))
        self.first_tokens = FirstTokens(len(addresses))
        self.recent_requests: NDArray[np.float64] = np.zeros(len(addresses))
        """Recent requests to each endpoint: they decide between ties."""
        self.new_prefixes: NDArray[np.float64] = np.zeros(len(addresses))
        """Sum of the shares of these requests' prompts that were not cached there: new prefixes."""
        self._sizes = [0.0] * _SIZES
        """Requests to all endpoints by the power of two of cold bytes; they fade with `LOAD_SECONDS`."""
        self._seconds = [0.0] * _SIZES
        """Their cold seconds."""
        self._faded_at = -np.inf
        self._prefill_elsewhere: NDArray[np.float64] = np.full(len(addresses), np.nan)
        """As the other workers have reported it last; NaN: they do not."""
        self._in_flight_elsewhere: NDArray[np.float64] = np.zeros(len(addresses))
        """By workers whose prefill is in `free_at`."""
        self._beyond: NDArray[np.float64] = np.zeros(len(addresses))
        self._ours = self._theirs = 0.0
        self._others_at = -np.inf
        self.pace = Pace(len(addresses))
        self.tried_at: NDArray[np.float64] = np.full(len(addresses), -np.inf)
        """The last trial of each endpoint in doubt, on the caller's clock."""
        self.trials_left = MOST_TRIALS_LEFT
        """Trials that picks may make now: each pick adds the share of picks that may."""

    def moved_to(
        self, addresses: tuple[str, ...], sources: NDArray[np.intp], in_flight: Callable[[str], int]
    ) -> Backlog:
        """Return the same for other endpoints, see `rows.moved`."""
        other = Backlog(addresses)
        other.mean_cold_seconds, other.trials_left = self.mean_cold_seconds, self.trials_left
        other._ours, other._theirs = self._ours, self._theirs
        other._sizes, other._seconds = self._sizes, self._seconds
        other._others_at, other._faded_at = self._others_at, self._faded_at
        other.pace, other.prefill = self.pace.moved_to(sources), self.prefill.moved_to(sources)
        other.first_tokens = self.first_tokens.moved_to(sources)
        other.in_flight[:] = [in_flight(address) for address in addresses]
        other.free_at = np.where(other.in_flight > 0, moved(self.free_at, sources, -np.inf), -np.inf)
        other.tried_at = moved(self.tried_at, sources, -np.inf)
        other._beyond = moved(self._beyond, sources)
        other._prefill_elsewhere = moved(self._prefill_elsewhere, sources, np.nan)
        other._in_flight_elsewhere = moved(self._in_flight_elsewhere, sources)
        # New endpoints begin at the mean: they must not catch up with what the others got before.
        for name in ("recent_requests", "new_prefixes"):
            column = getattr(self, name)
            setattr(other, name, moved(column, sources, column.mean() if column.size else 0.0))
        return other

    def learn_others(
        self, in_engine: NDArray[np.float64], elsewhere: NDArray[np.float64], now: float
    ) -> None:
        """Learn the requests of others: other workers' in flight, and the engines' own beyond those.

        `in_engine` is running plus waiting in the engine, `elsewhere` is in flight by other workers. Unknown
        counts as none, and more than `MOST_TIMES` allows as that. Both are averaged, because neither is of
        the same moment as our own counts.
        """
        kept = exp(-max(0.0, now - self._others_at) / OTHERS_SECONDS)
        self._others_at = now
        most = MOST_TIMES * lower_median(in_engine) + MOST_MORE
        beyond = np.fmin(unknown_as_zero(in_engine - elsewhere - self.in_flight), most)
        self._beyond = beyond + (self._beyond - beyond) * kept
        ours, others = float(self.in_flight.sum()), float(elsewhere.sum())
        self._ours = ours + (self._ours - ours) * kept
        self._theirs = others + (self._theirs - others) * kept

    def take_elsewhere(
        self, in_flight: NDArray[np.float64], prefill: NDArray[np.float64], now: float
    ) -> None:
        """Add what other workers have sent since their last reports to the work ahead.

        `prefill` are their seconds of prefill so far, NaN where they do not report it. The first sum is only
        a beginning, and a sum that falls is another one.
        """
        grown = np.clip(np.nan_to_num(prefill - self._prefill_elsewhere), 0.0, MOST_PREFILL_SECONDS)
        self._prefill_elsewhere = prefill
        self._in_flight_elsewhere = np.where(np.isnan(prefill), 0.0, in_flight)
        ahead = np.minimum(np.maximum(self.free_at - now, 0.0) + grown, MOST_AHEAD_SECONDS)
        self.free_at = np.where(grown > 0, now + ahead, self.free_at)
        self.free_at[self.in_flight + self._in_flight_elsewhere <= 0] = -np.inf

    def fade(self, now: float) -> None:
        """Fade the recent counts: once a tick."""
        gap = max(0.0, now - self._faded_at)
        kept = exp(-gap / RECENT_SECONDS)
        self.recent_requests *= kept
        self.new_prefixes *= kept
        kept = exp(-gap / LOAD_SECONDS)
        self._sizes = [requests * kept for requests in self._sizes]
        self._seconds = [seconds * kept for seconds in self._seconds]
        self._faded_at = now

    @property
    def others_in_engine(self) -> NDArray[np.float64]:
        """Requests in the engines from outside the workers, beyond `UNCERTAIN`, never below 0."""
        result: NDArray[np.float64] = np.maximum(self._beyond - UNCERTAIN, 0.0)
        return result

    @property
    def elsewhere_share(self) -> float:
        """Share of the pool's requests that other workers send, 0 to below 1."""
        both = self._ours + self._theirs
        return min(self._theirs / both, MOST_ELSEWHERE) if both > 0 else 0.0

    @property
    def apart_share(self) -> float:
        """What equal placement in workers that know nothing of each other's picks is worth, 0 to 1.

        It is the share of the others' requests, and less where recent prompts had hardly any reuse.
        """
        reuse = 1.0 - float(self.new_prefixes.sum()) / (float(self.recent_requests.sum()) + 1.0)
        return self.elsewhere_share * min(1.0, reuse / FULL_REUSE)

    @property
    def delayed_per_second(self) -> float:
        """Requests to an endpoint that a second of work delays, for each second of its queue."""
        requests, busy_share = self.shorter()[-1]
        return requests / (1.0 - min(busy_share, MOST_BUSY_SHARE))

    def shorter(self) -> list[tuple[float, float]]:
        """Return, by `power_of_two(cold bytes)`, the rate of requests with a lower one, and their time share.

        The last entry is of all requests. It is an endpoint's mean rate, other workers' requests included.
        """
        each = 1.0 / (LOAD_SECONDS * self.in_flight.size * (1.0 - self.elsewhere_share))
        both = zip(accumulate(self._sizes), accumulate(self._seconds), strict=True)
        return [(0.0, 0.0), *((requests * each, seconds * each) for requests, seconds in both)]

    def add(
        self,
        address: str,
        cold_seconds: float,
        now: float,
        cold_bytes: float = 0.0,
        cold_share: float = 0.0,
        work: float = 0.0,
    ) -> None:
        """Note a pick; `cold_bytes` of its text and `cold_share` of its blocks are not cached there.

        `work` are the cold bytes by what they take, see `prefill`.
        """
        position = self._position[address]
        self.recent_requests[position] += 1.0
        self.new_prefixes[position] += cold_share
        size = power_of_two(cold_bytes)
        self._sizes[size] += 1.0
        self._seconds[size] += cold_seconds
        self.prefill.note(position, cold_bytes, work)
        self.free_at[position] = max(now, self.free_at.item(position)) + cold_seconds
        mean = self.mean_cold_seconds
        self.mean_cold_seconds = cold_seconds if mean is None else mean + RECENT_SHARE * (cold_seconds - mean)

    def set_in_flight(self, address: str, count: int, now: float) -> None:
        """Take over an endpoint's count; an endpoint outside the pool is ignored."""
        position = self._position.get(address)
        if position is None:
            return
        self.pace.note(position, int(self.in_flight.item(position)), count, now)
        self.in_flight[position] = count
        if count + self._in_flight_elsewhere.item(position) <= 0:
            self.free_at[position] = -np.inf


def power_of_two(cold_bytes: float) -> int:
    """Return the class of a request by its cold bytes, see `Backlog.shorter`."""
    return min(int(cold_bytes).bit_length(), _SIZES - 1)
