"""How the demo looks on a terminal: a live table while it runs, a comparison at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.report import Wanted
    from bench.watch import Row, View

_BAR_CELLS: Final = 6
_NARROW_BAR_CELLS: Final = 0
_WIDE_COLUMNS: Final = 112
"""Terminals narrower than this get no bars, and headings on two lines."""
_PROGRESS_CELLS: Final = 40
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_UNKNOWN: Final = Text("-", style="dim")
_WARM: Final = "orange1"
_COMPARED: Final = (
    ("Requests", "requests", "count"),
    ("Failures", "failures", "count"),
    ("Time to first token, p50", "ttft_p50_seconds", "seconds"),
    ("Time to first token, p99", "ttft_p99_seconds", "seconds"),
    ("End to end, p99", "e2e_p99_seconds", "seconds"),
    ("Prefix hit ratio", "prefix_hit_ratio", "share"),
    ("Busiest engine over the mean", "max_over_mean", "factor"),
)


def bar(share: float | None, style: str, cells: int = _BAR_CELLS) -> Text:
    """Draw a horizontal bar of `share` (0 to 1) on `cells` cells, in eighths of a cell."""
    if share is None:
        return Text(" " * cells)
    eighths = round(max(0.0, min(share, 1.0)) * cells * 8)
    whole, rest = divmod(eighths, 8)
    drawn = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return Text.assemble((drawn, style), ("·" * (cells - len(drawn)), "grey30"))


def live(title: str, note: str, view: View, total_seconds: float, columns: int = 120) -> RenderableType:
    """Draw one moment of a run on a terminal of so many columns."""
    cells = _BAR_CELLS if columns >= _WIDE_COLUMNS else _NARROW_BAR_CELLS
    table = Table(box=box.SIMPLE_HEAD, expand=False, pad_edge=False, header_style="bold")
    narrow = not cells
    table.add_column("Engine", no_wrap=True)
    for name in ("Weight", "KV memory"):
        table.add_column(name, no_wrap=not narrow)
    for name in ("Queue", "TTFT P99", "In flight"):
        table.add_column(name, justify="right", no_wrap=not narrow)
    for name in ("Prefix hits", "Requests"):
        table.add_column(name, no_wrap=not narrow)
    heaviest = max((row.weight or 0 for row in view.rows), default=0) or 1
    busiest = max((row.requests for row in view.rows), default=0) or 1
    for row in view.rows:
        table.add_row(*_cells(row, heaviest, busiest, cells))
    return Panel(
        Group(_progress(view, total_seconds), table, _footer(view)),
        title=Text(title, style=f"bold {_WARM}"),
        subtitle=Text(note, style="dim"),
        title_align="left",
        subtitle_align="left",
        border_style="grey42",
        expand=False,
        padding=(0, 1),
    )


def _cells(row: Row, heaviest: int, busiest: int, cells: int) -> list[Text]:
    weight = None if row.weight is None else row.weight / heaviest
    memory = row.memory_used_ratio
    return [
        Text(row.address, style="bold"),
        _with_bar(weight, cells, "cyan", "" if row.weight is None else f"{row.weight:>6,}"),
        _with_bar(memory, cells, _heat(memory), _percent(memory)),
        _number(row.queue_depth, "{:.0f}"),
        _number(row.latency_p99_seconds, "{:.2f}\u00a0s"),
        _number(row.in_flight, "{:d}"),
        _with_bar(row.prefix_hit_ratio, cells, _WARM, _percent(row.prefix_hit_ratio)),
        _with_bar(row.requests / busiest, cells, "blue", f"{row.requests:>5,}"),
    ]


def _progress(view: View, total_seconds: float) -> Text:
    done = min(view.elapsed_seconds / total_seconds, 1.0) if total_seconds else 1.0
    words = f"{view.elapsed_seconds:4.1f} of {total_seconds:g} s"
    if view.elapsed_seconds >= total_seconds:
        words = "waiting for the last answers" if view.in_flight else "done"
    return Text.assemble(bar(done, _WARM, _PROGRESS_CELLS), ("  " + words, "dim"))


def _footer(view: View) -> Text:
    parts: list[tuple[str, object]] = [
        ("sent", view.sent),
        ("in flight", view.in_flight),
        ("failed", view.failures),
    ]
    if view.status:
        parts += [
            (name.replace("_", " "), view.status.get(name)) for name in ("weight_updates", "acks", "nacks")
        ]
        picks = view.status.get("picks") or {}
        parts += [(f"{reason} picks", count) for reason, count in picks.items() if count]
    text = Text()
    for name, value in parts:
        bad = name in {"failed", "nacks"} and value
        text.append(f"{name} ", style="dim")
        text.append("-" if value is None else f"{value:,}", style="bold red" if bad else "bold")
        text.append("   ")
    return text


def comparison(result: Mapping[str, Any], wanted: Sequence[Wanted]) -> RenderableType:
    """Draw the figures of both runs side by side, and which targets are met."""
    before, after = result["round_robin"], result["warmroute"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("Envoy alone\nround robin", justify="right")
    table.add_column("Envoy with\nWarmroute", justify="right", style="bold")
    table.add_column("\nchange", justify="right")
    for name, key, unit in _COMPARED:
        table.add_row(
            name, _value(before[key], unit), _value(after[key], unit), _change(before[key], after[key], unit)
        )
    honoured = result["picks_honoured"]
    picks = ", ".join(f"{count:,} {reason}" for reason, count in result["pick_reasons"].items() if count)
    told = Text.assemble(
        ("weight updates ", "dim"), f"{result['weight_updates']}   ",
        ("ACKs ", "dim"), f"{result['acks']}   ", ("NACKs ", "dim"), f"{result['nacks']}   ",
        ("picks ", "dim"), f"{result['picks']} ({picks or 'none'})   ",
        ("honoured ", "dim"), "-" if honoured is None else f"{honoured:.1%}",
    )  # fmt: skip
    return Panel(
        Group(table, told, Text(), *map(_verdict, wanted)),
        title=Text("The same requests, twice", style=f"bold {_WARM}"),
        title_align="left",
        border_style="grey42",
        expand=False,
        padding=(0, 1),
    )


def _verdict(entry: Wanted) -> Text:
    mark = ("✓ ", "green") if entry.met else ("✗ ", "bold red")
    value = "unknown" if entry.value is None else f"{entry.value:.4g}"
    return Text.assemble(mark, entry.name.replace("_", " "), (f"  {value}  wanted {entry.wanted}", "dim"))


def _value(value: float | None, unit: str) -> Text:
    if value is None:
        return _UNKNOWN
    forms = {"count": "{:,.0f}", "seconds": "{:.3f} s", "share": "{:.1%}", "factor": "{:.2f}"}
    return Text(forms[unit].format(value))


def _change(before: float | None, after: float | None, unit: str) -> Text:
    if not before or after is None or unit == "count":
        return Text("")
    factor = after / before
    better = factor > 1 if unit == "share" else factor < 1
    return Text(f"x {factor:.2f}", style="green" if better else "yellow")


def _with_bar(share: float | None, cells: int, style: str, label: str) -> Text:
    return (
        _UNKNOWN
        if share is None
        else Text.assemble(bar(share, style, cells), f" {label}" if cells else label.strip())
    )


def _number(value: float | None, form: str) -> Text:
    return _UNKNOWN if value is None else Text(form.format(value))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:>4.0%}"


def _heat(share: float | None) -> str:
    if share is None or share < 0.7:
        return "green"
    return "yellow" if share < 0.9 else "red"


def console() -> Console:
    """Standard output, as wide as the terminal is."""
    return Console(highlight=False)
