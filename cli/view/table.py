"""How a picture of the fleet looks on a terminal: pure functions of values, width and height."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.view.columns import COLUMNS, GAP, UNKNOWN, Scene, fitting, matching, ordered
from cli.view.history import History
from cli.view.keys import Screen
from cli.view.model import Picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cli.view.columns import Column
    from cli.view.model import EndpointRow

_KEYS: Final = "s sort  S reverse  / filter  p pause  ↑↓ scroll  q quit"
_COUNTS: Final = (
    ("weight updates", "weight_updates"), ("pushes", "pushes"), ("ACKs", "acks"), ("NACKs", "nacks"),
)  # fmt: skip
_PICKED: Final = ("warm", "cold")
_LEAST_ROWS: Final = 3
_MOST_SKEWS: Final = 3


@dataclass(frozen=True, slots=True)
class Moment:
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


def live(moment: Moment, columns: int, rows: int) -> RenderableType:
    """Draw the whole screen: header, banner, table and keys, cut to so many columns and rows."""
    picture = moment.picture or Picture()
    top = [_title(moment, picture), *_header(picture, columns)]
    if banner := _banner(moment):
        top.append(banner)
    shown = ordered(
        matching(picture.rows, moment.screen.filter), moment.screen.sort, reverse=moment.screen.reverse
    )
    used = sum(_lines(text, columns) for text in top)
    room = max(_LEAST_ROWS, rows - used - 4)
    offset = min(moment.screen.offset, max(0, len(shown) - room))
    scene = _scene(picture, moment)
    body = table(shown[offset : offset + room], scene, columns, moment.screen, live_view=True)
    return Group(*top, Text(), body, _foot(moment, picture, len(shown), min(room, len(shown))))


def once(picture: Picture, columns: int, screen: Screen) -> RenderableType:
    """Draw one plain table, a line an endpoint, cells without blanks but for the reason at the end."""
    shown = ordered(matching(picture.rows, screen.filter), screen.sort, reverse=screen.reverse)
    return table(shown, _scene(picture, Moment("")), columns, screen, live_view=False)


def table(
    rows: Sequence[EndpointRow], scene: Scene, columns: int, screen: Screen, *, live_view: bool
) -> Table:
    """Draw rows with the columns that have room."""
    several = len({row.pool for row in rows}) > 1
    wanted = [c for c in COLUMNS if (live_view or not c.live) and (c.key != "pool" or several)]
    cells = {column.key: [column.cell(row, scene) for row in rows] for column in wanted}
    widths = [(column, _width(column, cells[column.key])) for column in wanted]
    shown = fitting(widths, columns)
    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in shown:
        drawn.add_column(
            _heading(column, screen) if live_view else column.heading,
            justify="left" if column.left else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for at in range(len(rows)):
        drawn.add_row(*(cells[column.key][at] for column in shown))
    return drawn


def _heading(column: Column, screen: Screen) -> Text:
    if column.key != screen.sort:
        return Text(column.heading)
    return Text(f"{column.heading}{'▼' if screen.reverse else '▲'}", style="bold orange1")


def _width(column: Column, cells: Sequence[Text]) -> int:
    # One more for the mark of the sorted column.
    heading = len(column.heading) + (column.order is not None and not column.left)
    return max(heading, *(cell.cell_len for cell in cells), 1)


def _scene(picture: Picture, moment: Moment) -> Scene:
    heaviest = max((row.weight or 0 for row in picture.rows), default=0)
    return Scene(heaviest or 1, moment.history, moment.now)


def _title(moment: Moment, picture: Picture) -> Text:
    known = f"{len(picture.rows)} endpoints" if moment.picture is not None else "nothing known yet"
    title = Text.assemble(("Warmroute", "bold orange1"), f"  {moment.url}  {moment.clock}  ", (known, "bold"))
    if moment.screen.paused:
        title.append("  PAUSED", "bold yellow")
    return title


def _header(picture: Picture, columns: int) -> list[Text]:
    status = picture.status
    counts = [_pair(name, status.get(key), bad=name == "NACKs") for name, key in _COUNTS if key in status]
    lines = [_flowing("pools", [_pool(name, picture.rows) for name in picture.pools], columns)]
    lines.append(_flowing("xDS", counts, columns))
    picks = status.get("picks")
    lines.append(_flowing("picks", _picks(picks) if isinstance(picks, dict) else [], columns))
    lines += [Text(f"skew   {line}", style="yellow") for line in picture.skew[:_MOST_SKEWS]]
    lines += [_flowing("note", [text], columns) for text in _notes(status)]
    return [line for line in lines if line]


def _pool(name: str, rows: Sequence[EndpointRow]) -> Text:
    of_pool = [row for row in rows if row.pool == name]
    serving = sum(row.weight is not None for row in of_pool)
    style = "bold" if serving == len(of_pool) else "bold yellow"
    return Text.assemble((f"{name} ", "dim"), (f"{serving}/{len(of_pool)}", style))


def _picks(picks: Mapping[str, Any]) -> list[Text]:
    """Draw each reason's count and share, picked ones first."""
    counts = {reason: count for reason, count in picks.items() if isinstance(count, int) and count}
    total = sum(counts.values())
    told = sorted(counts, key=lambda reason: (reason not in _PICKED, -counts[reason]))
    return [
        Text.assemble(
            (f"{reason} " if reason in _PICKED else f"no pick: {reason} ", "dim"),
            (f"{counts[reason]:,}", "bold"),
            (f" {counts[reason] / total:.0%}", "dim"),
        )
        for reason in told
    ]


