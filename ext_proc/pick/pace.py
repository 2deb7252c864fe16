"""How fast a pool's endpoints finish this worker's requests, compared with each other.

The metrics page of an engine that became slow shows it only when its windows have filled, that of an engine
that hangs never. Our own requests in flight show it at once. By Little's law a request leaves an endpoint
`finished / exposure` times a second, where both are sums that fade with `memory_seconds`:

    exposure = requests of ours in flight there, integrated over time          finished = those that ended
    slowness = (usual_rate * exposure + PRIOR) / (finished + PRIOR)            usual_rate = the pool's median

Requests that hang add exposure and no end, so slowness rises before any request has ended. `PRIOR` requests
stand for missing evidence: few requests prove little, and without requests of ours both sums fade, until the
endpoint counts as usual again. `memory_seconds` is twice the usual duration, within bounds. Of an even number
of endpoints the lower of the two middle rates is the usual one: an endpoint that answers at once with errors
must not make its only peer look slow.

Such an endpoint never has requests in flight, and would draw every pick. So an endpoint that finishes more
than `PLAUSIBLE` times as fast as usual counts as if its requests took the usual duration; `forecast` corrects
the requests of others, which it refuses as well. The estimator is the occurrence/exposure rate of survival
analysis, with a prior (Gamma-Poisson shrinkage).
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ext_proc.pick.rows import moved
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
    """Requests that it would have in flight at the usual duration; 0 if its speed is plausible."""


class Pace:
    """Lists over a pool's endpoints, in the pool's order: an event touches one endpoint, a tick all."""

    def __init__(self, size: int) -> None:
        self.memory_seconds = LEAST_MEMORY_SECONDS
        self._exposure = [0.0] * size
        self._finished = [0.0] * size
        self._settled_at = [0.0] * size

    def moved_to(self, sources: NDArray[np.intp]) -> Pace:
        """Return the same for other endpoints, see `rows.moved`."""
        other = Pace(sources.size)
        other.memory_seconds = self.memory_seconds
        for name in ("_exposure", "_finished", "_settled_at"):
            setattr(other, name, moved(np.array(getattr(self, name)), sources).tolist())
        return other

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
        """Compare the endpoints; None without evidence. Adapts the memory to the usual duration.

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
