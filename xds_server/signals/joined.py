"""One endpoint's load out of what its sources tell. Pure.

How two sources of one number are merged: the engine's own time to first token wins while it is fresh, because
it holds no network and no queue of Envoy's; without it, the first byte that Envoys saw stands in. Nothing
else has two sources. Signals of the engine's page that have only just come back do not count yet.
"""

from __future__ import annotations

from math import nan
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.load import LOAD_FIELDS, Load, Signal
from xds_server.signals.decay import FADING_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xds_server.signals.passive.served import ServedColumns
    from xds_server.signals.rows import BoolArray, FloatArray
    from xds_server.signals.traffic import TrafficColumns

UNKNOWN: Final = Load()
all_of: Final[Callable[[Load], tuple[Signal | None, ...]]] = attrgetter(*LOAD_FIELDS)
"""Every signal of a load, in the order of its fields."""
AT: Final = {name: place for place, name in enumerate(LOAD_FIELDS)}
"""Field to its place in that order."""
FADING: Final = tuple(AT[name] for name in FADING_FIELDS)
READ_AT, PROGRESS, BUSY, REACHABLE = range(4)
"""Columns of what a page tells; behind them those of `FADING` that an engine tells."""
_OF_PAGE: Final = FADING[:5]
PAGE_COLUMNS: Final = 4 + len(_OF_PAGE)

_ENVOY: Final = "access_log"
_TRAFFIC: Final = "traffic"
_PROBE: Final = "probe"
_FADED: Final = "faded"
_RATIO_DIGITS: Final = 2
_P50, _P99 = AT["latency_p50_seconds"], AT["latency_p99_seconds"]
_PROGRESS, _RUNNING, _QUEUE = AT["progress_total"], AT["running"], AT["queue_depth"]
_REACHABLE, _IN_FLIGHT = AT["reachable"], AT["in_flight"]
_STALLED, _TRUST, _READY = AT["stalled"], AT["trust_ratio"], AT["ready"]
_PICKED_P99: Final = AT["picked_duration_p99_seconds"]
_OF_ENVOY: Final = tuple(
    AT[name]
    for name in (
        "first_byte_p50_seconds",
        "first_byte_p99_seconds",
        "duration_p99_seconds",
        "requests_per_second",
        "error_ratio",
    )
)
_LATENCIES: Final = 3
_RATE: Final = 3
_PICKED_COLUMN: Final = 6
"""Of a line of `columns_of`."""
"""The first of `_OF_ENVOY`, which are as old as the newest answer."""


def joined(
    base: Load,
    gpus: Mapping[str, Signal] | None,
    numbers: list[float],
    seen_at: float,
    now: float,
    stale_after_seconds: float,
) -> list[Signal | None]:
    """Return every signal of one endpoint, in the order of `Load`'s fields.

    Args:
        base: what its page tells.
        gpus: what its GPUs tell, by field.
        numbers: its line of `columns_of`.
        seen_at: when the newest answer came of which Envoys' latencies know.
        now: on the clock of every `observed_at`.
        stale_after_seconds: an older latency of the engine's gives way to Envoys'.
    """
    values = _held_back(base) if numbers[-1] else list(all_of(base))
    if gpus:
        for name, held in gpus.items():
            values[AT[name]] = held
    _add_envoy(values, numbers, seen_at, now, stale_after_seconds)
    _add_own(values, numbers, now)
    return values


def with_faded(load: Load, faded: Mapping[int, float]) -> Load:
    """Return a copy in which the signals at these places of `FADING` have faded to these values."""
    values = list(all_of(load))
    for column, value in faded.items():
        held = values[FADING[column]]
        if held is not None:
            values[FADING[column]] = Signal(value, held.observed_at, _FADED)
    return Load(*values)


def page_of(base: Load, before: float) -> list[float]:
    """Return the page's columns. It was read when its newest signal was, or at `before`."""
    values = all_of(base)
    progress, running, queue = values[_PROGRESS], values[_RUNNING], values[_QUEUE]
    reachable = values[_REACHABLE]
    read_at = before
    for place, held in enumerate(values):
        if held is not None and held[1] > read_at and place != _REACHABLE:
            read_at = held[1]
    busy = nan if running is None else running[0] + (queue[0] if queue is not None else 0.0)
    told = [nan if (held := values[place]) is None else held[0] for place in _OF_PAGE]
    moved, there = (nan if held is None else held[0] for held in (progress, reachable))
    return [read_at, moved, busy, there, *told]


