"""How a picture of the fleet looks on a terminal: pure functions of values, width and height."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleet.names import PICKED_REASONS
from warmroute.cli.view.columns import COLUMNS, GAP, UNKNOWN, CellContext, History, fitting, matching, ordered
from warmroute.cli.view.keys import Screen
from warmroute.cli.view.model import Picture, envoys_away, kv_event_counts, kv_event_notes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.cli.view.columns import Column
    from warmroute.cli.view.model import EndpointRow

_KEYS: Final = ("s sort  S reverse  / filter  p pause  ↑↓ scroll  ? keys  q quit", "? keys  q quit", "q quit")
"""Keys in the foot, by the room that it has."""
_HELP: Final = (
    ("s, S", "next column; reverse"),
    ("/", "filter by words"),
    ("Esc", "no filter"),
    ("p", "pause, go on"),
    ("↑, ↓, k, j", "scroll"),
    ("PgUp, PgDn", "scroll by a page"),
    ("Home, End, g, G", "first row; last row"),
    ("?, h", "these keys"),
    ("q, Ctrl-C", "quit"),
)
_COUNTS: Final = (
    ("weight updates", "weight_updates"), ("pushes", "pushes"), ("ACKs", "acks"), ("NACKs", "nacks"),
)  # fmt: skip
_MOST_REASONS: Final = 3
"""Without a pick; the others are summed."""
_MOST_SKEWS: Final = 3
_MOST_KV_NOTES: Final = 3
_NAME_CELLS: Final = 9
"""Of the names at the left of the header's lines."""
_FEW_ROWS: Final = 14
"""Screens with fewer rows have no blank lines."""


@dataclass(frozen=True, slots=True)
class Frame:
    """All that one drawing shows."""

    url: str
    picture: Picture | None = None
    trouble: str = ""
    """Why there is no newer picture; empty while answers come."""
    age_seconds: float = 0.0
    screen: Screen = field(default_factory=Screen)
    history: History = field(default_factory=History)
    now: float = 0.0
    """On the history's clock."""
    clock: str = ""
    """The time of day, as text."""


def live(frame: Frame, columns: int, rows: int) -> RenderableType:
    """Draw the whole screen: header, banner, table and keys, cut to `columns` and `rows`."""
    picture = frame.picture or Picture()
    if frame.screen.help:
        return Group(_title(frame, picture, columns), *_help())
    shown = ordered(
        matching(picture.rows, frame.screen.filter), frame.screen.sort, reverse=frame.screen.reverse
    )
    top = _top(frame, picture, len(shown), columns, rows)
    room = page_rows(frame, columns, rows)
    offset = min(frame.screen.offset, max(0, len(shown) - room))
    context = _context(picture, frame)
    body = table(shown[offset : offset + room], context, columns, frame.screen, live_view=True)
    foot = _foot(frame, picture, len(shown), min(room, len(shown)), columns)
    blank = [Text()] if rows >= _FEW_ROWS else []
    return Group(*top, *blank, body, *blank, foot)


def page_rows(frame: Frame, columns: int, rows: int) -> int:
    """Return the number of endpoints that fit on a screen of `columns` and `rows`, at least 1."""
    picture = frame.picture or Picture()
    matched = len(matching(picture.rows, frame.screen.filter))
    return max(1, _below(rows) - len(_top(frame, picture, matched, columns, rows)))


def _below(rows: int) -> int:
    """Return how many lines header and endpoints share: without the headings, the foot and blank lines."""
    return rows - (4 if rows >= _FEW_ROWS else 2)


