"""`balanced`: a softmax with temperature 0.2 over 0.4 latency + 0.35 free memory + 0.25 closeness.

Each is normalised to [0, 1], 1 is best: latency is 1 - P99 / a reference latency, free memory 1 - memory,
closeness the share of prompt tokens that the engine finds in its prefix cache. The norms are absolute, not
the pool's least and most, so engines that are nearly alike get nearly equal scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fleet.columns import fill_unknown
from xds_server.weights.columns import decisive

if TYPE_CHECKING:
    from fleet.settings import BalancedSettings
    from xds_server.weights.columns import Columns, FloatArray


def scores(columns: Columns, settings: BalancedSettings) -> FloatArray:
    """Return one score an endpoint, above 0; they sum to 1. Unknown is the peers' mean."""
    latency = fill_unknown(columns["latency_p99_seconds"]) / settings.reference_latency_seconds
    value = (
        settings.latency * (1.0 - np.clip(latency, 0.0, 1.0))
        + settings.free_memory * (1.0 - np.clip(fill_unknown(columns.memory_used_ratio), 0.0, 1.0))
        + settings.closeness * np.clip(fill_unknown(columns["prefix_hit_ratio"]), 0.0, 1.0)
    )
    # The exponent is cut off where a score would round to 0, however low the temperature.
    powers = np.exp(np.maximum((value - value.max(initial=0.0)) / settings.temperature, -700.0))
    result: FloatArray = powers / powers.sum() if powers.size else powers
    return result


def reason(columns: Columns, row: int, settings: BalancedSettings) -> str:
    """Name the known signal that takes most of the value: `p99 1.3 s`, `memory 0.93`, `prefix hits 0.05`."""
    latency = float(columns["latency_p99_seconds"][row])
    memory = float(columns.memory_used_ratio[row])
    hits = float(columns["prefix_hit_ratio"][row])
    return decisive(
        (settings.latency * min(latency / settings.reference_latency_seconds, 1.0), f"p99 {latency:.2g} s"),
        (settings.free_memory * min(memory, 1.0), f"memory {memory:.2f}"),
        (settings.closeness * (1.0 - min(hits, 1.0)), f"prefix hits {hits:.2f}"),
    )
