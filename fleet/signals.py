"""The fleet's signals as one table: a row each signal, a column each endpoint. NaN is unknown, never 0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from math import isfinite, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

SIGNALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "memory_used_ratio": "KV cache in use, 0 to 1",
        "queue_depth": "Requests waiting in the engine",
        "running": "Requests being computed in the engine",
        "latency_p50_seconds": "Median time to first token over the window, from the engine; without it, the "
        "median time to the first byte that Envoys saw",
        "latency_p99_seconds": "P99 of the same",
        "prefix_hit_ratio": "Share of prompt tokens found in the prefix cache over the window, 0 to 1",
        "prefix_caching": "1 where the engine keeps prefixes, by its page; 0 where it keeps none",
        "kv_capacity_tokens": "Tokens that the KV cache holds",
        "context_tokens": "Longest prompt with its answer that the engine takes, by its list of models",
        "prefill_tokens_per_second": "Prefill rate over the window, without cached tokens",
        "prefilling_mean": "Mean number of requests in prefill at once over the window: the work behind the "
        "rate",
        "prompt_tokens_per_second": "Prompt tokens taken in over the window, with cached ones",
        "generation_tokens_per_second": "Tokens generated over the window",
        "prompt_tokens_mean": "Mean length of the prompts that finished in the window",
        "prompt_tokens_variance": "Variance of the same, in tokens squared",
        "generation_tokens_mean": "Mean length of the answers that finished in the window",
        "preemptions_per_second": "Requests that lost their place in the KV cache",
        "batch_limit": "The most requests that the engine computes at once",
        "kv_fragmentation_ratio": "Share of the KV cache in use that holds no token, 0 to 1",
        "awake": "1 while the engine is awake; 0 while it sleeps and serves nothing until somebody wakes it",
        "first_tokens_total": "Answers begun; only its growth has a meaning",
        "first_token_seconds_total": "Sum of their times to first token, from the engine",
        "progress_total": "Sum of the engine's counters that grow while it works; only its movement has a "
        "meaning",
        "gpu_memory_used_ratio": "Of the fullest of the endpoint's GPUs, against its own memory, 0 to 1",
        "gpu_memory_total_bytes": "Of all its GPUs",
        "gpu_utilisation_ratio": "Mean of its GPUs, 0 to 1",
        "gpu_temperature_celsius": "Of the hottest GPU",
        "gpu_power_ratio": "Power over the enforced limit, of the GPU nearest to it; above 1 at times",
        "gpu_throttled_ratio": "Share of its GPUs whose clocks hardware slows down, 0 to 1",
        "gpu_health_score": "Of the worst GPU: 1.0 fine, 0.9 transient faults, 0.4 isolated, 0.0 drained",
        "first_byte_p50_seconds": "Median time to the first byte of answers without errors, from Envoys",
        "first_byte_p99_seconds": "P99 of the same",
        "duration_p99_seconds": "From the request's start to the last byte of its answer, from Envoys",
        "requests_per_second": "Requests finished through Envoys over the window",
        "error_ratio": "Share of 5xx answers and failed connections over `signals.error_window_seconds`; 4xx "
        "is no error",
        "in_flight": "Requests of ours on their way, over all ext_proc workers",
        "picked_duration_p99_seconds": "End to end, of requests that ext_proc picked it for; the slowest "
        "worker's",
        "stalled": "1 when it hangs while requests of ours wait; 0 when it works",
        "trust_ratio": "1 while its answers are good; falls with failures, grows with successes, never 0",
        "reachable": "1 when the engine's metrics page answered; 0 when its port refused the connection, "
        "gave none twice in a row, or has no route",
        "ready": "0 while its probe has to pass before it gets anything new: it has restarted, or fails",
        "queue_depth_forecast_p50": "Median forecast of `queue_depth` for `weights.forecast.horizon_seconds` "
        "ahead",
        "queue_depth_forecast_p90": "P90 of the same",
        "running_forecast_p50": "Median forecast of `running`",
        "running_forecast_p90": "P90 of the same",
        "memory_used_ratio_forecast_p50": "Median forecast of `memory_used_ratio`",
        "memory_used_ratio_forecast_p90": "P90 of the same",
    }
)
"""Name to meaning, in the order of a table's rows. The unit stands in the name."""
ROW: Final[Mapping[str, int]] = MappingProxyType({name: row for row, name in enumerate(SIGNALS)})
"""Name to row."""
SHARES: Final = frozenset(
    (
        "memory_used_ratio",
        "prefix_hit_ratio",
        "kv_fragmentation_ratio",
        "gpu_memory_used_ratio",
        "gpu_utilisation_ratio",
    )
)
"""Signals that are parts of a whole."""
PICK_SIGNALS: Final = (
    "memory_used_ratio",
    "queue_depth",
    "running",
    "latency_p50_seconds",
    "latency_p99_seconds",
    "prefix_hit_ratio",
    "prefix_caching",
    "kv_capacity_tokens",
    "context_tokens",
    "prefill_tokens_per_second",
    "prefilling_mean",
    "first_tokens_total",
    "first_token_seconds_total",
    "generation_tokens_per_second",
    "batch_limit",
    "gpu_memory_used_ratio",
    "gpu_health_score",
    "error_ratio",
    "stalled",
    "trust_ratio",
    "reachable",
    "ready",
    "progress_total",
    "queue_depth_forecast_p50",
)
"""Signals that picks read: these travel to ext_proc workers that run apart."""
_ROUNDING: Final = 1.01
MOST: Final = 2.0**53
"""Of any number: beyond it no page counts in ones, and sums and products of picks would overflow."""