def _top(frame: Frame, picture: Picture, matched: int, columns: int, rows: int) -> list[Text]:
    """Return the lines above the table; where they leave endpoints no room, the least important go."""
    banner = _banner(frame, columns)
    lines = [
        (0, _title(frame, picture, columns)),
        *_header(picture, columns),
        *((0, line) for line in banner),
    ]
    most = _below(rows) - min(matched, rows // 2)
    while len(lines) > max(most, 1):
        least = max(range(len(lines)), key=lambda at: (lines[at][0], at))
        lines.pop(least)
    return [line for _, line in lines]


def once(picture: Picture, columns: int, screen: Screen) -> RenderableType:
    """Draw one plain table, a line an endpoint, cells without blanks but for the reason at the end."""
    shown = ordered(matching(picture.rows, screen.filter), screen.sort, reverse=screen.reverse)
    return table(shown, _context(picture, Frame("")), columns, screen, live_view=False)


def table(
    rows: Sequence[EndpointRow], context: CellContext, columns: int, screen: Screen, *, live_view: bool
) -> Table:
    """Draw rows with the columns that have room."""
    several = len({row.pool for row in rows}) > 1
    columns_shown = [c for c in COLUMNS if (live_view or not c.live) and (c.key != "pool" or several)]
    cells = {column.key: [column.cell(row, context) for row in rows] for column in columns_shown}
    widths = [(column, _width(column, cells[column.key])) for column in columns_shown]
    shown = fitting(widths, columns)
    room = (
        columns + GAP - sum(width + GAP for column, width in widths if column in shown and not column.least)
    )
    for cell in (cell for column in shown if column.least for cell in cells[column.key]):
        cell.truncate(room - GAP, overflow="ellipsis")
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in shown:
        table.add_column(
            _heading(column, screen) if live_view else column.heading,
            justify="left" if column.left else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for at in range(len(rows)):
        table.add_row(*(cells[column.key][at] for column in shown))
    return table


def _heading(column: Column, screen: Screen) -> Text:
    if column.key != screen.sort:
        return Text(column.heading)
    return Text(f"{column.heading}{'▼' if screen.reverse else '▲'}", style="bold orange1")


def _width(column: Column, cells: Sequence[Text]) -> int:
    # One more for the mark of the sorted column.
    heading = len(column.heading) + (column.order is not None and not column.left)
    return max(heading, *(cell.cell_len for cell in cells), 1)


def _context(picture: Picture, frame: Frame) -> CellContext:
    heaviest = max((row.weight or 0 for row in picture.rows), default=0)
    return CellContext(heaviest or 1, frame.history, frame.now)


def _title(frame: Frame, picture: Picture, columns: int) -> Text:
    """Draw one line; the clock, then the URL are left out where they have no room."""
    count = f"{len(picture.rows)} endpoints" if frame.picture is not None else "nothing known yet"
    ends = [Text(count, style="bold")]
    if frame.screen.paused:
        ends.append(Text("PAUSED", style="bold yellow"))
    name, url, clock = Text("Warmroute", style="bold orange1"), Text(frame.url), Text(frame.clock)
    title = Text()
    for middle in ([url, clock], [url], []):
        title = Text("  ").join([name, *middle, *ends])
        if title.cell_len <= columns:
            break
    return title


def _header(picture: Picture, columns: int) -> list[tuple[int, Text]]:
    """Return lines, each with its rank: those of a higher one go first where there is no room."""
    status = picture.status
    counts = [_pair(name, status.get(key), bad=name == "NACKs") for name, key in _COUNTS if key in status]
    picks = status.get("picks")
    picked, others = _picks(picks) if isinstance(picks, dict) else ([], [])
    kv_events = [
        _pair(freshness, count, bad=freshness == "stale")
        for freshness, count in kv_event_counts(picture.kv_events).items()
    ]
    lines = [
        *_ranked(2, _flowing("pools", [_pool(name, picture.rows) for name in picture.pools], columns)),
        *_ranked(4, _flowing("xDS", counts, columns)),
        *_ranked(3, _flowing("picks", picked, columns)),
        *_ranked(5, _flowing("no pick", others, columns)),
        *_ranked(6, _flowing("events", kv_events, columns)),
    ]
    for line in picture.skew[:_MOST_SKEWS]:
        lines += _ranked(1, _wrapped("skew", line, columns))
    for line in notes_of(status):
        lines += _ranked(1, _wrapped("note", line, columns))
    for line in kv_event_notes(picture.kv_events)[:_MOST_KV_NOTES]:
        lines += _ranked(1, _wrapped("note", line, columns))
    return lines


def _ranked(rank: int, lines: Sequence[Text]) -> list[tuple[int, Text]]:
    return [(rank, line) for line in lines]


def _pool(name: str, rows: Sequence[EndpointRow]) -> Text:
    of_pool = [row for row in rows if row.pool == name]
    serving = sum(row.serves for row in of_pool)
    style = "bold" if serving == len(of_pool) else "bold yellow"
    return Text.assemble((f"{name} ", "dim"), (f"{serving}/{len(of_pool)}", style))


def _picks(picks: Mapping[str, Any]) -> tuple[list[Text], list[Text]]:
    """Draw count and share of each reason with a pick, and of the most frequent ones without."""
    counts = {reason: count for reason, count in picks.items() if isinstance(count, int) and count}
    total = sum(counts.values())
    reasons = sorted(counts, key=lambda reason: -counts[reason])
    none = [reason for reason in reasons if reason not in PICKED_REASONS]
    picked = [_reason(reason, counts[reason], total) for reason in reasons if reason in PICKED_REASONS]
    others = [_reason(reason, counts[reason], total) for reason in none[:_MOST_REASONS]]
    if rest := sum(counts[reason] for reason in none[_MOST_REASONS:]):
        others.append(_reason("others", rest, total))
    return picked, others


def _reason(name: str, count: int, total: int) -> Text:
    return Text.assemble((f"{name} ", "dim"), (f"{count:,}", "bold"), (f" {count / total:.0%}", "dim"))


def notes_of(status: Mapping[str, Any]) -> list[str]:
    """Return notes for operators: pools with old endpoints or none, and that no Envoy is connected."""
    notes = []
    for key, text in (
        ("serving_last_good", "served from the last good state"),
        ("unknown_pools", "nothing is known of"),
    ):
        value = status.get(key)
        if value:
            names = value if isinstance(value, list | tuple) else [value]
            pools = ", ".join(str(n.get("pool", n)) if isinstance(n, dict) else str(n) for n in names)
            notes.append(f"{text}: {pools}")
    if away := envoys_away(status):
        notes.append(away)
    return notes


def _pair(name: str, value: Any, *, bad: bool) -> Text:
    style = "bold red" if bad and value else "bold"
    return Text.assemble((f"{name} ", "dim"), (f"{value:,}" if isinstance(value, int) else UNKNOWN, style))


def _banner(frame: Frame, columns: int) -> list[Text]:
    if not frame.trouble:
        return []
    age = f"; what you see is {frame.age_seconds:.0f} s old" if frame.picture is not None else ""
    text = f"NO ANSWER: {frame.trouble}{age}; trying again"
    lines = textwrap.wrap(text, max(1, columns - 2)) if columns > _NAME_CELLS else [text]
    return [Text(f" {line} ", style="bold white on red") for line in lines]


def _flowing(name: str, parts: Sequence[Text], columns: int) -> list[Text]:
    """Set parts side by side behind a name; no line ends within one."""
    if not parts:
        return []
    lines = [Text(f"{name:<{_NAME_CELLS}}", style="dim")]
    for at, part in enumerate(parts):
        if at and lines[-1].cell_len + 3 + part.cell_len > columns:
            lines.append(Text(" " * _NAME_CELLS))
        elif at:
            lines[-1].append("   ")
        lines[-1].append_text(part)
    return lines


def _wrapped(name: str, text: str, columns: int) -> list[Text]:
    """Set a sentence behind a name, on as many lines as it needs."""
    lines = textwrap.wrap(text, max(_NAME_CELLS, columns - _NAME_CELLS))
    return [
        Text.assemble((f"{'' if at else name:<{_NAME_CELLS}}", "dim"), (line, "yellow"))
        for at, line in enumerate(lines)
    ]


def _help() -> list[Text]:
    keys = max(len(key) for key, _ in _HELP)
    return [Text.assemble((f"{key:<{keys}}", "bold"), f"  {text}") for key, text in _HELP]


def _foot(frame: Frame, picture: Picture, matched: int, shown: int, columns: int) -> Text:
    screen = frame.screen
    if screen.editing is not None:
        return Text.assemble(("filter: ", "bold"), screen.editing, ("█", "blink"), ("  Enter, Esc", "dim"))
    foot = Text(f"by {screen.sort} {'▼' if screen.reverse else '▲'}  ", style="bold")
    if screen.filter:
        foot.append(f"filter: {screen.filter} ({matched} of {len(picture.rows)})  ")
    if shown < matched:
        foot.append(f"{shown} of {matched} rows  ")
    keys = next((keys for keys in _KEYS if foot.cell_len + len(keys) <= columns), "")
    foot.append(keys, "not bold dim")
    foot.truncate(columns, overflow="ellipsis")
    return foot
