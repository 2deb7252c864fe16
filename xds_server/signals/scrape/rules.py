"""What an engine's metrics mean, as a table: each of its signals and the rule that reads it.

Each kind of engine has its table in a file next to this one (`vllm.py` and neighbours); `reader.py` applies
it. An endpoint may export several series of one metric (data-parallel engines, ranks, label values): a rule
makes one number of them, and its name says how. Rules have no state: windows are the history's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from xds_server.signals.scrape.history import Metric, PageHistory


_LOAD: Final = ("queue_depth", "memory_used_ratio", "running")
"""Signals without which a page is not taken for an engine's."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How a signal is read from a page."""

    ways: tuple[tuple[Metric, ...], ...]
    """The metrics of each way to read it: versions of an engine export in different ways."""
    read: Callable[[PageHistory], float | None]
    """Returns the signal's value; None is unknown."""
    late: bool = False
    """Whether engines may export it from their first request on only."""

    def missing(self, pages: PageHistory) -> list[Metric]:
        """Return what the page lacks of the first way; nothing while one way has all that it reads."""
        lacking = [[each for each in way if not pages.values(each)] for way in self.ways]
        return lacking[0] if all(lacking) else []


@dataclass(frozen=True, slots=True)
class UsualPlace:
    """Where a kind of engine has its page by default, if not at `/metrics` of its own port."""

    path: str
    port: int | None = None
    """None: the engine's own."""


@dataclass(frozen=True)
class Table:
    """One kind of engine."""

    marks: tuple[str, ...]
    """What lines of its pages begin with, and other kinds' do not."""
    fields: Mapping[str, Rule]
    """A signal to the rule that reads it."""
    optional: frozenset[str] = frozenset()
    """Fields that only some versions or switches of the engine export: no warning when they are missing."""
    repeated_by: tuple[str, ...] = ()
    """Labels of ranks that export the same: of series that differ in them alone, the lowest rank counts."""
    parted_by: tuple[str, ...] = ()
    """Labels whose empty value stands for the sum of the others, which are then left out."""
    rank_label: str = ""
    """Label of data-parallel ranks; empty: unknown."""
    ranks_by_default: bool = False
    """Whether picks name ranks of this kind of engine without a setting that says so."""
    second_page: str = ""
    """A second page, by its name relative to the first; empty: none."""
    read_second: Callable[[bytes], Mapping[str, float | None]] = field(default=lambda _: {})
    """Signals of the second page.

    Raises:
        ValueError: it is not what it should be.
    """

    spellings: tuple[str, ...] = ()
    """What servers around the engine write for the first of the marks."""
    usual: UsualPlace | None = None
    """None: `/metrics` at its own port."""

    def is_of(self, page: bytes) -> bool:
        """Whether a page has one of the marks, and the kind's memory, queue or running requests."""
        page = self.respelt(b"\n" + page)
        return self.marks_in(page) and (not self._gauges or _has_line(page, self._gauges))

    def marks_in(self, page: bytes) -> bool:
        """Whether a page has one of the marks: it is of this kind or of something around such an engine."""
        return _has_line(b"\n" + page, (*self.marks, *self.spellings))

    def respelt(self, page: bytes) -> bytes:
        """Return the page with the engine's own spelling."""
        for spelling in self.spellings:
            if (other := spelling.encode()) in page:
                page = (b"\n" + page).replace(b"\n" + other, b"\n" + self.marks[0].encode())
        return page

    @cached_property
    def _gauges(self) -> tuple[str, ...]:
        rules = (self.fields[name] for name in _LOAD if name in self.fields)
        return tuple(name for rule in rules for way in rule.ways for each in way for name in each.names)

    @property
    def names(self) -> frozenset[str]:
        """Full names of the samples that are read."""
        metrics = (each for rule in self.fields.values() for way in rule.ways for each in way)
        return frozenset(name for each in metrics for name in each.names)


def _has_line(page: bytes, beginnings: Iterable[str]) -> bool:
    return any(b"\n" + text.encode() in page for text in beginnings)


def total(of: Metric) -> Rule:
    """Sum of the series: for counts and capacities."""
    return Rule(((of,),), lambda pages: _sum(pages.values(of)))


def highest(of: Metric) -> Rule:
    """Highest of the series: a request meets the limit of one engine, and not of their mean."""
    return _extreme(of, max)


def lowest(of: Metric) -> Rule:
    """Lowest of the series: for what must be so of every engine."""
    return _extreme(of, min)


