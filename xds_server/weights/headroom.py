"""`headroom`: 1 / (0.4 memory + 0.3 queue + 0.3 latency), each normalised to [0, 1].

Memory counts against its capacity, the queue (with requests of ours that the engine does not count yet)
against a safe queue, P99 against a reference latency, each cut off at 1. The factors are settings with these
defaults.

An engine that is slow may be far below the reference all the same: ten times 0.1 s is half of 2 s, where its
peers have a twentieth. So latency counts at least as much as the engine is slower than its peers: not at all
up to half of `slow_ratio` times the usual latency of the pool, and in full from `slow_ratio` times on. Its
P50 and its P99 must both be that high, because a P99 rests on a few requests, and long prompts among them are
no fault of the engine. Where no engine is much slower than others, and with `slow_ratio: null`, the formula
stands as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.columns import fill_unknown
from xds_server.weights.columns import decisive

if TYPE_CHECKING:
    import numpy.typing as npt

    from fleet.settings import HeadroomSettings
    from xds_server.weights.columns import Columns, FloatArray, Peers

FLOOR_RATIO: Final = 0.05
"""The sum in the denominator is at least this share of its largest possible value. An idle endpoint would
divide by zero, and differences among nearly idle ones are noise: the best score is 20 times the worst."""

_LEAST_SECONDS: Final = 1e-6
_MOST_SECONDS: Final = 1e12
"""A page may have any number; ratios must not overflow."""
_LONG: Final = 1e6
"""From here on a count is shown with two digits: a page may have any number."""


def scores(columns: Columns, settings: HeadroomSettings) -> FloatArray:
    """Return one score an endpoint, above 0, higher for more headroom. Unknown is the peers' mean."""
    p50, p99 = columns["latency_p50_seconds"], columns["latency_p99_seconds"]
    latency = fill_unknown(p99) / settings.reference_latency_seconds
    slow = slowness(p50, p99, columns.peers(), settings)
    used = (
        settings.memory * np.clip(fill_unknown(columns.memory_used_ratio), 0.0, 1.0)
        + settings.queue * np.clip(fill_unknown(columns.waiting) / settings.safe_queue, 0.0, 1.0)
        + settings.latency * np.maximum(np.clip(latency, 0.0, 1.0), slow)
    )
    full = settings.memory + settings.queue + settings.latency
    result: FloatArray = full / np.maximum(used, FLOOR_RATIO * full)
    return result


def slowness(p50: npt.ArrayLike, p99: npt.ArrayLike, peers: Peers, settings: HeadroomSettings) -> FloatArray:
    """Return how much slower than its peers each endpoint is, in [0, 1]; 0 where that is unknown.

    P50 and P99 are in seconds, NaN is unknown; the smaller of what the two say counts.
    """
    if settings.slow_ratio is None:
        return np.zeros(np.shape(p99))
    times = np.fmin(_times(p50, peers.latency_p50_seconds), _times(p99, peers.latency_p99_seconds))
    result: FloatArray = np.clip(2.0 * np.nan_to_num(times) / settings.slow_ratio - 1.0, 0.0, 1.0)
    return result


def _times(latency: npt.ArrayLike, usual: float) -> FloatArray:
    seconds = np.asarray(latency, dtype=np.float64)
    result: FloatArray = np.minimum(seconds, _MOST_SECONDS) / np.maximum(usual, _LEAST_SECONDS)
    return result


def reason(columns: Columns, row: int, settings: HeadroomSettings, peers: Peers) -> str:
    """Name the known signal that takes most of an endpoint's headroom: `memory 0.93`, `queue 41`, ..."""
    memory, queue = float(columns.memory_used_ratio[row]), float(columns.waiting[row])
    latency = float(columns["latency_p99_seconds"][row])
    share = min(latency / settings.reference_latency_seconds, 1.0)
    slow = float(slowness(columns["latency_p50_seconds"][row], latency, peers, settings))
    text = f"p99 {latency:.2g} s"
    if slow > share:
        text += f", {float(_times(latency, peers.latency_p99_seconds)):.2g} x the pool's"
    return decisive(
        (settings.memory * min(memory, 1.0), f"memory {memory:.2f}"),
        (
            settings.queue * min(queue / settings.safe_queue, 1.0),
            f"queue {queue:.0f}" if queue < _LONG else f"queue {queue:.2g}",
        ),
        (settings.latency * max(share, slow), text),
    )
