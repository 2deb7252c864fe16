"""What an engine's metrics mean, as a table: each of a load's fields and the rule that reads it.

Each kind of engine has its table in a file beside this one (`vllm.py` and neighbours); `reader.py` applies
it. An endpoint may export several series of one metric (data-parallel engines, ranks, label values). The name
of each rule says how they become one number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xds_server.signals.histogram import Growth
    from xds_server.signals.page import Series


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


class Source(Protocol):
    """One page, and what the pages before it told."""

    def series(self, wanted: Metric) -> Sequence[Series]:
        """Series of a metric; empty when the page has none."""
        ...

    def values(self, wanted: Metric) -> list[float]:
        """Their values."""
        ...

    def growth(self, metrics: tuple[Metric, ...]) -> Growth | None:
        """Growth of each metric's sum over the window; None when one is missing or nothing is known yet."""
        ...

    def quantile(self, buckets: Metric, q: float) -> float | None:
        """Quantile of the newest observations of a histogram."""
        ...

    def variance(self, buckets: Metric) -> float | None:
        """Variance of a histogram's observations in the window."""
        ...


class Rule(Protocol):
    """How a field is read from a page."""

    @property
    def late(self) -> bool:
        """Whether engines may export it from their first request on only."""
        ...

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """All that it reads."""
        ...

    def missing(self, source: Source) -> list[Metric]:
        """What the page lacks of it."""
        ...

    def read(self, source: Source) -> float | None:
        """Return the field's value; None is unknown."""
        ...


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
        return [wanted for wanted in self.metrics if not source.values(wanted)]


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
class Told(_OfOne):
    """What the labels of each series tell, summed; NaN from one of them makes the sum unknown."""

    told: Callable[[Mapping[str, str]], float]

    def read(self, source: Source) -> float | None:
        """Return the sum; unknown unless it is above 0."""
        told = sum(self.told(series.labels) for series in source.series(self.of))
        return told if told > 0 else None


class _OfMany(_Rule):
    __slots__ = ("_metrics",)

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self._metrics


class Moving(_OfMany):
    """Sum of whatever there is of the metrics: whether it moves is all that it tells."""

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
    """The first rule whose answer is known: for what versions tell in different ways."""

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


@dataclass(frozen=True)
class Table:
    """One kind of engine."""

    marks: tuple[str, ...]
    """What lines of its pages begin with, and other kinds' do not."""
    fields: Mapping[str, Rule]
    """A load's field to the rule that reads it."""
    optional: frozenset[str] = frozenset()
    """Fields that only some versions or switches of the engine tell: no warning when they are missing."""
    repeated_by: tuple[str, ...] = ()
    """Labels of ranks that all tell the same: of series that differ in them alone, the lowest rank counts."""
    parted_by: tuple[str, ...] = ()
    """Labels whose empty value stands for the sum of the others, which are then left out."""
    beside: str = ""
    """A second page that belongs to the first, by its name beside it; empty: none."""
    read_beside: Callable[[bytes], Mapping[str, float | None]] = field(default=lambda _: {})
    """Fields that the second page tells.

    Raises:
        ValueError: it is not what it should be.
    """

    @property
    def wanted(self) -> frozenset[str]:
        """Full names of the samples that are read."""
        return frozenset(
            name for rule in self.fields.values() for each in rule.metrics for name in each.names
        )


def histogram(*names: str) -> tuple[Metric, Metric, Metric]:
    """A histogram's buckets, sum and count."""
    bucket, sums, count = (tuple(name + suffix for name in names) for suffix in ("_bucket", "_sum", "_count"))
    return Metric(bucket), Metric(sums), Metric(count)


def total(values: Sequence[float]) -> float | None:
    """Sum; None of nothing."""
    return sum(values) if values else None