def _notes(status: Mapping[str, Any]) -> list[Text]:
    """What an operator should know at once: pools that stand on old knowledge, or on none."""
    notes = []
    for key, text in (
        ("serving_last_good", "served from the last good state"),
        ("unknown_pools", "nothing is known of"),
    ):
        told = status.get(key)
        if told:
            names = told if isinstance(told, list | tuple) else [told]
            pools = ", ".join(str(n.get("pool", n)) if isinstance(n, dict) else str(n) for n in names)
            notes.append(Text(f"{text}: {pools}", style="yellow"))
    return notes


def _pair(name: str, value: Any, *, bad: bool) -> Text:
    style = "bold red" if bad and value else "bold"
    return Text.assemble((f"{name} ", "dim"), (f"{value:,}" if isinstance(value, int) else UNKNOWN, style))


def _banner(moment: Moment) -> Text | None:
    if not moment.trouble:
        return None
    age = f"; what you see is {moment.age_seconds:.0f} s old" if moment.picture is not None else ""
    return Text(f" NO ANSWER: {moment.trouble}{age}; trying again ", style="bold white on red")


def _flowing(name: str, parts: Sequence[Text], columns: int) -> Text:
    """Set parts side by side behind a name; no line ends within one."""
    if not parts:
        return Text()
    lines = [Text(f"{name:<7}", style="dim")]
    for at, part in enumerate(parts):
        if at and lines[-1].cell_len + 3 + part.cell_len > columns:
            lines.append(Text(" " * 7))
        elif at:
            lines[-1].append("   ")
        lines[-1].append_text(part)
    return Text("\n").join(lines)


def _lines(text: Text, columns: int) -> int:
    return sum(max(1, -(-line.cell_len // max(columns, 1))) for line in text.split("\n"))


def _foot(moment: Moment, picture: Picture, matched: int, shown: int) -> Text:
    screen = moment.screen
    if screen.editing is not None:
        return Text.assemble(("\nfilter: ", "bold"), screen.editing, ("█", "blink"), ("  Enter, Esc", "dim"))
    foot = Text.assemble("\n", (f"by {screen.sort} {'▼' if screen.reverse else '▲'}  ", "bold"))
    if screen.filter:
        foot.append(f"filter: {screen.filter} ({matched} of {len(picture.rows)})  ", "bold")
    if shown < matched:
        foot.append(f"{shown} of {matched} rows  ", "bold")
    return foot.append(_KEYS, "dim")
