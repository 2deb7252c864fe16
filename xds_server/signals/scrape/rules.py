"""The rules of the tables: each makes one number of a metric's series, and its name says how.

Rules have no state: windows over counters and histograms are the source's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xds_server.signals.scrape.table import Metric, Rule, Source


class _Rule:
    """What the rules have in common."""

    __slots__ = ()

    @property
    def late(self) -> bool:
        return False

    @property
    def metrics(self) -> tuple[Metric, ...]:
        raise NotImplementedError

    def missing(self, source: Source) -> list[Metric]:
        return [each for each in self.metrics if not source.values(each)]


@dataclass(frozen=True, slots=True)
class _OfOne(_Rule):
    of: Metric

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (self.of,)


class Total(_OfOne):
    """Sum of the series: for counts and capacities."""

    __slots__ = ()

    def read(self, source: Source) -> float | None:
        """Return the sum."""
        return total(source.values(self.of))


class Highest(_OfOne):
    """Highest of the series: a request meets the limit of one engine, and not of their mean."""

    __slots__ = ()

    def read(self, source: Source) -> float | None:
        """Return the highest; unknown when one of them is no number."""
        values = source.values(self.of)
        return max(values) if values and all(map(isfinite, values)) else None


class Lowest(_OfOne):
    """Lowest of the series: for what must be so of every engine."""

    __slots__ = ()

    def read(self, source: Source) -> float | None:
        """Return the lowest; unknown when one of them is no number."""
        values = source.values(self.of)
        return min(values) if values and all(map(isfinite, values)) else None


class Mean(_OfOne):
    """Mean of the series."""

    __slots__ = ()

    def read(self, source: Source) -> float | None:
        """Return the mean."""
        values = source.values(self.of)
        return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class _OfTwo(_Rule):
    one: Metric
    other: Metric

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (self.one, self.other)

    def pairs(self, source: Source) -> list[tuple[float, float]] | None:
        """The values of series with equal labels; None when a series has no partner."""
        sides = []
        for side in (self.one, self.other):
            chosen = [key for key, _ in side.only]
            sides.append(
                {
                    frozenset(item for item in series.labels.items() if item[0] not in chosen): value
                    for series, value in zip(source.series(side), source.values(side), strict=True)
                }
            )
        if not sides[0] or sides[0].keys() != sides[1].keys():
            return None
        return [(value, sides[1][key]) for key, value in sides[0].items()]


class Product(_OfTwo):
    """One times the other, summed over the series."""

    __slots__ = ()

    def read(self, source: Source) -> float | None:
        """Return the sum of the products."""
        pairs = self.pairs(source)
        return None if pairs is None else sum(one * other for one, other in pairs)


class HighestShare(_OfTwo):
    """One over the other; the highest of the series."""

    __slots__ = ()

    def read(self, source: Source) -> float | None:
        """Return the highest share; unknown when a whole is not above 0."""
        pairs = self.pairs(source)
        if pairs is None or not all(whole > 0 for _, whole in pairs):
            return None
        return max(part / whole for part, whole in pairs)


@dataclass(frozen=True, slots=True)
class OfLabels(_OfOne):
    """A number out of the labels of each series, summed; NaN from one of them makes the sum unknown."""

    number: Callable[[Mapping[str, str]], float]

    def read(self, source: Source) -> float | None:
        """Return the sum; unknown unless it is above 0."""
        number = sum(self.number(series.labels) for series in source.series(self.of))
        return number if number > 0 else None


class _OfMany(_Rule):
    __slots__ = ("_metrics",)

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self._metrics


class Moving(_OfMany):
    """Sum of whatever there is of the metrics: only its movement has a meaning."""

    __slots__ = ()

    def missing(self, source: Source) -> list[Metric]:
        """Nothing while one of them is there."""
        lacking = super().missing(source)
        return lacking if len(lacking) == len(self.metrics) else []

    def read(self, source: Source) -> float | None:
        """Return the sum of the finite ones; unknown without any."""
        return total([value for each in self.metrics for value in source.values(each) if isfinite(value)])


class Rate(_OfMany):
    """Growth a second over the window, of the sum of the metrics and their series."""

    __slots__ = ()

    @property
    def late(self) -> bool:
        """Counters may come with the first request."""
        return True

    def read(self, source: Source) -> float | None:
        """Return the rate."""
        grown = source.growth(self.metrics)
        return None if grown is None or grown.seconds <= 0 else sum(grown.deltas) / grown.seconds


class Ratio(_Rule):
    """Growth of one over the growth of the others' sum, over the window."""

    __slots__ = ("_metrics", "_most")

    def __init__(self, part: Metric, *whole: Metric, most: float = inf) -> None:
        self._metrics = (part, *whole)
        self._most = most

    @property
    def late(self) -> bool:
        """Counters may come with the first request."""
        return True

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The part first."""
        return self._metrics

    def read(self, source: Source) -> float | None:
        """Return the ratio; unknown when the whole did not grow."""
        grown = source.growth(self._metrics)
        if grown is None or (whole := sum(grown.deltas[1:])) <= 0:
            return None
        return min(grown.deltas[0] / whole, self._most)


@dataclass(frozen=True, slots=True)
class Quantile(_OfOne):
    """Quantile of the newest observations; buckets of several series are added."""

    q: float
    unit: float = 1.0
    """What the page's unit is in ours."""

    @property
    def late(self) -> bool:
        """Buckets come with the first observation."""
        return True

    def read(self, source: Source) -> float | None:
        """Return the quantile."""
        value = source.quantile(self.of, self.q)
        return None if value is None else value * self.unit


class Variance(_OfOne):
    """Variance of the window's observations, from the buckets' middles."""

    __slots__ = ()

    @property
    def late(self) -> bool:
        """Counters may come with the first request."""
        return True

    def read(self, source: Source) -> float | None:
        """Return the variance."""
        return source.variance(self.of)


class Either(_Rule):
    """The first rule whose answer is known: for what versions export in different ways."""

    __slots__ = ("_rules",)

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules

    @property
    def late(self) -> bool:
        """As its rules are."""
        return all(rule.late for rule in self._rules)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Of all rules."""
        return tuple(each for rule in self._rules for each in rule.metrics)

    def missing(self, source: Source) -> list[Metric]:
        """Nothing while one of the rules has all that it reads."""
        lacking = [rule.missing(source) for rule in self._rules]
        return [] if not all(lacking) else lacking[0]

    def read(self, source: Source) -> float | None:
        """Return the first known answer. Every rule reads every page: windows need them all."""
        answers = [rule.read(source) for rule in self._rules]
        return next((answer for answer in answers if answer is not None), None)


def total(values: Sequence[float]) -> float | None:
    """Sum; None of nothing."""
    return sum(values) if values else None
