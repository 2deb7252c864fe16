"""What strategies compute on: the fresh signals of a fleet or of one pool, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.columns import lower_median, memory_that_counts

if TYPE_CHECKING:
    from fleet.settings.weights import Memory
    from fleet.signals import SignalTable

FloatArray = npt.NDArray[np.float64]
"""One number an endpoint, in the order of the pool."""
BoolArray = npt.NDArray[np.bool_]

_MOST: Final = 1e12
"""No count and no duration is larger; a page may have any number, and sums and products must not overflow."""


class Peers(NamedTuple):
    """What is usual in a pool: the lower median of the known, which of two is the better; NaN is unknown."""

    latency_p50_seconds: float = nan
    latency_p99_seconds: float = nan


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns in the order of the endpoints; NaN is unknown."""

    signals: SignalTable
    """Fresh ones only, at most a number with which formulas do not overflow."""
    memory_used_ratio: FloatArray
    """The memory that `weights.memory` chooses, 0 to 1."""
    waiting: FloatArray
    """The queue, and requests of ours that are on their way while the engine does not count them yet.

    Gauges are up to a scrape old: without this, all traffic goes for that long to an engine that was idle.
    """
    faulty: BoolArray
    """Whether anything but memory says that an endpoint is not sound."""

    @classmethod
    def of(cls, signals: SignalTable, memory: Memory = "kv") -> Columns:
        """Add to fresh signals what follows from them."""
        signals = replace(signals, values=np.minimum(signals.values, _MOST))
        queue, running = signals["queue_depth"], signals["running"]
        # NaN where one of the three is unknown: then nothing is known to be on its way.
        uncounted = signals["in_flight"] - queue - running
        faulty = (signals["reachable"] < 1) | (signals["stalled"] > 0) | (signals["trust_ratio"] < 1)
        faulty |= (signals["gpu_health_score"] < 1) | (signals["ready"] < 1)
        return cls(
            signals,
            memory_that_counts(memory, signals["memory_used_ratio"], signals["gpu_memory_used_ratio"]),
            queue + np.where(uncounted > 0, uncounted, 0.0),
            faulty,
        )

    def part(self, start: int, end: int) -> Columns:
        """Return the columns of the endpoints from `start` up to `end`; they share the memory."""
        return Columns(
            self.signals.part(start, end),
            self.memory_used_ratio[start:end],
            self.waiting[start:end],
            self.faulty[start:end],
        )

    def __len__(self) -> int:
        """How many endpoints."""
        return len(self.signals)

    def __getitem__(self, name: str) -> FloatArray:
        """Return one signal of every endpoint."""
        return self.signals[name]

    def blind(self) -> bool:
        """Whether no engine shows memory, queue or running; figures of Envoys and workers are no page."""
        load_columns = (self.memory_used_ratio, self.signals["queue_depth"], self.signals["running"])
        return all(np.isnan(column).all() for column in load_columns)

    def idle(self) -> BoolArray:
        """Return which engines say that they are empty while nothing of ours is known to be there.

        Where running requests are unknown, empty memory counts instead.
        """
        running, memory = self.signals["running"], self.memory_used_ratio
        none_runs = np.where(np.isnan(running), memory <= 0, running <= 0)
        result: BoolArray = none_runs & (self.waiting <= 0)
        return result

    def peers(self) -> Peers:
        """Return what is usual among these."""
        return Peers(lower_median(self["latency_p50_seconds"]), lower_median(self["latency_p99_seconds"]))


def decisive(*parts: tuple[float, str]) -> str:
    """Return the text of the largest part: what takes most of a score. A part that is NaN is unknown."""
    certain = [part for part in parts if not isnan(part[0])]
    if not certain:
        return "unknown"
    largest, text = max(certain, key=lambda part: part[0])
    return text if largest > 0 else "idle"
