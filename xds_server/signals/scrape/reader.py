"""Applies a kind's table to the pages of one endpoint, and keeps the windows that it needs."""

from __future__ import annotations

import logging
import re
from math import nan
from typing import TYPE_CHECKING, Final

from fleet.signals import valid_values
from xds_server.signals.scrape.histogram import CounterWindow, Growth, HistogramWindow
from xds_server.signals.scrape.page import PageReader

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from fleet.settings import SignalSettings
    from xds_server.signals.scrape.page import Lines, Series
    from xds_server.signals.scrape.table import Metric, Table

_log = logging.getLogger(__name__)

_PROCESS: Final = rb"process_start_time_seconds(?:\{[^}\n]*+\})?+ ([^\s#]++)"
_STARTED: Final = re.compile(_PROCESS)
_STARTED_LATER: Final = re.compile(rb"\n" + _PROCESS)

_Label = tuple[str, str]


class TableReader:
    """Reads one endpoint's pages, one after the other."""

    def __init__(self, table: Table, address: str, settings: SignalSettings) -> None:
        self.malformed_lines = 0
        self._table = table
        self._address = address
        self._source = _Source(table, settings.latency_window_seconds)
        self._warned: set[str] = set()
        self._looked: tuple[int, bool] | None = None
        self._read_before = False

    @property
    def second_page(self) -> str:
        """Name of the second page to fetch; empty: none."""
        return self._table.second_page

    def read(self, page: bytes, now: float, second: bytes | None = None) -> Mapping[str, float]:
        """Return the numbers of a page; a metric that is missing or makes no sense is left out.

        Raises:
            PageError: too many lines of it would be read.
        """
        self.malformed_lines = self._source.turn_to(page, now)
        values = {name: rule.read(self._source) for name, rule in self._table.fields.items()}
        if self._table.second_page:
            values.update(self._second(second))
        self._read_before = True
        self._warn(values)
        return valid_values(values)

    def _second(self, page: bytes | None) -> Mapping[str, float | None]:
        try:
            if page is not None:
                return self._table.read_second(page)
            if not self._read_before:
                return {}  # The kind was found out from this very page: nobody could ask for the other yet.
            fault = "does not answer"
        except ValueError:
            fault = "cannot be read"
        self._warn_once(self._table.second_page, f"its page {self._table.second_page} {fault}")
        return {}

    def _warn(self, values: Mapping[str, float | None]) -> None:
        """Log once what the page lacks.

        Some metrics come with the first request, so they are missed only in an engine that has worked.
        """
        worked = bool(values.get("progress_total"))
        if (self._source.layouts, worked) == self._looked:
            return
        self._looked = (self._source.layouts, worked)
        lacking = []
        for name, rule in self._table.fields.items():
            if values[name] is not None or name in self._warned or name in self._table.optional:
                continue
            if rule.late and not worked:
                continue
            if missing := rule.missing(self._source):
                self._warned.add(name)
                lacking.append(f"{name} ({', '.join(map(str, missing))})")
        if lacking:
            _log.warning("%s: its page does not tell %s", self._address, "; ".join(lacking))

    def _warn_once(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            _log.warning("%s: %s; what it tells is unknown", self._address, text)


class _Source:
    """The newest page, and windows over those before: what rules read from."""

    def __init__(self, table: Table, window_seconds: float) -> None:
        self._table = table
        self._window_seconds = window_seconds
        self._pages = PageReader(table.names)
        self._lines: Lines | None = None
        self._series: tuple[Series, ...] = ()
        self.layouts = 0
        """How often other lines came than on the page before."""
        self._now = nan
        self._process: float | None = None
        # By the page's lines: cleared when other lines come.
        self._places: dict[Metric, tuple[int, ...]] = {}
        self._identities: dict[Metric, frozenset[Hashable]] = {}
        self._bounds: dict[Metric, tuple[float, ...]] = {}
        # By page.
        self._grown: dict[tuple[Metric, ...], Growth | None] = {}
        self._observed: set[Metric] = set()
        # Kept over pages.
        self._counters: dict[tuple[Metric, ...], CounterWindow] = {}
        self._histograms: dict[Metric, HistogramWindow] = {}

    def turn_to(self, page: bytes, now: float) -> int:
        """Go to the next page; returns how many of its wanted lines cannot be read."""
        lines = self._pages.read(page)
        if lines.series is not self._series:
            self._series = lines.series
            self.layouts += 1
            self._places.clear()
            self._identities.clear()
            self._bounds.clear()
        self._lines = lines
        self._now = now
        # A new process has new counters, even where they have outgrown the old ones' values already.
        started = _STARTED.match(page) or _STARTED_LATER.search(page)
        self._process = None if started is None else _number(started[1].decode(errors="replace"))
        self._grown.clear()
        self._observed.clear()
        return lines.malformed_lines

    def series(self, of: Metric) -> list[Series]:
        """Series of a metric."""
        return [self._series[place] for place in self._where(of)]

    def values(self, of: Metric) -> list[float]:
        """Values of a metric's series."""
        assert self._lines is not None
        values = self._lines.values
        return [values[place] for place in self._where(of)]

    def growth(self, metrics: tuple[Metric, ...]) -> Growth | None:
        """Growth of each metric's sum over the window."""
        if metrics not in self._grown:
            self._grown[metrics] = self._grow(metrics)
        return self._grown[metrics]

    def quantile(self, buckets: Metric, q: float) -> float | None:
        """Quantile of a histogram's newest observations."""
        window = self._observe(buckets)
        return None if window is None else window.quantile(q, self._now)

    def variance(self, buckets: Metric) -> float | None:
        """Variance of a histogram's observations."""
        window = self._observe(buckets)
        return None if window is None else window.variance(self._now)

    def _grow(self, metrics: tuple[Metric, ...]) -> Growth | None:
        values = [self.values(each) for each in metrics]
        if not all(values):
            return None
        if metrics not in self._counters:
            self._counters[metrics] = CounterWindow(self._window_seconds)
        window = self._counters[metrics]
        shape = (self._process, *map(self._identity, metrics))
        window.observe([sum(each) for each in values], self._now, shape)
        return window.growth(self._now)

    def _observe(self, buckets: Metric) -> HistogramWindow | None:
        values = self.values(buckets)
        if not values:
            return None
        if buckets not in self._histograms:
            self._histograms[buckets] = HistogramWindow(self._window_seconds)
        window = self._histograms[buckets]
        if buckets not in self._observed:
            self._observed.add(buckets)
            counts: dict[float, float] = {}
            for bound, value in zip(self._bounds_of(buckets), values, strict=True):
                if bound == bound:  # not NaN
                    counts[bound] = counts.get(bound, 0.0) + value
            window.observe(counts, self._now, (self._process, self._identity(buckets)))
        return window

    def _where(self, of: Metric) -> tuple[int, ...]:
        places = self._places.get(of)
        if places is None:
            places = self._places[of] = tuple(_find(of, self._series, self._table))
        return places

    def _identity(self, of: Metric) -> frozenset[Hashable]:
        """What was added up: when an engine's series comes or goes, a sum's jump is no growth."""
        if of not in self._identities:
            self._identities[of] = frozenset(
                (series.name, _labels_but(series, ("le",))) for series in self.series(of)
            )
        return self._identities[of]

    def _bounds_of(self, buckets: Metric) -> tuple[float, ...]:
        if buckets not in self._bounds:
            self._bounds[buckets] = tuple(_number(each.labels.get("le")) for each in self.series(buckets))
        return self._bounds[buckets]


def _find(of: Metric, page: Sequence[Series], table: Table) -> list[int]:
    """Places of a metric's series on a page, without those that repeat or part others.

    A series that stands there twice counts once, with its last value: a sum would double it.
    """
    for name in of.names:
        places = [
            place
            for place, series in enumerate(page)
            if series.name == name and all(series.labels.get(key) == value for key, value in of.only)
        ]
        if places:
            break
    else:
        return []
    places = sorted({_labels_but(page[place], ()): place for place in places}.values())
    for label in table.parted_by:
        whole = [place for place in places if not page[place].labels.get(label)]
        places = whole or places
    if table.repeated_by:
        lowest: dict[frozenset[_Label], int] = {}
        for place in sorted(places, key=lambda place: _ranks(page[place], table.repeated_by)):
            lowest.setdefault(_labels_but(page[place], table.repeated_by), place)
        places = sorted(lowest.values())
    return places


def _ranks(series: Series, labels: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Ranks in an order in which 2 comes before 10."""
    texts = [series.labels.get(label, "") for label in labels]
    return tuple((len(text), text) for text in texts)


def _labels_but(series: Series, without: tuple[str, ...]) -> frozenset[_Label]:
    return frozenset(item for item in series.labels.items() if item[0] not in without)


def _number(text: str | None) -> float:
    try:
        return nan if text is None else float(text)
    except ValueError:
        return nan
