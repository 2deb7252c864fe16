"""Windows over the finished requests of each endpoint. I/O-free; `finished.py` attributes faults to hosts."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from xds_server.access_log.finished import HOST_FLAGS, SWITCHED, Finished
from xds_server.signals.passive.log_histogram import FleetHistogram
from xds_server.signals.passive.retry_blame import BLAME_ALL_RETRIES, RetryBlame
from xds_server.signals.rows import FloatArray, IntArray, remapped

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from fleet.settings import SignalSettings

_PENDING: Final = 1024
"""At most this many requests wait until the windows count them. Counting many at once is cheap."""
_ERROR_SLICES: Final = 10
_MOST_SLICES: Final = 600
_QUANTILES: Final = (0.5, 0.99)
_OK, _CLIENT_ERROR, _FAULT, _ABORTED, _RETRIED = range(5)
_KINDS: Final = 5
_NO_WHOLE_ANSWER, _ANSWER_TO_PICK, _ANSWER_IN_SESSION, _ANSWER_BY_WEIGHT = range(4)
"""Whether the host sent a whole answer, and if so, how Envoy chose the host."""


class NewAnswers(NamedTuple):
    """Counts since the last call of `ServedWindows.take`, one number per row."""

    ok: IntArray
    """Answers with a status below 400."""
    faults: IntArray
    answered: IntArray
    """Whole answers of any status: they prove that the host works."""
    by_weight: IntArray
    """Whole answers to requests without a pick."""
    sessionless: IntArray
    """Whole answers to requests without a pick and without a session."""
    to_picks: IntArray
    """Whole answers to picks with a status below 400, without those to handshakes."""


class ServedColumns(NamedTuple):
    """One number per row; NaN is unknown. Columns with the name of a signal have its unit."""

    first_byte_p50_seconds: FloatArray
    first_byte_p99_seconds: FloatArray
    duration_p99_seconds: FloatArray
    requests_per_second: FloatArray
    error_ratio: FloatArray
    latency_at: FloatArray
    """The time of the newest answer in the latencies."""


class ServedWindows:
    """Windows over finished requests, bounded by the membership. `now` never decreases."""

    def __init__(self, settings: SignalSettings, retry_blame: RetryBlame = BLAME_ALL_RETRIES) -> None:
        """`settings` has the lengths of the windows; `retry_blame` decides which retries are faults."""
        self.retry_blame = retry_blame
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
        """The number of the first slice that counts in the error ratio."""
        self._dirty: npt.NDArray[np.bool_] = np.empty(0, np.bool_)
        self._new_answers: IntArray = np.empty((0, len(NewAnswers._fields)), np.int64)
        self._pending: list[tuple[int, int, float, float, int]] = []
        self._pending_at = 0.0
        """The time of the first pending request; all of them count at this time."""

    @property
    def members(self) -> int:
        """The number of endpoints."""
        return len(self._rows)

    def remap_rows(self, addresses: Sequence[str], source: IntArray, now: float) -> None:
        """Follow a changed membership: row i is `addresses[i]` and was row `source[i]`, or new at -1."""
        self._flush()
        self._rows = {address: row for row, address in enumerate(addresses)}
        before, counting = self._counts, np.atleast_1d(self._counts.any(axis=(0, 2)))
        rows = np.array(
            [row for row, was in enumerate(source.tolist()) if was >= 0 and counting[was]], np.int64
        )
        self._counts = np.zeros((len(before), len(source), _KINDS), np.uint32)
        self._counts[:, rows] = before[:, source[rows]]
        self._first_bytes.remap_rows(source)
        self._durations.remap_rows(source)
        self._latencies = remapped(self._latencies, source, np.nan)
        self._latency_at = remapped(self._latency_at, source, -np.inf)
        self._since = remapped(self._since, source, now)
        self._errors_from = remapped(self._errors_from, source, 0)
        self._dirty = remapped(self._dirty, source, False)
        self._new_answers = remapped(self._new_answers, source, 0)

    def record(self, finished: Finished, now: float, excused: Collection[str] = ()) -> None:
        """Record a request; one of an endpoint outside the membership is ignored.

        `excused` are the endpoints that are not at fault although it failed there.
        """
        if finished.status == SWITCHED and not finished.established:
            return  # The request was recorded when the connection opened, perhaps days ago.
        if now - self._pending_at >= self._slice_seconds or len(self._pending) >= _PENDING:
            self._flush()
        if not self._pending:
            self._pending_at = now
        row = self._rows.get(finished.address)
        if row is not None:
            kind, first, duration, answered = _counted(finished)
            if kind == _FAULT and finished.address in excused:
                kind = _CLIENT_ERROR
            self._pending.append((row, kind, first, duration, answered))
        if (
            finished.retried_away
            and finished.picked not in excused
            and self.retry_blame.blames_engine(finished)
        ):
            row = self._rows.get(finished.picked)
            if row is not None:
                self._pending.append((row, _RETRIED, np.nan, np.nan, _NO_WHOLE_ANSWER))

    def reset_errors(self, rows: IntArray) -> None:
        """Restart the error ratio of endpoints that have recovered: older faults do not count."""
        self._flush()
        self._errors_from[rows] = self._newest + 1

    def take(self) -> NewAnswers:
        """Return the counts since the last call."""
        self._flush()
        counts, self._new_answers = self._new_answers, np.zeros_like(self._new_answers)
        return NewAnswers(*counts.T)

    def columns(self, now: float) -> ServedColumns:
        """Return the figures of every window at `now`."""
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
        whole, without_pick = answers > _NO_WHOLE_ANSWER, answers > _ANSWER_TO_PICK
        # In the order of `NewAnswers`.
        to_picks = (kinds == _OK) & (answers == _ANSWER_TO_PICK) & np.isfinite(firsts)
        counted = (kinds == _OK, faults, whole, without_pick, answers == _ANSWER_BY_WEIGHT, to_picks)
        for column, chosen in enumerate(counted):
            self._new_answers[:, column] += np.bincount(rows[chosen], minlength=members)
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
        """Compute the latencies of endpoints with new answers; after a slice has expired, those of all."""
        moved = self._first_bytes.advance(now)
        if self._durations.advance(now) or moved:
            self._dirty |= np.isfinite(self._latencies).any(axis=1)
        rows = np.flatnonzero(self._dirty)
        if rows.size:
            self._latencies[rows, :2] = self._first_bytes.quantiles(rows, _QUANTILES)
            self._latencies[rows, 2] = self._durations.quantiles(rows, _QUANTILES[1:])[:, 0]
            self._dirty[rows] = False


def _counted(finished: Finished) -> tuple[int, float, float, int]:
    """Return a request's kind, time to the first byte, duration, and kind of answer.

    Only good answers have the two times. Both exclude failed attempts at other hosts and the waits between.
    """
    if finished.aborted:
        return _ABORTED, np.nan, np.nan, _NO_WHOLE_ANSWER
    answered = _NO_WHOLE_ANSWER
    if finished.first_byte_seconds is not None and HOST_FLAGS.isdisjoint(finished.flags):
        if finished.picked:
            answered = _ANSWER_TO_PICK
        else:
            answered = _ANSWER_BY_WEIGHT if finished.session is None else _ANSWER_IN_SESSION
    if finished.faulty:
        return _FAULT, np.nan, np.nan, answered
    if finished.status == 0 or finished.status >= 500:
        return _ABORTED, np.nan, np.nan, _NO_WHOLE_ANSWER  # Envoy's own answer, no fault of the host.
    if finished.status >= 400:
        return _CLIENT_ERROR, np.nan, np.nan, answered
    if finished.established:
        return _OK, np.nan, np.nan, answered  # A handshake has no tokens.
    first, duration = finished.first_byte_seconds, finished.duration_seconds
    if (elsewhere := finished.elsewhere_seconds) is None:
        return _OK, np.nan, np.nan, answered
    own = [np.nan if seconds is None else max(0.0, seconds - elsewhere) for seconds in (first, duration)]
    return _OK, own[0], own[1], answered
