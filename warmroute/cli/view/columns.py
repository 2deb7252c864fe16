"""The table's columns: one entry each; which are shown follows from the terminal's width."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.text import Text

from warmroute.cli.view.model import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warmroute.cli.view.model import EndpointRow, Picture

SPARK_CELLS: Final = 12
_BAR_CELLS: Final = 6
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_LONGEST_REASON: Final = 40
_SHORTEST_REASON: Final = 20
_STATES: Final = {
    "admitted": "green",
    "ramp": "cyan",
    "probing": "yellow",
    "asleep": "blue",
    "leaving": "magenta",
    "drained": "magenta",
}
GAP: Final = 2
"""Blanks between columns."""
WINDOW_SECONDS: Final = 180.0
_MOST_POINTS: Final = 720
_LEVELS: Final = "▁▂▃▄▅▆▇█"
WEIGHT: Final = "weight"
P99: Final = "p99"


class History:
    """Points of weight and p99 by endpoint; those of endpoints that left are dropped."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._points: dict[str, deque[tuple[float, float | None, float | None]]] = {}

    def add(self, now: float, picture: Picture) -> None:
        """Keep a picture's numbers. `now` is in seconds and never goes back."""
        kept = {}
        for row in picture.rows:
            points = self._points.get(row.address) or deque(maxlen=_MOST_POINTS)
            points.append((now, row.share, row.signal("latency_p99_seconds", "first_byte_p99_seconds")))
            while points[0][0] < now - self._window_seconds:
                points.popleft()
            kept[row.address] = points
        self._points = kept

    def series(self, address: str, name: str, cells: int, now: float) -> list[float | None]:
        """Return the mean of each of `cells` equal spans that end now; None without samples."""
        at = 1 if name == WEIGHT else 2
        sums, counts = [0.0] * cells, [0] * cells
        for point in self._points.get(address, ()):
            value = point[at]
            cell = int((point[0] - now + self._window_seconds) / self._window_seconds * cells)
            if value is not None and cell >= 0:
                cell = min(cell, cells - 1)
                sums[cell] += value
                counts[cell] += 1
        return [total / count if count else None for total, count in zip(sums, counts, strict=True)]

    def highest(self, name: str) -> float:
        """Return the highest value of all endpoints: rows drawn on one scale can be compared."""
        at = 1 if name == WEIGHT else 2
        return max((point[at] or 0.0 for points in self._points.values() for point in points), default=0.0)


def sparkline(values: Sequence[float | None], highest: float) -> str:
    """Draw values between 0 and `highest`, one cell each; unknown is blank."""
    top = len(_LEVELS) - 1
    return "".join(
        " " if value is None else _LEVELS[min(top, round(value / highest * top)) if highest > 0 else 0]
        for value in values
    )


