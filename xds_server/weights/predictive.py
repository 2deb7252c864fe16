"""`predictive`: (1 - memory) x (1 - min(predicted latency / 5 s, 0.99)).

The predicted latency is what the next request would wait for its first token: the median time to first token
of now, and the same once more for each batch that waits before it:

    predicted = p50 x (1 + waiting / max(running, 1))

where `waiting` is the engine's queue with the requests of ours that it does not count yet, and `running` is
how many it computes side by side. All three signals are taken at the P90 of their forecasts, where there are
any (`xds_server/signals/forecast/`): a weight counts for the time until the next one. An engine without a
median is taken at its P99. The formula's last factor, topology (0.8 to 1.0), depends on the Envoy: it is
applied for each group of Envoys where their snapshots are made.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.columns import fill_unknown
from xds_server.weights.columns import decisive

if TYPE_CHECKING:
    from fleet.settings import PredictiveSettings
    from xds_server.weights.columns import Columns, FloatArray

_QUANTILE: Final = "p90"
"""Of the forecasts: what may come counts, not what is likely."""


def scores(columns: Columns, settings: PredictiveSettings) -> FloatArray:
    """Return one score an endpoint in [0, 1]. Unknown is the peers' mean, of the prediction too."""
    memory, waiting, running = _ahead(columns)
    batches = fill_unknown(waiting) / np.maximum(fill_unknown(running), 1.0)
    predicted = fill_unknown(_median(columns) * (1.0 + batches))
    share = np.minimum(predicted / settings.reference_seconds, settings.most_latency_share)
    free = 1.0 - np.clip(fill_unknown(memory), 0.0, 1.0)
    result: FloatArray = free * (1.0 - share)
    return result


def reason(columns: Columns, row: int, settings: PredictiveSettings) -> str:
    """Name what takes more of the score: `memory 0.93` or `predicted 3.2 s`."""
    memory, waiting, running = (float(column[row]) for column in _ahead(columns))
    batches = (0.0 if isnan(waiting) else waiting) / (1.0 if isnan(running) else max(running, 1.0))
    predicted = float(_median(columns)[row]) * (1.0 + batches)
    share = min(predicted / settings.reference_seconds, settings.most_latency_share)
    return decisive((min(memory, 1.0), f"memory {memory:.2f}"), (share, f"predicted {predicted:.2g} s"))


def _ahead(columns: Columns) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return memory, waiting and running by their forecasts, where these are known."""
    memory, waiting = columns.memory_used_ratio, columns.waiting
    # A forecast is that of the KV cache, whatever memory counts.
    of_memory = np.where(memory == columns["memory_used_ratio"], _change(columns, "memory_used_ratio"), 0.0)
    running = columns["running"] + _change(columns, "running")
    return memory + of_memory, waiting + _change(columns, "queue_depth"), running


def _change(columns: Columns, name: str) -> FloatArray:
    """Return the expected change of a signal; 0 without a forecast."""
    change: FloatArray = np.nan_to_num(columns[f"{name}_forecast_{_QUANTILE}"] - columns[name])
    return change


def _median(columns: Columns) -> FloatArray:
    """Return the median time to the first token; the P99 where it is unknown."""
    p50 = columns["latency_p50_seconds"]
    return np.where(np.isnan(p50), columns["latency_p99_seconds"], p50)
