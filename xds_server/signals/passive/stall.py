"""Which engines hang: requests of ours are there and no sign of life. Pure, over the whole fleet at a time.

ext_proc's workers report the requests that are in flight. For requests that went by weights, or without any
worker, the answers of the pool show it: see `expected_answers.py`.

Signs of life: an answer that Envoys saw to its end, and any movement of the engine's own counters. Where no
Envoy sends its access log, the end of a request's stream is one too, unless the engine has counters; a
client that gives up ends its stream as well.

One endpoint's states:

    WORKING --- requests are there and no sign of life for the allowed time ---> STALLED
    STALLED --- a sign of life; or its page answers again ---------------------> WORKING
    STALLED --- nothing there for the time of a half-open, its port connects ---> WORKING, on trial

The allowed time is `after` when the page gives the engine away: it shows fewer requests than have been in
flight since the page before (a frozen engine's gauges), or it answered lately and has not for that time.
Otherwise silence may be a long prefill: SLOW_FACTOR times as long where the engine's counters were seen to
move between completions, else BLIND_FACTOR times (such counters stand still during long answers). It need
not be more than SURPRISE_FACTOR times what nearly all requests there have taken, from start to end.
The half-open takes HALF_OPEN_FACTOR times `after`, doubled by every trial in a row that failed, up to
MOST_DOUBLINGS. On trial the same rules start again. Without known requests in flight (no ext_proc)
and without a stalled engine there is no verdict.

A step that comes late means that this process stood still: it read no page and no log either. So silence of
every engine begins again at such a step.
"""

from __future__ import annotations

from math import inf, nan
from typing import Final, NamedTuple

import numpy as np

from xds_server.signals.passive.expected_answers import ExpectedAnswers, Spread
from xds_server.signals.rows import BoolArray, FloatArray, IntArray, Rows

SLOW_FACTOR: Final = 5.0
BLIND_FACTOR: Final = 30.0
SURPRISE_FACTOR: Final = 5.0
HALF_OPEN_FACTOR: Final = 5.0
MOST_DOUBLINGS: Final = 3
_LATE_FACTOR: Final = 4.0
"""A step is late after this many usual intervals, if that is also more than half of `after`."""
_RARE_SECONDS: Final = 1.5
"""Ticks without any request in flight may be rare, but come more often than this (`ticker.py`)."""
_PAGES: Final = 2.5
"""Scrape intervals in which a page has surely come: without a completion for this time, a counter that moves
moves by itself; and without a page that gives the engine away, no verdict comes sooner."""


class Timing(NamedTuple):
    """Lengths of time, in seconds."""

    after: float
    """`signals.stalled_after_seconds`."""
    stale_after: float
    scrape_interval: float
    scrape_timeout: float


class StallInputs(NamedTuple):
    """The evidence of one moment, one number a row."""

    in_flight: FloatArray
    """Requests of ours; NaN: unknown."""
    finished_total: FloatArray
    """Streams of requests that have ended: answers, failures and clients that left."""
    answered: IntArray
    """Answers to the end, from access logs, since the last step."""
    listening: bool
    """Whether any Envoy sends its access log."""
    progress: FloatArray
    """The engine's counters; NaN: unknown."""
    busy: FloatArray
    """Requests on the page, running or waiting; NaN: unknown."""
    page_at: FloatArray
    """When the newest page was read; -inf: never."""
    duration: FloatArray
    """P99 of whole requests there, lately, in seconds; NaN: unknown."""
    spread: Spread | None = None
    """What went by weights; None: unknown."""
    reachable: FloatArray | None = None
    """0: its port gives no connection; NaN: unknown. None: all are unknown."""


