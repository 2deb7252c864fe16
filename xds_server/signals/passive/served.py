"""Finished requests as windows over each endpoint. I/O-free; whose fault is whose stands in `finished.py`."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from xds_server.access_log.finished import HOST_FLAGS, SWITCHED, Finished
from xds_server.signals.passive.lenient import BLAMING, Lenient
from xds_server.signals.passive.log_histogram import FleetHistogram
from xds_server.signals.rows import FloatArray, IntArray, relaid

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fleet.settings import SignalSettings

_PENDING: Final = 1024
"""Requests taken in before they are counted in the windows: a bound, and what makes counting cheap."""
_ERROR_SLICES: Final = 10
_MOST_SLICES: Final = 600
_QUANTILES: Final = (0.5, 0.99)
_OK, _CLIENT_ERROR, _FAULT, _ABORTED, _RETRIED = range(5)
_KINDS: Final = 5
_NONE, _PICKED, _IN_SESSION, _DRAWN = range(4)
"""Whether the host answered to the end, and how the request came to it."""


class Recent(NamedTuple):
    """What has come since the last look, one number a row."""

    ok: IntArray
    """Answers below 400."""
    faults: IntArray
    answered: IntArray
    """Answers of any status that the host gave to its end: it works."""
    by_weight: IntArray
    """Those of them that went there without a pick."""
    drawn: IntArray
    """Those of these that had no session either."""


class ServedColumns(NamedTuple):
    """One number a row; NaN is unknown. Those named as signals have their units."""

    first_byte_p50_seconds: FloatArray
    first_byte_p99_seconds: FloatArray
    duration_p99_seconds: FloatArray
    requests_per_second: FloatArray
    error_ratio: FloatArray
    latency_at: FloatArray
    """When the newest answer came that the latencies know of."""


class ServedWindows:
    """Windows over finished requests; bounded by the membership. `now` never goes back."""

    def __init__(self, settings: SignalSettings, lenient: Lenient = BLAMING) -> None:
        """Take the lengths of the windows, and which retries blame no engine."""
        self.lenient = lenient
        self._rows: dict[str, int] = {}
        self._error_slices = _ERROR_SLICES
        self._slice_seconds = settings.error_window_seconds / _ERROR_SLICES
        slices = max(_ERROR_SLICES, ceil(settings.latency_window_seconds / self._slice_seconds))
        self._counts: npt.NDArray[np.uint32] = np.zeros((min(slices, _MOST_SLICES), 0, _KINDS), np.uint32)
        self._newest = 0
        self._first_bytes = FleetHistogram(0, settings.latency_window_seconds)
        self._durations = FleetHistogram(0, settings.latency_window_seconds)
        self._latencies: FloatArray = np.empty((0, 3))
        self._latency_at: FloatArray = np.empty(0)
        self._since: FloatArray = np.empty(0)
        self._errors_from: IntArray = np.empty(0, np.int64)
        """Number of the first slice whose faults count in the error ratio."""
        self._dirty: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._recent: IntArray = np.empty((0, len(Recent._fields)), np.int64)
        self._pending: list[tuple[int, int, float, float, int]] = []
        self._pending_at = 0.0
        """When the first of them came: they all count as of then."""

    @property
    def members(self) -> int:
        """Endpoints followed."""
        return len(self._rows)

    def relay(self, addresses: Sequence[str], source: IntArray, now: float) -> None:
        """Follow a changed membership: row i is `addresses[i]` and was row `source[i]`, or new at -1."""
        self._flush()
        self._rows = {address: row for row, address in enumerate(addresses)}
        before, counting = self._counts, np.atleast_1d(self._counts.any(axis=(0, 2)))
        rows = np.array(
            [row for row, was in enumerate(source.tolist()) if was >= 0 and counting[was]], np.int64
        )
        self._counts = np.zeros((len(before), len(source), _KINDS), np.uint32)
        self._counts[:, rows] = before[:, source[rows]]
        self._first_bytes.relay(source)
        self._durations.relay(source)
        self._latencies = relaid(self._latencies, source, np.nan)
        self._latency_at = relaid(self._latency_at, source, -np.inf)
        self._since = relaid(self._since, source, now)
        self._errors_from = relaid(self._errors_from, source, 0)
        self._dirty = relaid(self._dirty, source, False)
        self._recent = relaid(self._recent, source, 0)

    def record(self, finished: Finished, now: float) -> None:
        """Take in a request; of an endpoint that is not a member, nothing is kept."""
        if finished.status == SWITCHED and not finished.established:
            return  # It was taken in when it opened, perhaps days ago.
        if now - self._pending_at >= self._slice_seconds or len(self._pending) >= _PENDING:
            self._flush()
        if not self._pending:
            self._pending_at = now
        row = self._rows.get(finished.address)
        if row is not None:
            self._pending.append((row, *_counted(finished)))
        if finished.retried_away and not self.lenient.forgives(finished):
            row = self._rows.get(finished.picked)
            if row is not None:
                self._pending.append((row, _RETRIED, np.nan, np.nan, _NONE))

    def forgive(self, rows: IntArray) -> None:
        """Start the error ratio of these again: they have recovered, and older faults do not count."""
        self._flush()
        self._errors_from[rows] = self._newest + 1

    def take(self) -> Recent:
        """Return what has come since the last call."""
        self._flush()
        recent, self._recent = self._recent, np.zeros_like(self._recent)
        return Recent(*recent.T)

    def columns(self, now: float) -> ServedColumns:
        """Return every window as it stands."""
        self._flush()
        self._advance(now)
        self._refresh(now)
        window = len(self._counts) * self._slice_seconds
        span = np.clip(now - self._since, self._slice_seconds, window)
        counts = self._counts.sum(axis=0, dtype=np.int64)
        numbers = self._newest - np.arange(self._error_slices)
        counting = numbers[:, None, None] >= self._errors_from[:, None]
        recent = (self._counts[numbers % len(self._counts)] * counting).sum(axis=0, dtype=np.int64)
        faults = recent[:, _FAULT] + recent[:, _RETRIED]
        judged = recent[:, _OK] + recent[:, _CLIENT_ERROR] + faults
        ratio = np.where(judged > 0, faults / np.maximum(judged, 1), np.nan)
        return ServedColumns(
            self._latencies[:, 0],
            self._latencies[:, 1],
            self._latencies[:, 2],
            counts[:, : _ABORTED + 1].sum(axis=1) / span,
            ratio,
            self._latency_at,
        )

    def _flush(self) -> None:
        if not self._pending:
            return
        now = self._pending_at
        columns = zip(*self._pending, strict=True)
        rows, kinds, firsts, durations, answers = (np.array(column) for column in columns)
        self._pending = []
        self._advance(now)
        self._first_bytes.advance(now)
        self._durations.advance(now)
        members = len(self._rows)
        slot = self._newest % len(self._counts)
        self._counts[slot] += (
            np.bincount(rows * _KINDS + kinds, minlength=members * _KINDS)
            .reshape(members, _KINDS)
            .astype(np.uint32)
        )
        faults = (kinds == _FAULT) | (kinds == _RETRIED)
        kinds_of_recent = (kinds == _OK, faults, answers > _NONE, answers > _PICKED, answers == _DRAWN)
        for column, chosen in enumerate(kinds_of_recent):
            self._recent[:, column] += np.bincount(rows[chosen], minlength=members)
        for histogram, values in ((self._first_bytes, firsts), (self._durations, durations)):
            measured = np.isfinite(values)
            if measured.any():
                histogram.add(rows[measured], values[measured], now)
                self._dirty[rows[measured]] = True
                self._latency_at[rows[measured]] = now

    def _advance(self, now: float) -> None:
        number = int(now // self._slice_seconds)
        slices = len(self._counts)
        for passed in range(max(self._newest + 1, number - slices + 1), number + 1):
            self._counts[passed % slices] = 0
        self._newest = max(self._newest, number)

    def _refresh(self, now: float) -> None:
        """Compute the latencies of endpoints with new answers, and all of them when a slice has gone."""
        moved = self._first_bytes.advance(now)
        if self._durations.advance(now) or moved:
            self._dirty |= np.isfinite(self._latencies).any(axis=1)
        rows = np.flatnonzero(self._dirty)
        if rows.size:
            self._latencies[rows, :2] = self._first_bytes.quantiles(rows, _QUANTILES)
            self._latencies[rows, 2] = self._durations.quantiles(rows, _QUANTILES[1:])[:, 0]
            self._dirty[rows] = False


def _counted(finished: Finished) -> tuple[int, float, float, int]:
    """Kind, first byte, duration (both of good answers only), and whether the host answered to the end.

    Both times are the host's own: without attempts that failed elsewhere and the waits between them.
    """
    if finished.aborted:
        return _ABORTED, np.nan, np.nan, _NONE
    answered = _NONE
    if finished.first_byte_seconds is not None and HOST_FLAGS.isdisjoint(finished.flags):
        answered = _PICKED if finished.picked else _IN_SESSION if finished.session is not None else _DRAWN
    if finished.faulty:
        return _FAULT, np.nan, np.nan, answered
    if finished.status == 0 or finished.status >= 500:
        return _ABORTED, np.nan, np.nan, _NONE  # Envoy's own answer: it blames nobody.
    if finished.status >= 400:
        return _CLIENT_ERROR, np.nan, np.nan, answered
    if finished.established:
        return _OK, np.nan, np.nan, answered  # A handshake has no tokens.
    first, duration = finished.first_byte_seconds, finished.duration_seconds
    if (elsewhere := finished.elsewhere_seconds) is None:
        return _OK, np.nan, np.nan, answered
    own = [np.nan if seconds is None else max(0.0, seconds - elsewhere) for seconds in (first, duration)]
    return _OK, own[0], own[1], answered
