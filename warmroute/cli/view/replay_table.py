"""The tables of `warmroute replay`: figures or knees by policy, as wide as the terminal."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.replay.figures import Interval


class _Column(NamedTuple):
    title: str
    form: str
    rank: int
    """A narrow terminal leaves out the highest."""


_FIGURES: Final = {
    "ttft_p50": _Column("TTFT p50", "{:.3f}", 1),
    "ttft_p90": _Column("TTFT p90", "{:.3f}", 0),
    "ttft_p99": _Column("TTFT p99", "{:.2f}", 2),
    "e2e_p50": _Column("E2E p50", "{:.1f}", 7),
    "e2e_p90": _Column("E2E p90", "{:.1f}", 10),
    "e2e_p99": _Column("E2E p99", "{:.1f}", 3),
    "slowdown_p50": _Column("slow p50", "{:.2f}", 13),
    "slowdown_p90": _Column("slow p90", "{:.1f}", 12),
    "slowdown_p99": _Column("slow p99", "{:.1f}", 4),
    "tpot_p50": _Column("TPOT p50", "{:.4f}", 11),
    "tpot_p90": _Column("TPOT p90", "{:.4f}", 14),
    "tpot_p99": _Column("TPOT p99", "{:.4f}", 9),
    "hit_ratio": _Column("hits", "{:.1%}", 0),
    "busiest_over_mean": _Column("busiest", "{:.2f}", 5),
    "busy_share": _Column("GPU busy", "{:.1%}", 8),
    "goodput": _Column("goodput", "{:.1%}", 6),
}
_FAILED: Final = {"failed": _Column("failed", "{:.2%}", 0)}
_KNEES: Final = {
    "rate": _Column("knee", "{:.2f}", 0),
    "requests_per_second": _Column("req/s", "{:.2f}", 0),
    "ttft_p90": _Column("TTFT p90", "{:.3f}", 2),
    "hit_ratio": _Column("hits", "{:.1%}", 3),
    "busiest_over_mean": _Column("busiest", "{:.2f}", 4),
}
_MORE_IS_BETTER: Final = frozenset({"hit_ratio", "goodput", "rate", "requests_per_second"})
_NEITHER_IS_BETTER: Final = frozenset({"busy_share"})
_AT_THE_KNEE: Final = frozenset({"ttft_p90", "hit_ratio", "busiest_over_mean"})
"""Each at another rate, so none is the best."""
_POLICY_WIDTH: Final = 16
_COLUMN_WIDTH: Final = 10
_INTERVAL_WIDTH: Final = 9


def figure_table(results: Mapping[str, Mapping[str, Interval]], width: int) -> Table:
    """Return a row per policy, with as many columns as the width has room for; the best are marked."""
    failing = any(result["failed"].mean for result in results.values())
    return _table(results, {**(_FAILED if failing else {}), **_FIGURES}, width)


def knee_table(knees: Mapping[str, Mapping[str, Interval]], width: int) -> Table:
    """Return a row per policy with its knee, the best one first."""
    ranked = sorted(knees.items(), key=lambda item: -item[1]["rate"].mean)
    return _table(dict(ranked), _KNEES, width, unmarked=_AT_THE_KNEE)


def _table(
    results: Mapping[str, Mapping[str, Interval]],
    columns: Mapping[str, _Column],
    width: int,
    unmarked: frozenset[str] = _NEITHER_IS_BETTER,
) -> Table:
    with_interval = any(not isnan(each.half_width) for result in results.values() for each in result.values())
    each = _COLUMN_WIDTH + (_INTERVAL_WIDTH if with_interval else 0)
    room = max(2, (width - _POLICY_WIDTH) // each)
    if with_interval and room < len(columns):
        # Every figure before any interval: `--json` has both.
        with_interval, room = False, max(2, (width - _POLICY_WIDTH) // _COLUMN_WIDTH)
    names = sorted(columns, key=lambda name: columns[name].rank)[:room]
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    texts: list[list[str]] = []
    for name, column in columns.items():
        if name in names:
            table.add_column(column.title, justify="right", no_wrap=True)
            intervals = [result[name] for result in results.values()]
            mark = name not in unmarked
            texts.append(_cells(name, column, intervals, with_interval=with_interval, mark=mark))
    for policy, *cells in zip(results, *texts, strict=True):
        table.add_row(policy, *cells)
    return table


def _cells(
    name: str, column: _Column, intervals: Sequence[Interval], *, with_interval: bool, mark: bool
) -> list[str]:
    """Return a column's texts; the best ones are marked, unless most policies have that value."""
    means = [column.form.format(interval.mean) for interval in intervals]
    best = column.form.format((max if name in _MORE_IS_BETTER else min)(each.mean for each in intervals))
    marked = mark and 2 * means.count(best) <= len(means)
    return [
        text
        + (f" ±{column.form.format(interval.half_width)}" if with_interval else "")
        + ("*" if marked and text == best else " ")
        for text, interval in zip(means, intervals, strict=True)
    ]