class Source(IntEnum):
    """Where a number was observed."""

    NONE = 0
    """Unknown."""
    SCRAPE = 1
    ACCESS_LOG = 2
    TRAFFIC = 3
    PROBE = 4
    FADED = 5
    """A scraped or logged number that has decayed (`xds_server/signals/decay.py`)."""
    NVML = 6
    DCGM = 7
    CONTROL = 8
    """xds_server, for a worker that runs apart."""
    FORECAST = 9
    """Computed of a scraped number (`xds_server/signals/forecast/`), and as old as that."""

    @property
    def label(self) -> str:
        """Its name in metrics and traces."""
        return self.name.lower()


def rows_of(names: Iterable[str]) -> NDArray[np.intp]:
    """Return the rows of some signals, as an index of `SignalTable.values`."""
    return np.array([ROW[name] for name in names], np.intp)


def checked(name: str, value: float | None) -> float:
    """Return a valid number of a signal, or NaN.

    A number that is not finite, is below 0 or beyond `MOST` is invalid. So is a share above 1: it may be a
    percentage.
    """
    if value is None or not isfinite(value) or not 0 <= value <= MOST:
        return nan
    if value > 1.0 and name in SHARES:
        return 1.0 if value <= _ROUNDING else nan
    return float(value)


def valid_values(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the valid numbers of some signals."""
    valid = {}
    for name, value in values.items():
        if (number := checked(name, value)) == number:  # not NaN
            valid[name] = number
    return valid


@dataclass(frozen=True, slots=True, eq=False)
class SignalTable:
    """The signals of some endpoints at one moment; the arrays cannot be written to."""

    addresses: tuple[str, ...]
    """The endpoints, in the order of the columns."""
    values: NDArray[np.float64]
    """One row a signal of `SIGNALS`, one column an endpoint: finite and not negative; NaN is unknown."""
    observed_at: NDArray[np.float64]
    """Of the same shape, in seconds on this process's monotonic clock; NaN where nothing was observed."""
    sources: NDArray[np.uint8]
    """Of the same shape: a `Source` each."""

    def __post_init__(self) -> None:
        for array in (self.values, self.observed_at, self.sources):
            array.flags.writeable = False

    @classmethod
    def unknown(cls, addresses: tuple[str, ...]) -> Self:
        """Return a table of unknown signals."""
        shape = len(SIGNALS), len(addresses)
        values = np.full(shape, nan)
        return cls(addresses, values, values, np.zeros(shape, np.uint8))

    def __len__(self) -> int:
        """How many endpoints."""
        return len(self.addresses)

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Return one signal of every endpoint."""
        column: NDArray[np.float64] = self.values[ROW[name]]
        return column

    def at(self, name: str) -> NDArray[np.float64]:
        """Return when one signal of every endpoint was observed."""
        column: NDArray[np.float64] = self.observed_at[ROW[name]]
        return column

    def endpoint_values(self, column: int) -> dict[str, float]:
        """Return the signals of one endpoint by name, without unknown ones."""
        numbers = self.values[:, column].tolist()
        return {name: value for name, value in zip(SIGNALS, numbers, strict=True) if value == value}

    def fresh(self, oldest: float) -> Self:
        """Return the table in which signals observed before `oldest` are unknown."""
        # NaN compares false, so unknown values stay unknown.
        return replace(self, values=np.where(self.observed_at < oldest, nan, self.values))

    def part(self, start: int, end: int) -> Self:
        """Return the table of the endpoints from `start` up to `end`; it shares the memory."""
        columns = slice(start, end)
        return replace(
            self,
            addresses=self.addresses[columns],
            values=self.values[:, columns],
            observed_at=self.observed_at[:, columns],
            sources=self.sources[:, columns],
        )

    def arranged(self, addresses: tuple[str, ...]) -> Self:
        """Return the table of these endpoints in this order; signals of absent ones are unknown."""
        if addresses is self.addresses or addresses == self.addresses:
            return self
        column_of = {address: column for column, address in enumerate(self.addresses)}
        from_ = np.array([column_of.get(address, -1) for address in addresses], np.intp)
        to = from_ >= 0
        shape = len(SIGNALS), len(addresses)
        values, observed_at, sources = np.full(shape, nan), np.full(shape, nan), np.zeros(shape, np.uint8)
        values[:, to], observed_at[:, to] = self.values[:, from_[to]], self.observed_at[:, from_[to]]
        sources[:, to] = self.sources[:, from_[to]]
        return replace(self, addresses=addresses, values=values, observed_at=observed_at, sources=sources)

    def with_row(self, name: str, numbers: NDArray[np.float64]) -> Self:
        """Return the table with other numbers for one signal."""
        values = self.values.copy()
        values[ROW[name]] = numbers
        return replace(self, values=values)

    def same_observations(self, other: Self, rows: NDArray[np.intp]) -> bool:
        """Whether both have the same numbers and times in some rows (see `rows_of`)."""
        return np.array_equal(self.values[rows], other.values[rows], equal_nan=True) and np.array_equal(
            self.observed_at[rows], other.observed_at[rows], equal_nan=True
        )
