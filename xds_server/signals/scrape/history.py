"""What the rules of `rules.py` read from: one endpoint's newest page, and windows over those before it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Final, NamedTuple

from xds_server.signals.scrape.histogram import CounterWindow, Growth, HistogramWindow
from xds_server.signals.scrape.page import PageReader

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from xds_server.signals.scrape.page import Series

_PROCESS: Final = rb"process_start_time_seconds(?:\{[^}\n]*+\})?+ ([^\s#]++)"
_STARTED: Final = re.compile(_PROCESS)
_STARTED_LATER: Final = re.compile(rb"\n" + _PROCESS)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric under the names that it has had: the first that a page has counts.

    Compared by identity: each page looks it up many times.
    """

    names: tuple[str, ...]
    only: tuple[tuple[str, str], ...] = ()
    """Labels and their values: other series of the name are something else."""

    def __str__(self) -> str:
        """As operators would look for it."""
        labels = ",".join(f'{key}="{value}"' for key, value in self.only)
        return " or ".join(self.names) + (f"{{{labels}}}" if labels else "")


def metric(*names: str, **only: str) -> Metric:
    """Name a metric, the newest name first: full sample names, suffixes included."""
    return Metric(names, tuple(only.items()))


def histogram(*names: str) -> tuple[Metric, Metric, Metric]:
    """Name a histogram's buckets, sum and count."""
    bucket, sums, count = (tuple(name + suffix for name in names) for suffix in ("_bucket", "_sum", "_count"))
    return Metric(bucket), Metric(sums), Metric(count)


class _Place(NamedTuple):
    """Where the lines of a page have a metric."""

    lines: tuple[int, ...]
    identity: frozenset[Hashable]
    """The series that are added up: when one comes or goes, a sum's jump is no growth."""
    bounds: tuple[float, ...]
    """Of a histogram's buckets: `le`, ascending."""
    bound_of_line: tuple[int, ...]
    """The place in `bounds` of each line; -1: it has none."""


class PageHistory:
    """The newest page, and windows over those before."""

    def __init__(
        self,
        names: frozenset[str],
        window_seconds: float,
        repeated_by: tuple[str, ...] = (),
        parted_by: tuple[str, ...] = (),
    ) -> None:
        """Read samples of these full names; see `Table` for the labels."""
        self.layouts = 0
        """How often other lines came than on the page before."""
        self._repeated_by = repeated_by
        self._parted_by = parted_by
        self._window_seconds = window_seconds
        self._pages = PageReader(names)
        self._series: tuple[Series, ...] = ()
        self._values: list[float] = []
        self._now = nan
        self._process: float | None = None
        self._places: dict[Metric, _Place] = {}
        """By the page's lines: cleared when other lines come."""
        self._observed: set[Metric] = set()
        """Histograms whose buckets on the newest page are in their window."""
        self._counters: dict[tuple[Metric, ...], CounterWindow] = {}
        self._histograms: dict[Metric, HistogramWindow] = {}

    def turn_to(self, page: bytes, now: float) -> int:
        """Go to the next page; returns how many of its wanted lines cannot be read.

        Raises:
            PageError: too many lines of it would be read.
        """
        lines = self._pages.read(page)
        if lines.series is not self._series:
            self._series = lines.series
            self.layouts += 1
            self._places.clear()
        self._values, self._now = lines.values, now
        # A new process has new counters, even where they have outgrown the old ones' values already.
        started = _STARTED.match(page) or _STARTED_LATER.search(page)
        self._process = None if started is None else number(started[1].decode(errors="replace"))
        self._observed.clear()
        return lines.malformed_lines

    def series(self, of: Metric) -> list[Series]:
        """Return the series of a metric; empty when the page has none."""
        return [self._series[line] for line in self._place(of).lines]

    def values(self, of: Metric) -> list[float]:
        """Return the values of a metric's series."""
        values = self._values
        return [values[line] for line in self._place(of).lines]

    def growth(self, metrics: tuple[Metric, ...]) -> Growth | None:
        """Return the growth of each metric's sum over the window; None when one is missing, or at first."""
        sums: list[float] = []
        shape: list[Hashable] = [self._process]
        for each in metrics:
            place = self._place(each)
            if not place.lines:
                return None
            sums.append(sum(self._values[line] for line in place.lines))
            shape.append(place.identity)
        if metrics not in self._counters:
            self._counters[metrics] = CounterWindow(self._window_seconds)
        window = self._counters[metrics]
        window.observe(sums, self._now, tuple(shape))
        return window.growth(self._now)

    def quantile(self, buckets: Metric, q: float) -> float | None:
        """Return a quantile of a histogram's newest observations."""
        window = self._observe(buckets)
        return None if window is None else window.quantile(q, self._now)

    def variance(self, buckets: Metric) -> float | None:
        """Return the variance of a histogram's observations in the window."""
        window = self._observe(buckets)
        return None if window is None else window.variance(self._now)

    def _observe(self, buckets: Metric) -> HistogramWindow | None:
        place = self._place(buckets)
        if not place.lines:
            return None
        if buckets not in self._histograms:
            self._histograms[buckets] = HistogramWindow(self._window_seconds)
        window = self._histograms[buckets]
        if buckets not in self._observed:
            self._observed.add(buckets)
            counts = [0.0] * len(place.bounds)
            for line, bound in zip(place.lines, place.bound_of_line, strict=True):
                if bound >= 0:
                    counts[bound] += self._values[line]
            window.observe(place.bounds, counts, self._now, (self._process, place.identity))
        return window

    def _place(self, of: Metric) -> _Place:
        place = self._places.get(of)
        if place is None:
            lines = tuple(self._find(of))
            series = [self._series[line] for line in lines]
            identity = frozenset((each.name, _labels_but(each, ("le",))) for each in series)
            uppers = [number(each.labels.get("le")) for each in series]
            bounds = tuple(sorted({upper for upper in uppers if upper == upper}))  # without NaN
            bound_of_line = tuple(bounds.index(upper) if upper == upper else -1 for upper in uppers)
            place = self._places[of] = _Place(lines, identity, bounds, bound_of_line)
        return place

    def _find(self, of: Metric) -> list[int]:
        """Return the lines of a metric's series, without those that repeat or part others.

        A series that the page has twice counts once, with its last value: a sum would double it.
        """
        page = self._series
        for name in of.names:
            lines = [
                line
                for line, series in enumerate(page)
                if series.name == name and all(series.labels.get(key) == value for key, value in of.only)
            ]
            if lines:
                break
        else:
            return []
        lines = sorted({_labels_but(page[line], ()): line for line in lines}.values())
        for label in self._parted_by:
            whole = [line for line in lines if not page[line].labels.get(label)]
            lines = whole or lines
        if self._repeated_by:
            lowest: dict[frozenset[tuple[str, str]], int] = {}
            for line in sorted(lines, key=lambda line: _ranks(page[line], self._repeated_by)):
                lowest.setdefault(_labels_but(page[line], self._repeated_by), line)
            lines = sorted(lowest.values())
        return lines


def _ranks(series: Series, labels: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Return ranks in an order in which 2 comes before 10."""
    texts = [series.labels.get(label, "") for label in labels]
    return tuple((len(text), text) for text in texts)


def _labels_but(series: Series, without: Sequence[str]) -> frozenset[tuple[str, str]]:
    return frozenset(item for item in series.labels.items() if item[0] not in without)


def number(text: str | None) -> float:
    """Return the number that a text is, or NaN."""
    try:
        return nan if text is None else float(text)
    except ValueError:
        return nan
