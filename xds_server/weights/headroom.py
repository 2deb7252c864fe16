"""`headroom`: 1 / (0.4 memory + 0.3 queue + 0.3 latency), each normalised to [0, 1].

Memory counts against its capacity, the queue (with requests of ours that the engine does not tell of yet)
against a safe queue, P99 against a reference latency, each cut off at 1. The factors are settings with these
defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.weights.columns import fill_unknown

if TYPE_CHECKING:
    from fleet.load import Load
    from fleet.settings import HeadroomSettings
    from xds_server.weights.columns import Columns, FloatArray

FLOOR_RATIO: Final = 0.05
"""The sum in the denominator is at least this share of its largest possible value. An idle endpoint would
divide by zero, and differences among nearly idle ones are noise: the best score is 20 times the worst."""

_LONG: Final = 1e6
"""From here on a count is told with two digits: a page may tell any number."""


def scores(columns: Columns, settings: HeadroomSettings) -> FloatArray:
    """Return one score an endpoint, above 0, higher for more headroom. Unknown is the peers' mean."""
    used = (
        settings.memory * np.clip(fill_unknown(columns.memory_used_ratio), 0.0, 1.0)
        + settings.queue * np.clip(fill_unknown(columns.waiting) / settings.safe_queue, 0.0, 1.0)
        + settings.latency
        * np.clip(fill_unknown(columns.latency_p99_seconds) / settings.reference_latency_seconds, 0.0, 1.0)
    )
    full = settings.memory + settings.queue + settings.latency
    result: FloatArray = full / np.maximum(used, FLOOR_RATIO * full)
    return result


def reason(load: Load, settings: HeadroomSettings) -> str:
    """Name the known signal that takes most of an endpoint's headroom: `memory 0.93`, `queue 41`, ..."""
    parts: list[tuple[float, str]] = []
    if (memory := load.memory_used_ratio) is not None:
        parts.append((settings.memory * min(memory.value, 1.0), f"memory {memory.value:.2f}"))
    if (queue := load.queue_depth) is not None:
        share = min(queue.value / settings.safe_queue, 1.0)
        told = f"{queue.value:.0f}" if queue.value < _LONG else f"{queue.value:.2g}"
        parts.append((settings.queue * share, f"queue {told}"))
    if (latency := load.latency_p99_seconds) is not None:
        share = min(latency.value / settings.reference_latency_seconds, 1.0)
        parts.append((settings.latency * share, f"p99 {latency.value:.2g} s"))
    if not parts:
        return "unknown"
    taken, text = max(parts, key=lambda part: part[0])
    return text if taken > 0 else "idle"
