"""How fast a pool's endpoints finish what this worker sent there, one against the others.

An engine that got slow says so on its page only when its windows have filled, and one that hangs never. What
we have in flight tells at once. By Little's law a request leaves an endpoint `finished / exposure` times a
second, where both are sums that fade with `memory_seconds`:

    exposure = requests of ours in flight there, integrated over time          finished = those that ended
    slowness = (usual_rate * exposure + PRIOR) / (finished + PRIOR)            usual_rate = the pool's median

Requests that hang add exposure and end nothing, so slowness rises before anything has ended. `PRIOR`
requests stand for what is not seen yet: few requests say little, and where nothing of ours runs both sums
fade, until the endpoint counts as usual again. `memory_seconds` is twice the usual duration, within bounds.
Of an even number of endpoints the lower of the two middle rates is the usual one: an endpoint that answers
at once with errors must not make its only peer look slow.

Such an endpoint never has anything in flight, and would draw every pick. So one that finishes more than
`PLAUSIBLE` times as fast as usual counts as if it held its requests for the usual duration; of others'
requests, which it refuses as well, see `forecast`.
The estimator is the occurrence/exposure rate of survival analysis, with a prior (Gamma-Poisson shrinkage).
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fleet.columns import lower_median

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRIOR: Final = 3.0
PLAUSIBLE: Final = 4.0
LEAST_MEMORY_SECONDS: Final = 1.0
MOST_MEMORY_SECONDS: Final = 8.0
_MEMORY_PER_DURATION: Final = 2.0
_KNOWN_FROM: Final = 0.5
"""Faded count of finished requests from which an endpoint's own rate means something."""


class Judgement(NamedTuple):
    """One number an endpoint each."""

    slow_seconds: NDArray[np.float64]
    """How much longer than usual a request takes there, as far as the endpoint is slow."""
    least_in_flight: NDArray[np.float64]
    """Requests that it would have in flight if it took as long as usual; 0 where its speed is plausible."""


class Pace:
    """Lists over a pool's endpoints, in the pool's order: an event touches one endpoint, a tick all."""

    def __init__(self, size: int) -> None:
        self.memory_seconds = LEAST_MEMORY_SECONDS
        self._exposure = [0.0] * size
        self._finished = [0.0] * size
        self._settled_at = [0.0] * size

    def moved_from(self, other: Pace, sources: list[int | None]) -> None:
        """Take over what another pace knew; `sources` names its position for each of ours, None for new."""
        self.memory_seconds = other.memory_seconds
        for position, source in enumerate(sources):
            if source is not None:
                self._exposure[position] = other._exposure[source]
                self._finished[position] = other._finished[source]
                self._settled_at[position] = other._settled_at[source]

    def note(self, position: int, before: int, count: int, now: float) -> None:
        """Note that the requests in flight went from `before` to `count` at `now`; fewer means finished."""
        faded = exp(-max(0.0, now - self._settled_at[position]) / self.memory_seconds)
        exposure = self._exposure[position] * faded
        self._exposure[position] = exposure + before * self.memory_seconds * (1.0 - faded)
        self._finished[position] = self._finished[position] * faded + max(0, before - count)
        self._settled_at[position] = now

    def judge(
        self, in_flight: NDArray[np.float64], now: float, from_ratio: float, most_seconds: float
    ) -> Judgement | None:
        """Compare the endpoints; None while nothing is known. Adapts the memory to the usual duration.

        An endpoint is slow beyond a slowness of `from_ratio`, by `(slowness - from_ratio)` usual durations,
        at most `most_seconds`.
        """
        faded = np.exp(-np.maximum(now - np.array(self._settled_at), 0.0) / self.memory_seconds)
        exposure = np.array(self._exposure) * faded + in_flight * self.memory_seconds * (1.0 - faded)
        finished = np.array(self._finished) * faded
        measured = (finished >= _KNOWN_FROM) & (exposure > 0.0)
        if not measured.any():
            return None
        usual = lower_median(finished[measured] / exposure[measured])
        slowness = (usual * exposure + PRIOR) / (finished + PRIOR)
        too_fast = (finished >= PRIOR) & (finished > PLAUSIBLE * usual * exposure)
        least = np.where(too_fast, finished / (self.memory_seconds * usual), 0.0)
        self.memory_seconds = min(
            max(_MEMORY_PER_DURATION / usual, LEAST_MEMORY_SECONDS), MOST_MEMORY_SECONDS
        )
        return Judgement(np.clip((slowness - from_ratio) / usual, 0.0, most_seconds), least)
