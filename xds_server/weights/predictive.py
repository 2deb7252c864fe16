"""`predictive`: (1 - memory) x (1 - min(predicted latency / 5 s, 0.99)).

The predicted latency is what the next request would wait for its first token: the median time to first token
of now, and the same once more for each batch that waits before it:

    predicted = p50 x (1 + waiting / max(running, 1))

where `waiting` is the engine's queue with the requests of ours that it does not count yet, and `running` is
how many it computes side by side. An engine without a median is taken at its P99. The formula's last
factor, topology (0.8 to 1.0), depends on the Envoy: it is applied for each group of Envoys where
their snapshots are made.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from fleet.columns import fill_unknown
from xds_server.weights.columns import decisive

if TYPE_CHECKING:
    from fleet.settings import PredictiveSettings
    from xds_server.weights.columns import Columns, FloatArray


def scores(columns: Columns, settings: PredictiveSettings) -> FloatArray:
    """Return one score an endpoint in [0, 1]. Unknown is the peers' mean, of the prediction too."""
    batches = fill_unknown(columns.waiting) / np.maximum(fill_unknown(columns["running"]), 1.0)
    predicted = fill_unknown(_median(columns) * (1.0 + batches))
    share = np.minimum(predicted / settings.reference_seconds, settings.most_latency_share)
    free = 1.0 - np.clip(fill_unknown(columns.memory_used_ratio), 0.0, 1.0)
    result: FloatArray = free * (1.0 - share)
    return result


def reason(columns: Columns, row: int, settings: PredictiveSettings) -> str:
    """Name what takes more of the score: `memory 0.93` or `predicted 3.2 s`."""
    memory, median = float(columns.memory_used_ratio[row]), float(_median(columns)[row])
    waiting, running = float(columns.waiting[row]), float(columns["running"][row])
    batches = (0.0 if isnan(waiting) else waiting) / (1.0 if isnan(running) else max(running, 1.0))
    predicted = median * (1.0 + batches)
    share = min(predicted / settings.reference_seconds, settings.most_latency_share)
    return decisive((min(memory, 1.0), f"memory {memory:.2f}"), (share, f"predicted {predicted:.2g} s"))


def _median(columns: Columns) -> FloatArray:
    """Return the median time to the first token; the P99 where it is unknown."""
    p50 = columns["latency_p50_seconds"]
    return np.where(np.isnan(p50), columns["latency_p99_seconds"], p50)
