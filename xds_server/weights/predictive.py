"""`predictive`: (1 - memory) x (1 - min(predicted latency / 5 s, 0.99)).

The predicted latency is what the next request would wait for its first token: the median time to first token
of now, and the same once more for each batch that waits before it:

    predicted = p50 x (1 + waiting / max(running, 1))

where `waiting` is the engine's queue with the requests of ours that it does not tell of yet, and `running`
is how many it computes side by side. An engine that tells no median is taken at its P99. The formula's last
factor, topology (0.8 to 1.0), depends on the Envoy that asks: it is applied for each group of Envoys where
their snapshots are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xds_server.weights.columns import fill_unknown

if TYPE_CHECKING:
    from fleet.load import Load
    from fleet.settings import PredictiveSettings
    from xds_server.weights.columns import Columns, FloatArray


def scores(columns: Columns, settings: PredictiveSettings) -> FloatArray:
    """Return one score an endpoint in [0, 1]. Unknown is the peers' mean, of the prediction too."""
    median = np.where(
        np.isnan(columns.latency_p50_seconds), columns.latency_p99_seconds, columns.latency_p50_seconds
    )
    batches = fill_unknown(columns.waiting) / np.maximum(fill_unknown(columns.running), 1.0)
    predicted = fill_unknown(median * (1.0 + batches))
    share = np.minimum(predicted / settings.reference_seconds, settings.most_latency_share)
    free = 1.0 - np.clip(fill_unknown(columns.memory_used_ratio), 0.0, 1.0)
    result: FloatArray = free * (1.0 - share)
    return result


def reason(load: Load, settings: PredictiveSettings) -> str:
    """Name what takes more of the score: `memory 0.93` or `predicted 3.2 s`."""
    parts: list[tuple[float, str]] = []
    if (memory := load.memory_used_ratio) is not None:
        parts.append((min(memory.value, 1.0), f"memory {memory.value:.2f}"))
    if (median := load.latency_p50_seconds or load.latency_p99_seconds) is not None:
        waiting = load.queue_depth.value if load.queue_depth is not None else 0.0
        running = load.running.value if load.running is not None else 1.0
        predicted = median.value * (1.0 + waiting / max(running, 1.0))
        taken = min(predicted / settings.reference_seconds, settings.most_latency_share)
        parts.append((taken, f"predicted {predicted:.2g} s"))
    if not parts:
        return "unknown"
    taken, text = max(parts, key=lambda part: part[0])
    return text if taken > 0 else "idle"