class StallDetector(Rows):
    """The state of every endpoint. `now` in seconds, never earlier than before."""

    _stalled: BoolArray = np.zeros(1, np.bool_)
    _silent: BoolArray = np.zeros(1, np.bool_)
    _lively: BoolArray = np.zeros(1, np.bool_)
    _trials: IntArray = np.zeros(1, np.int64)
    _moved_at: FloatArray = np.full(1, -inf)
    _completed_at: FloatArray = np.full(1, -inf)
    _stalled_at: FloatArray = np.full(1, -inf)
    _page_at: FloatArray = np.full(1, -inf)
    _begun_at: FloatArray = np.full(1, inf)
    """+inf: nothing is in flight."""
    _idle_at: FloatArray = np.full(1, inf)
    """+inf: something is in flight."""
    _finished: FloatArray = np.full(1, nan)
    _progress: FloatArray = np.full(1, nan)
    _least: FloatArray = np.zeros(1)
    _settled: FloatArray = np.zeros(1)

    def __init__(self) -> None:
        super().__init__()
        self._expected = ExpectedAnswers()
        self._stepped_at = self._usual_interval = inf
        self._resumed_at = -inf
        """When the newest late step came."""

    def remap_rows(self, source: IntArray) -> None:
        """Follow a changed membership (see `rows.remapped`)."""
        super().remap_rows(source)
        self._expected.remap_rows(source)

    def restore(self, rows: IntArray, now: float) -> None:
        """Begin with newcomers stalled, as before a restart, until they show life or are tried half open.

        An answer of their page is no sign of life: it may have answered all the time.
        """
        self._stalled[rows] = True
        self._stalled_at[rows] = now

    def step(self, inputs: StallInputs, now: float, timing: Timing) -> FloatArray:
        """Return 1 for each endpoint that hangs, 0 for one that does not, NaN where that is unknown."""
        self._note_lateness(inputs, now, timing)
        reported = np.isfinite(inputs.in_flight)
        busy = reported & (inputs.in_flight > 0)
        self._begun_at = np.where(busy, np.minimum(self._begun_at, now), np.inf)
        life = self._sign_of_life(inputs, busy, now, timing)
        self._expected.add(inputs.spread, life | self._stalled, now)
        page_lost = np.isfinite(inputs.page_at) & (now - self._silent_from(inputs) >= _missed(timing))
        some = busy | self._expected.enough(inputs.spread, page_lost | (inputs.busy > 0), now)
        self._begun_at = np.where(some & ~busy, self._expected.since, self._begun_at)
        self._idle_at = np.where(some, np.inf, np.minimum(self._idle_at, now))
        self._note_page(inputs, busy)
        self._recover(inputs, life, now, timing)
        since = np.maximum(np.maximum(self._moved_at, self._begun_at), self._resumed_at)
        exposed, silent = self._exposed_by_page(inputs, since, now, timing)
        patient = timing.after * np.where(self._lively, SLOW_FACTOR, BLIND_FACTOR)
        patient = np.fmin(patient, np.maximum(SURPRISE_FACTOR * inputs.duration, timing.after))
        allowed = np.where(exposed, timing.after, np.maximum(patient, _PAGES * timing.scrape_interval))
        hangs = some & ~self._stalled & (now - since >= allowed)
        self._stalled |= hangs
        self._silent = np.where(hangs, silent, self._silent)
        self._stalled_at = np.where(hangs, now, self._stalled_at)
        return np.where(reported | self._stalled, self._stalled.astype(np.float64), np.nan)

    def _note_lateness(self, inputs: StallInputs, now: float, timing: Timing) -> None:
        interval, self._stepped_at = max(0.0, now - self._stepped_at), now
        regular = timing.after / 2 if (inputs.in_flight > 0).any() else max(timing.after / 2, _RARE_SECONDS)
        if interval > max(_LATE_FACTOR * self._usual_interval, regular):
            self._resumed_at = now
        # The shortest one of late: an idle fleet has fewer ticks.
        self._usual_interval = min(interval or inf, 2.0 * self._usual_interval)

    def _silent_from(self, inputs: StallInputs) -> FloatArray:
        """Return since when no page has come that could have been read; -inf: there never was one."""
        later = np.maximum(inputs.page_at, self._resumed_at)
        return np.where(np.isfinite(inputs.page_at), later, inputs.page_at)

    def _sign_of_life(self, inputs: StallInputs, busy: BoolArray, now: float, timing: Timing) -> BoolArray:
        has_counters = np.isfinite(inputs.progress)
        # The first page of a restored engine shows where its counters stand, and not that they move.
        had_counters = np.isfinite(self._progress) | ~self._stalled
        moved = has_counters & had_counters & (inputs.progress != self._progress)
        completed = inputs.answered > 0
        if not inputs.listening:
            ended = np.isfinite(self._finished) & (inputs.finished_total != self._finished)
            completed |= ended & ~has_counters
        without = now - np.maximum(self._completed_at, self._begun_at)
        lasting = without > _PAGES * timing.scrape_interval
        self._lively |= moved & busy & lasting & np.isfinite(self._progress)
        self._progress = np.where(has_counters, inputs.progress, self._progress)
        self._finished = inputs.finished_total
        life: BoolArray = moved | completed
        self._moved_at = np.where(life, now, self._moved_at)
        self._completed_at = np.where(completed, now, self._completed_at)
        return life

    def _note_page(self, inputs: StallInputs, busy: BoolArray) -> None:
        """Keep how many requests have been in flight throughout from one page to the next."""
        in_flight = np.where(busy, inputs.in_flight, 0.0)
        self._least = np.minimum(self._least, in_flight)
        renewed = inputs.page_at > self._page_at
        self._settled = np.where(renewed, self._least, self._settled)
        self._least = np.where(renewed, in_flight, self._least)
        self._page_at = np.maximum(self._page_at, inputs.page_at)

    def _recover(self, inputs: StallInputs, life: BoolArray, now: float, timing: Timing) -> None:
        back = self._silent & (inputs.page_at > self._stalled_at)
        alive = self._stalled & (life | back)
        self._moved_at = np.where(alive, now, self._moved_at)
        self._trials = np.where(life, 0, self._trials)
        wait = timing.after * HALF_OPEN_FACTOR * 2.0 ** np.minimum(self._trials, MOST_DOUBLINGS)
        idle = now - np.maximum(self._idle_at, self._stalled_at)
        on_trial = self._stalled & ~alive & (idle >= wait)
        if inputs.reachable is not None:
            on_trial &= inputs.reachable != 0
        self._trials = np.where(on_trial, self._trials + 1, self._trials)
        self._stalled &= ~(alive | on_trial)

    def _exposed_by_page(
        self, inputs: StallInputs, since: FloatArray, now: float, timing: Timing
    ) -> tuple[BoolArray, BoolArray]:
        """Return which pages show that their engines hang, and which have fallen silent."""
        frozen = (inputs.page_at >= since) & (inputs.busy < self._settled)
        silent_from = self._silent_from(inputs)
        silent = (now - silent_from >= _missed(timing)) & (since - silent_from <= timing.stale_after)
        return frozen | silent, silent


def _missed(timing: Timing) -> float:
    """After how many seconds without a page one that was to come has surely been missed."""
    return max(timing.after, timing.scrape_interval + timing.scrape_timeout)
