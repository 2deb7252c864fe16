"""How the demo looks on a terminal: a live table while it runs, a comparison at its end."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bench.watch import stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.report import Wanted
    from bench.watch import Row, View

_BAR_CELLS: Final = 6
_WIDE_COLUMNS: Final = 112
"""Terminals narrower than this get no bars; wider ones are not filled."""
_TWO_LINE_COLUMNS: Final = 98
"""Terminals narrower than this get headings on two lines and closer columns."""
_TINY_COLUMNS: Final = 80
"""Terminals narrower than this lose the columns that say least."""
_HEADINGS: Final = (
    "Engine", "Weight", "KV\nmemory", "Queue", "TTFT\nP99", "In\nflight", "Prefix\nhits", "Requests",
)  # fmt: skip
_WITH_BARS: Final = frozenset({1, 2, 6, 7})
_NOT_WHEN_TINY: Final = frozenset({3, 5})
_PROGRESS_CELLS: Final = 40
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_UNKNOWN: Final = Text("-", style="dim")
_WARM: Final = "orange1"
_PROPER: Final = {
    "ttft p": "TTFT P", "nacks": "NACKs", "warmroute": "Warmroute", " over ": " over that of ",
}  # fmt: skip
_COMPARED: Final = (
    ("Requests", "requests", "count"),
    ("Failures", "failures", "count"),
    ("Time to first token (TTFT), P50", "ttft_p50_seconds", "seconds"),
    ("Time to first token (TTFT), P99", "ttft_p99_seconds", "seconds"),
    ("End to end, P99", "e2e_p99_seconds", "seconds"),
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
    cells = _BAR_CELLS if columns >= _WIDE_COLUMNS else 0
    gap = 0 if columns < _TWO_LINE_COLUMNS else 1
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, gap), pad_edge=False, header_style="bold")
    shown = [n for n in range(len(_HEADINGS)) if columns >= _TINY_COLUMNS or n not in _NOT_WHEN_TINY]
    for n in shown:
        heading = _HEADINGS[n] if columns < _TWO_LINE_COLUMNS else _HEADINGS[n].replace("\n", " ")
        least = _BAR_CELLS + 7 if cells and n in {1, 7} else None  # as wide before as with numbers
        left = n == 0 or (cells and n in _WITH_BARS)
        table.add_column(heading, justify="left" if left else "right", no_wrap=True, min_width=least)
    heaviest = max((row.weight or 0 for row in view.rows), default=0) or 1
    busiest = max((row.requests for row in view.rows), default=0) or 1
    for row in view.rows:
        made = _cells(row, heaviest, busiest, cells)
        table.add_row(*(made[n] for n in shown))
    return _panel(title, note, columns, _progress(view, total_seconds), table, _footer(view, columns))


def _panel(title: str, note: str, columns: int, *content: RenderableType) -> Panel:
    """Frame it; all frames on one terminal are equally wide."""
    return Panel(
        Group(*content),
        title=Text(title, style=f"bold {_WARM}"),
        subtitle=Text(note, style="dim") if note else None,
        title_align="left",
        subtitle_align="left",
        border_style="grey42",
        width=min(columns, _WIDE_COLUMNS),
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
        _number(row.latency_p99_seconds, "{:.2f} s"),
        _number(row.in_flight, "{:.0f}"),
        _with_bar(row.prefix_hit_ratio, cells, _WARM, _percent(row.prefix_hit_ratio)),
        _with_bar(row.requests / busiest, cells, "blue", f"{row.requests:>5,}"),
    ]


def _progress(view: View, total_seconds: float) -> Text:
    done = min(view.elapsed_seconds / total_seconds, 1.0) if total_seconds else 1.0
    return Text.assemble(bar(done, _WARM, _PROGRESS_CELLS), (f"  {stage(view, total_seconds)}", "dim"))


def _footer(view: View, columns: int) -> Text:
    parts: list[tuple[str, object]] = [
        ("sent", view.sent),
        ("in flight", view.in_flight),
        ("failed", view.failures),
    ]
    if view.status:
        parts += [
            (name, view.status.get(key))
            for name, key in (("weight updates", "weight_updates"), ("ACKs", "acks"), ("NACKs", "nacks"))
        ]
        picks = view.status.get("picks") or {}
        parts += [(_decision(reason), count) for reason, count in picks.items() if count]
    told = []
    for name, value in parts:
        bad = name in {"failed", "NACKs"} and value
        told.append(_pair(name, "-" if value is None else f"{value:,}", "bold red" if bad else "bold"))
    return _flowing(told, columns)


def _pair(name: str, value: str, style: str = "bold") -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, style))


def _decision(reason: str) -> str:
    return f"{reason} picks" if reason in {"warm", "cold"} else f"no pick ({reason})"


def _flowing(parts: Sequence[Text], columns: int) -> Text:
    """Set parts side by side in a frame; no line ends within one."""
    space = min(columns, _WIDE_COLUMNS) - 4
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + 3 + part.cell_len <= space:
            lines[-1].append("   ").append_text(part)
        else:
            lines.append(part.copy())
    return Text("\n").join(lines)


def comparison(result: Mapping[str, Any], wanted: Sequence[Wanted], columns: int = 120) -> RenderableType:
    """Say what was won, draw the figures of both runs side by side, and which targets are met."""
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
    content = (
        Text(won(before, after), style="bold"),
        table,
        _told(result, columns),
        Text(),
        _verdicts(wanted),
    )
    return _panel("The same requests, twice", "", columns, *content)


def won(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Say in one sentence what Warmroute changed, be it better or worse."""
    parts = []
    if before["ttft_p50_seconds"] and after["ttft_p50_seconds"]:
        p50 = _sooner(before["ttft_p50_seconds"], after["ttft_p50_seconds"])
        p99 = _sooner(before["ttft_p99_seconds"], after["ttft_p99_seconds"])
        parts.append(f"the first token came {p50} at the median and {p99} at P99")
    if before["prefix_hit_ratio"] is not None and after["prefix_hit_ratio"] is not None:
        parts.append(
            f"{after['prefix_hit_ratio']:.0%} of the prompts' tokens were in the engine's cache "
            f"instead of {before['prefix_hit_ratio']:.0%}"
        )
    failures = after["failures"]
    parts.append(f"{failures:,} request{'s' * (failures != 1)} failed" if failures else "no request failed")
    return f"With Warmroute {', '.join(parts[:-1])}{', and ' if parts[:-1] else ''}{parts[-1]}."


