"""The data-parallel ranks on an engine's page. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.ranks import MOST_RANKS, RANK_SIGNALS
from fleet.signals import checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xds_server.signals.scrape.history import PageHistory
    from xds_server.signals.scrape.rules import Rule, Table


@dataclass(frozen=True, slots=True, eq=False)
class RankPage:
    """What the newest page says of an engine's ranks."""

    values: NDArray[np.float64]
    """By `RANK_SIGNALS` and rank, at least one; NaN is unknown."""
    takes_header: bool = False
    """Whether picks name ranks of this kind of engine by default."""

    @property
    def count(self) -> int:
        """How many."""
        return int(self.values.shape[1])


_RANK: Final = re.compile(r"[0-9]{1,6}")
ONE: Final = RankPage(np.full((len(RANK_SIGNALS), 1), nan))
"""Of an engine without ranks."""


def ranks_on(pages: PageHistory, table: Table) -> RankPage:
    """Return the ranks on a page; `ONE` where it does not show each rank by one series of each metric.

    They stand in the order of their labels, which are numbers in a row: that is how requests name them.
    """
    if not table.rank_label or "running" not in table.fields:
        return ONE
    order = sorted(_by_label(pages, table.fields["running"], table.rank_label))
    if not 1 < len(order) <= MOST_RANKS or order != list(range(order[0], order[0] + len(order))):
        return ONE
    values = np.full((len(RANK_SIGNALS), len(order)), nan)
    for row, name in enumerate(RANK_SIGNALS):
        numbers = _by_label(pages, table.fields[name], table.rank_label) if name in table.fields else {}
        if numbers.keys() == set(order):
            values[row] = [checked(name, numbers[rank]) for rank in order]
    return RankPage(values, table.ranks_by_default)


def _by_label(pages: PageHistory, rule: Rule, label: str) -> dict[int, float]:
    """Return the values of a rule's metric by rank; none where a series has no rank or a rank has several."""
    metric = next((each for way in rule.ways for each in way if pages.values(each)), None)
    if metric is None or len(values := pages.values(metric)) < 2:
        return {}
    texts = [series.labels.get(label, "") for series in pages.series(metric)]
    if len({*texts}) < len(texts) or not all(map(_RANK.fullmatch, texts)):
        return {}
    return dict(zip(map(int, texts), values, strict=True))