def fading_columns(
    pages: FloatArray, columns: FloatArray, latency_at: FloatArray, since: float
) -> FloatArray:
    """Return the signals of `FADING`, one column each; what is older than `since` or held back is unknown."""
    counts = (pages[:, READ_AT] >= since) & (columns[:, -1] == 0)
    of_page = np.where(counts[:, None], pages[:, 4:], np.nan)
    of_envoy = np.where((latency_at >= since)[:, None], columns[:, :_LATENCIES], np.nan)
    latencies = np.where(np.isfinite(of_page[:, 3:]), of_page[:, 3:], of_envoy[:, :2])
    return np.column_stack((of_page[:, :3], latencies, of_envoy, columns[:, _PICKED_COLUMN]))


def columns_of(
    envoy: ServedColumns,
    traffic: TrafficColumns,
    stalled: FloatArray,
    trust: FloatArray,
    not_ready: BoolArray,
    held_back: BoolArray,
    *,
    listening: bool,
) -> FloatArray:
    """Lay out what a load is built from besides its page; rounded where noise would rebuild it."""
    unknown = np.full(len(trust), np.nan)
    return np.column_stack(
        (
            envoy.first_byte_p50_seconds,
            envoy.first_byte_p99_seconds,
            envoy.duration_p99_seconds,
            np.round(envoy.requests_per_second, 1) if listening else unknown,
            np.round(envoy.error_ratio, _RATIO_DIGITS),
            traffic.in_flight,
            traffic.duration_p99_seconds,
            stalled,
            np.round(trust, _RATIO_DIGITS) if listening else np.where(trust < 1, np.round(trust, 2), np.nan),
            np.where(not_ready, 0.0, np.nan),
            held_back,
        )
    )


def differ(columns: FloatArray, before: FloatArray) -> BoolArray:
    """Return which rows tell something else than before. Rates drift with every look: they do not count."""
    if columns.shape != before.shape:
        return np.ones(len(columns), np.bool_)
    moved = (columns != before) & ~(np.isnan(columns) & np.isnan(before))
    moved[:, _RATE] = False
    result: BoolArray = moved.any(axis=1)
    return result


def _held_back(base: Load) -> list[Signal | None]:
    """Signals of a page that has only just come back: what it says of the engine's life, and no more."""
    values: list[Signal | None] = [None] * len(LOAD_FIELDS)
    values[_PROGRESS], values[_REACHABLE] = base.progress_total, base.reachable
    return values


def _add_envoy(
    values: list[Signal | None], numbers: list[float], seen_at: float, now: float, stale_after: float
) -> None:
    for column, place in enumerate(_OF_ENVOY):
        number = numbers[column]
        if number == number:  # Not NaN; this runs for every endpoint.
            values[place] = Signal(number, seen_at if column < _LATENCIES else now, _ENVOY)
    for place, first_byte in ((_P50, values[_OF_ENVOY[0]]), (_P99, values[_OF_ENVOY[1]])):
        own = values[place]
        if first_byte is not None and (own is None or now - own[1] > stale_after):
            values[place] = first_byte


def _add_own(values: list[Signal | None], numbers: list[float], now: float) -> None:
    in_flight, picked_p99, stalled, trust, ready = numbers[5:10]
    values[_IN_FLIGHT] = Signal(in_flight, now, _TRAFFIC) if in_flight == in_flight else None
    values[_PICKED_P99] = Signal(picked_p99, now, _TRAFFIC) if picked_p99 == picked_p99 else None
    values[_STALLED] = Signal(stalled, now, _TRAFFIC) if stalled == stalled else None
    values[_TRUST] = Signal(trust, now, _ENVOY) if trust == trust else None
    values[_READY] = Signal(ready, now, _PROBE) if ready == ready else None