def _sooner(before: float, after: float) -> str:
    if after < before / 1.05:
        return f"{before / after:.1f} times sooner"
    return f"{after / before:.1f} times later" if after > before * 1.05 else "no sooner"


def _told(result: Mapping[str, Any], columns: int) -> Text:
    """Draw what Warmroute counted; a pick that Envoy no longer waits for is not in time."""
    honoured = result["picks_honoured"]
    pairs = [
        ("weight updates", _count(result["weight_updates"])),
        ("ACKs", _count(result["acks"])),
        ("NACKs", _count(result["nacks"])),
        *((_decision(reason), f"{count:,}") for reason, count in result["pick_reasons"].items() if count),
        ("picks in time", _count(result["picks"])),
        ("picks honoured", "-" if honoured is None else f"{honoured:.1%}"),
    ]
    return _flowing([_pair(name, value) for name, value in pairs], columns)


def _verdicts(wanted: Sequence[Wanted]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("What the default demo is held to")
    table.add_column("measured", justify="right")
    table.add_column("wanted")
    for entry in wanted:
        name = entry.name.replace("_", " ")
        for plain, proper in _PROPER.items():
            name = name.replace(plain, proper)
        mark = Text("✓", style="green") if entry.met else Text("✗", style="bold red")
        value = "unknown" if entry.value is None else f"{entry.value:.3g}"
        table.add_row(mark, name, value, Text(entry.wanted, style="dim"))
    return table


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


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
    """Standard output, as wide as the terminal is; what its encoding lacks becomes a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False)