@dataclass(frozen=True, slots=True)
class CellContext:
    """What cells are drawn against."""

    heaviest: int = 1
    history: History = field(default_factory=History)
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Those of lesser `rank` go first when there is no room; rank 0 stays."""

    key: str
    heading: str
    rank: int
    cell: Callable[[EndpointRow, CellContext], Text]
    order: Callable[[EndpointRow], float | str | None] | None = None
    """What rows are sorted by; None where it makes no sense."""
    left: bool = False
    live: bool = False
    """Only where the view is redrawn."""
    least: int | None = None
    """Cells to which its texts may be cut where there is no room; None: they are never cut."""


UNKNOWN: Final = "\N{EN DASH}"


def unknown() -> Text:
    """Draw an unknown value."""
    return Text(UNKNOWN, style="dim")


def bar(share: float | None, style: str, cells: int = _BAR_CELLS) -> Text:
    """Draw `share` (0 to 1) on `cells` cells, in eighths of a cell."""
    if share is None:
        return Text(" " * cells)
    whole, rest = divmod(round(max(0.0, min(share, 1.0)) * cells * 8), 8)
    blocks = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return Text.assemble((blocks, style), ("·" * (cells - len(blocks)), "grey30"))


def duration(seconds: float | None) -> Text:
    """Draw a duration on few cells."""
    if seconds is None:
        return unknown()
    if seconds < 0.9995:
        return Text(f"{seconds * 1e3:.0f}ms")
    return Text(f"{seconds:.2f}s" if seconds < 10 else f"{seconds:.0f}s")


def percent(share: float | None, style: str = "", digits: int = 0) -> Text:
    """Draw a share of 0 to 1 in percent."""
    return unknown() if share is None else Text(f"{share:.{digits}%}", style=style)


def heat(share: float | None) -> str:
    """The colour of memory in use."""
    if share is None or share < 0.7:
        return "green"
    return "yellow" if share < 0.9 else "bold red"


def _count(value: float | None) -> Text:
    return unknown() if value is None else Text(f"{value:,.0f}")


def _text(value: str | None, style: str = "") -> Text:
    return Text(value, style=style) if value else unknown()


def _state(state: str) -> Text:
    return _text(state, _STATES.get(state, ""))


def _health(row: EndpointRow, _: CellContext) -> Text:
    if row.health is None:
        return unknown()
    return Text(row.health, style="bold red" if row.faults else "green")


def _errors(row: EndpointRow, _: CellContext) -> Text:
    share = row.signal("error_ratio")
    return percent(share, "bold red" if share else "", 1 if share and share < 0.1 else 0)


def _reason(row: EndpointRow, _: CellContext) -> Text:
    text = _text(brief(row.reason) if row.reason else None)
    text.truncate(_LONGEST_REASON, overflow="ellipsis")
    return text


def _trend(name: str, style: str) -> Callable[[EndpointRow, CellContext], Text]:
    def draw(row: EndpointRow, context: CellContext) -> Text:
        series = context.history.series(row.address, name, SPARK_CELLS, context.now)
        return Text(sparkline(series, context.history.highest(name)), style=style)

    return draw


def _p50(row: EndpointRow) -> float | None:
    return row.signal("latency_p50_seconds", "first_byte_p50_seconds")


def _p99(row: EndpointRow) -> float | None:
    return row.signal("latency_p99_seconds", "first_byte_p99_seconds")


def _signal(name: str) -> Callable[[EndpointRow], float | None]:
    return lambda row: row.signal(name)


def _share_of_heaviest(row: EndpointRow, context: CellContext) -> float | None:
    return None if row.weight is None else row.weight / context.heaviest


def _ratio(key: str, heading: str, rank: int, name: str, *, hot: bool) -> Column:
    def draw(row: EndpointRow, _: CellContext) -> Text:
        share = row.signal(name)
        return percent(share, heat(share) if hot else "")

    return Column(key, heading, rank, draw, _signal(name))


COLUMNS: Final[Sequence[Column]] = (
    Column("endpoint", "Endpoint", 0, lambda r, _: _text(r.address, "bold"), lambda r: r.address, left=True),
    Column("pool", "Pool", 7, lambda r, _: _text(r.pool), lambda r: r.pool, left=True),
    Column("state", "State", 1, lambda r, _: _state(r.state), lambda r: r.state, left=True),
    Column("weight", "Weight", 0, lambda r, _: _count(r.weight), lambda r: r.weight),
    Column("bar", "", 9, lambda r, s: bar(_share_of_heaviest(r, s), "cyan"), left=True, live=True),
    Column("share", "Share", 3, lambda r, _: percent(r.share, digits=1), lambda r: r.share),
    Column("trend", "Weights", 8, _trend(WEIGHT, "cyan"), left=True, live=True),
    Column("in_flight", "Flight", 2, lambda r, _: _count(r.in_flight), lambda r: r.in_flight),
    Column("queue", "Queue", 2, lambda r, _: _count(r.signal("queue_depth")), _signal("queue_depth")),
    Column("running", "Run", 6, lambda r, _: _count(r.signal("running")), _signal("running")),
    _ratio("kv", "KV", 2, "memory_used_ratio", hot=True),
    _ratio("gpu", "GPU", 4, "gpu_memory_used_ratio", hot=True),
    Column("p50", "P50", 5, lambda r, _: duration(_p50(r)), _p50),
    Column("p99", "P99", 0, lambda r, _: duration(_p99(r)), _p99),
    Column("p99_trend", "P99s", 8, _trend(P99, "magenta"), left=True, live=True),
    _ratio("hits", "Hits", 5, "prefix_hit_ratio", hot=False),
    Column("errors", "Err", 3, _errors, _signal("error_ratio")),
    Column("health", "Health", 1, _health, lambda r: -len(r.faults) if r.health else None, left=True),
    Column("reason", "Reason", 4, _reason, lambda r: r.reason, left=True, least=_SHORTEST_REASON),
)  # fmt: skip

SORTABLE: Final = tuple(column.key for column in COLUMNS if column.order is not None)


def fitting(widths: Sequence[tuple[Column, int]], columns: int) -> list[Column]:
    """Leave out whole columns, the least important and rightmost first, until the rest has room."""
    fit = [(column, min(width, column.least or width)) for column, width in widths]
    while sum(width + GAP for _, width in fit) - GAP > columns:
        droppable = [at for at, (column, _) in enumerate(fit) if column.rank > 0]
        if not droppable:
            break
        fit.pop(max(droppable, key=lambda at: (fit[at][0].rank, at)))
    return [column for column, _ in fit]


def ordered(rows: Sequence[EndpointRow], key: str, *, reverse: bool) -> list[EndpointRow]:
    """Sort by a column; unknown comes last either way, and equal rows stand by address."""
    order = next(column.order for column in COLUMNS if column.key == key)
    assert order is not None
    by_address = sorted(rows, key=lambda row: row.address)
    with_value = [row for row in by_address if order(row) is not None]
    with_value.sort(key=order, reverse=reverse)  # type: ignore[arg-type]
    return with_value + [row for row in by_address if order(row) is None]


def matching(rows: Sequence[EndpointRow], text: str) -> list[EndpointRow]:
    """Return the rows in which every word of `text` stands, whatever its case."""
    words = text.lower().split()
    return [row for row in rows if all(word in _searched(row) for word in words)]


def _searched(row: EndpointRow) -> str:
    return " ".join((row.address, row.pool, row.state, row.reason or "", row.health or "")).lower()