def _extreme(of: Metric, choose: Callable[[Sequence[float]], float]) -> Rule:
    """Unknown when one of the series is no number."""

    def read(pages: PageHistory) -> float | None:
        values = pages.values(of)
        return choose(values) if values and all(map(isfinite, values)) else None

    return Rule(((of,),), read)


def mean(of: Metric) -> Rule:
    """Mean of the series."""

    def read(pages: PageHistory) -> float | None:
        values = pages.values(of)
        return sum(values) / len(values) if values else None

    return Rule(((of,),), read)


def product(one: Metric, other: Metric) -> Rule:
    """One times the other, summed over the series."""
    return Rule(
        ((one, other),), lambda pages: _sum([left * right for left, right in _pairs(pages, one, other)])
    )


def highest_share(part: Metric, whole: Metric) -> Rule:
    """One over the other, the highest of the series; unknown when a whole is not above 0."""

    def read(pages: PageHistory) -> float | None:
        pairs = _pairs(pages, part, whole)
        if not all(right > 0 for _, right in pairs):
            return None
        return max((left / right for left, right in pairs), default=None)

    return Rule(((part, whole),), read)


def _pairs(pages: PageHistory, one: Metric, other: Metric) -> list[tuple[float, float]]:
    """Return the values of series with equal labels; none when a series has no partner."""
    sides = []
    for side in (one, other):
        chosen = [key for key, _ in side.only]
        sides.append(
            {
                frozenset(item for item in series.labels.items() if item[0] not in chosen): value
                for series, value in zip(pages.series(side), pages.values(side), strict=True)
            }
        )
    if sides[0].keys() != sides[1].keys():
        return []
    return [(value, sides[1][key]) for key, value in sides[0].items()]


def of_labels(of: Metric, number: Callable[[Mapping[str, str]], float]) -> Rule:
    """A number out of the labels of each series, summed; unknown unless the sum is above 0."""

    def read(pages: PageHistory) -> float | None:
        result = sum(number(series.labels) for series in pages.series(of))
        return result if result > 0 else None

    return Rule(((of,),), read)


def lowest_of_labels(of: Metric, number: Callable[[Mapping[str, str]], float]) -> Rule:
    """The lowest number out of the labels of the series; unknown while one has none."""

    def read(pages: PageHistory) -> float | None:
        numbers = [number(series.labels) for series in pages.series(of)]
        return min(numbers) if numbers and all(map(isfinite, numbers)) else None

    return Rule(((of,),), read)


def moving(*metrics: Metric) -> Rule:
    """Sum of the finite series of any of the metrics: only its movement has a meaning."""

    def read(pages: PageHistory) -> float | None:
        return _sum([value for each in metrics for value in pages.values(each) if isfinite(value)])

    return Rule(tuple((each,) for each in metrics), read)


def rate(*metrics: Metric) -> Rule:
    """Growth a second over the window, of the sum of the metrics and their series."""

    def read(pages: PageHistory) -> float | None:
        growth = pages.growth(metrics)
        return None if growth is None or growth.seconds <= 0 else sum(growth.deltas) / growth.seconds

    return Rule((metrics,), read, late=True)


def ratio(part: Metric, *whole: Metric, most: float = inf) -> Rule:
    """Growth of one over the growth of the others' sum, over the window; unknown when these did not grow."""
    metrics = (part, *whole)

    def read(pages: PageHistory) -> float | None:
        growth = pages.growth(metrics)
        if growth is None or (grown := sum(growth.deltas[1:])) <= 0:
            return None
        return min(growth.deltas[0] / grown, most)

    return Rule((metrics,), read, late=True)


def quantile(of: Metric, q: float, unit: float = 1.0) -> Rule:
    """Quantile of the newest observations; buckets of several series are added. `unit`: the page's."""

    def read(pages: PageHistory) -> float | None:
        value = pages.quantile(of, q)
        return None if value is None else value * unit

    return Rule(((of,),), read, late=True)


def variance(of: Metric) -> Rule:
    """Variance of the window's observations, from the buckets' middles."""
    return Rule(((of,),), lambda pages: pages.variance(of), late=True)


def either(*rules: Rule) -> Rule:
    """The first rule whose answer is known. Every rule reads every page: windows need them all."""

    def read(pages: PageHistory) -> float | None:
        answers = [rule.read(pages) for rule in rules]
        return next((answer for answer in answers if answer is not None), None)

    ways = tuple(way for rule in rules for way in rule.ways)
    return Rule(ways, read, late=all(rule.late for rule in rules))


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None
