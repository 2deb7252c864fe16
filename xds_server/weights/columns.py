"""Loads as columns over endpoints: the form in which strategies compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, nan
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.memory import memory_that_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.load import Load, Signal
    from fleet.settings.weights import Memory

FloatArray = npt.NDArray[np.float64]
"""One number an endpoint, in the order of the pool."""
BoolArray = npt.NDArray[np.bool_]


_FIELDS: Final = (
    "memory_used_ratio",
    "queue_depth",
    "running",
    "in_flight",
    "latency_p50_seconds",
    "latency_p99_seconds",
    "prefix_hit_ratio",
    "reachable",
    "stalled",
    "trust_ratio",
    "gpu_health_score",
    "ready",
    "gpu_memory_used_ratio",
)
_read: Final = attrgetter(*_FIELDS)
_MOST: Final = 1e12
"""No count and no duration is larger; a page may tell any number, and sums and products must not overflow."""
_MEMORY, _QUEUE, _RUNNING, _IN_FLIGHT = range(4)
_REACHABLE: Final = 7
_GPU_MEMORY, _WAITING, _FAULTY = range(len(_FIELDS) - 1, len(_FIELDS) + 2)


class Peers(NamedTuple):
    """What is usual in a pool: the lower median of the known, which of two is the better; NaN is unknown."""

    latency_p50_seconds: float = nan
    latency_p99_seconds: float = nan


@dataclass(frozen=True, slots=True)
class Columns:
    """One row a signal, one column an endpoint; NaN is unknown. One array, so a pool is one slice of it."""

    table: FloatArray
    """Rows as `_FIELDS`, the first the memory that counts; then `waiting`, and 1 where a fault shows."""

    @classmethod
    def of(cls, loads: Sequence[Load], memory: Memory = "kv", oldest: float = -inf) -> Columns:
        """Lay the loads out; signals observed before `oldest` are unknown."""
        if not loads:
            return cls(np.zeros((len(_FIELDS) + 2, 0)))
        rows = [
            [nan if held is None or held[1] < oldest else held[0] for held in column]
            for column in zip(*map(_read, loads), strict=True)
        ]
        table = np.minimum(np.array([*rows, rows[_QUEUE], rows[_QUEUE]], dtype=np.float64), _MOST)
        table[_MEMORY] = memory_that_counts(memory, table[_MEMORY], table[_GPU_MEMORY])
        # NaN where one of the three is unknown: then nothing is known to be on its way.
        unseen = table[_IN_FLIGHT] - table[_QUEUE] - table[_RUNNING]
        table[_WAITING] += np.where(unseen > 0, unseen, 0.0)
        reachable, stalled, trust, health, ready = table[_REACHABLE:_GPU_MEMORY]
        table[_FAULTY] = (reachable < 1) | (stalled > 0) | (trust < 1) | (health < 1) | (ready < 1)
        return cls(table)

    def part(self, start: int, end: int) -> Columns:
        """Return the columns of the endpoints from `start` up to `end`; they share the memory."""
        return Columns(self.table[:, start:end])

    def __len__(self) -> int:
        """How many endpoints."""
        return int(self.table.shape[1])

    @property
    def memory_used_ratio(self) -> FloatArray:
        """The memory that `weights.memory` chooses, 0 to 1."""
        return self._row(_MEMORY)

    @property
    def queue_depth(self) -> FloatArray:
        """Requests waiting in the engine, as it tells."""
        return self._row(_QUEUE)

    @property
    def running(self) -> FloatArray:
        """Requests being computed, as the engine tells."""
        return self._row(_RUNNING)

    @property
    def waiting(self) -> FloatArray:
        """The queue, and requests of ours that are on their way while the engine does not tell of them yet.

        Gauges are up to a scrape old: without this, everybody's traffic goes for that long to whoever looked
        idle.
        """
        return self._row(_WAITING)

    @property
    def latency_p50_seconds(self) -> FloatArray:
        """Median time to first token."""
        return self._row(4)

    @property
    def latency_p99_seconds(self) -> FloatArray:
        """P99 of the same."""
        return self._row(5)

    @property
    def prefix_hit_ratio(self) -> FloatArray:
        """Share of prompt tokens found in the prefix cache."""
        return self._row(6)

    @property
    def reachable(self) -> FloatArray:
        """0 where the port refused or gave no connection."""
        return self._row(7)

    @property
    def stalled(self) -> FloatArray:
        """1 where the engine hangs."""
        return self._row(8)

    @property
    def trust_ratio(self) -> FloatArray:
        """1 while answers are good."""
        return self._row(9)

    @property
    def gpu_health_score(self) -> FloatArray:
        """1.0 fine, 0.9 transient faults, 0.4 isolated, 0.0 drained."""
        return self._row(10)

    @property
    def ready(self) -> FloatArray:
        """0 where the probe has to pass first."""
        return self._row(11)

    def any_fault(self) -> bool:
        """Whether anything but memory says that an endpoint is not sound."""
        return bool(self._row(_FAULTY).any())

    def blind(self) -> bool:
        """Whether no engine tells memory, queue or running; what Envoys and workers see is no page."""
        return bool(np.isnan(self.table[: _RUNNING + 1]).all())

    def idle(self) -> BoolArray:
        """Which engines say that they hold nothing at all and nothing of ours is known to be there.

        An engine that tells no running requests is taken at its word on memory instead.
        """
        running, memory = self.running, self.memory_used_ratio
        none_runs = np.where(np.isnan(running), memory <= 0, running <= 0)
        result: BoolArray = none_runs & (self.waiting <= 0)
        return result

    def peers(self) -> Peers:
        """Return what is usual among these."""
        return Peers(_lower_median(self.latency_p50_seconds), _lower_median(self.latency_p99_seconds))

    def _row(self, number: int) -> FloatArray:
        row: FloatArray = self.table[number]
        return row


def fill_unknown(column: FloatArray) -> FloatArray:
    """Return the column with each unknown counted as the mean of the known.

    A column without any known value becomes 0 throughout: equal for all, so it decides nothing.
    """
    known = np.isfinite(column)
    if known.all():
        return column
    neutral = column[known].mean() if known.any() else 0.0
    return np.where(known, column, neutral)


def as_strategies_see(load: Load, memory: Memory) -> Load:
    """Return the load with the memory and the queue that `Columns` has of it: for reasons."""
    held = load.memory_used_ratio, load.gpu_memory_used_ratio
    known: list[Signal] = [signal for signal in held if signal is not None]
    chosen: Signal | None
    if memory == "highest":
        chosen = max(known, default=None, key=lambda signal: signal.value)
    else:
        chosen = held[memory == "gpu"]
    queue = load.queue_depth
    if queue is not None and load.running is not None and load.in_flight is not None:
        unseen = load.in_flight.value - queue.value - load.running.value
        queue = queue._replace(value=queue.value + max(0.0, unseen))
    if chosen is load.memory_used_ratio and queue is load.queue_depth:
        return load
    return replace(load, memory_used_ratio=chosen, queue_depth=queue)


def _lower_median(column: FloatArray) -> float:
    known = np.sort(column[np.isfinite(column)])
    return float(known[(known.size - 1) // 2]) if known.size else nan
