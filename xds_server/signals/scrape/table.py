"""What an engine's metrics mean, as a table: each of its signals and the rule that reads it.

Each kind of engine has its table in a file next to this one (`vllm.py` and neighbours); `reader.py` applies
it. An endpoint may export several series of one metric (data-parallel engines, ranks, label values): the
rules in `rules.py` say how they become one number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xds_server.signals.scrape.histogram import Growth
    from xds_server.signals.scrape.page import Series


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
    """One page, and windows over the pages before it."""

    def series(self, of: Metric) -> Sequence[Series]:
        """Series of a metric; empty when the page has none."""
        ...

    def values(self, of: Metric) -> list[float]:
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
    """How a signal is read from a page."""

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
        """Return the signal's value; None is unknown."""
        ...


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
    second_page: str = ""
    """A second page, by its name relative to the first; empty: none."""
    read_second: Callable[[bytes], Mapping[str, float | None]] = field(default=lambda _: {})
    """Signals of the second page.

    Raises:
        ValueError: it is not what it should be.
    """

    @property
    def names(self) -> frozenset[str]:
        """Full names of the samples that are read."""
        return frozenset(
            name for rule in self.fields.values() for each in rule.metrics for name in each.names
        )


def histogram(*names: str) -> tuple[Metric, Metric, Metric]:
    """A histogram's buckets, sum and count."""
    bucket, sums, count = (tuple(name + suffix for name in names) for suffix in ("_bucket", "_sum", "_count"))
    return Metric(bucket), Metric(sums), Metric(count)
