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

from fleet.names import PICKED_REASONS
from warmroute.demo.watch import stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.demo.report import Target
    from warmroute.demo.watch import Row, View

_BAR_CELLS: Final = 6
_WIDE_COLUMNS: Final = 112
"""Terminals narrower than this get no bars; wider ones are not filled."""
_TWO_LINE_COLUMNS: Final = 98
"""Terminals narrower than this get headings on two lines and closer columns."""
_NARROW_COLUMNS: Final = 80
"""Terminals narrower than this lose the columns that say least."""
_TINY_COLUMNS: Final = 66
"""Terminals narrower than this keep only those that say most."""
_HEADINGS: Final = (
    "Engine", "Weight", "KV\nmemory", "Queue", "TTFT\nP99", "In\nflight", "Prefix\nhits", "Requests",
)  # fmt: skip
_WITH_BARS: Final = frozenset({1, 2, 6, 7})
_NOT_WHEN_NARROW: Final = frozenset({3, 5})
_WHEN_TINY: Final = frozenset({0, 4, 6})
_PROGRESS_CELLS: Final = 40
_STAGE_CELLS: Final = 34
"""Beside the progress, for frame and words."""
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_UNKNOWN: Final = Text("-", style="dim")
_WARM: Final = "orange1"
_BETTER: Final = "✓ "
_PROPER: Final = {
    "ttft p": "TTFT P", "nacks": "NACKs", "warmroute": "Warmroute", " over ": " over that of ",
}  # fmt: skip
_COMPARED: Final = (
    ("Requests", "requests", "count", None),
    ("Failures", "failures", "count", ("times fewer", "times more")),
    ("Time to first token, P50", "ttft_p50_seconds", "seconds", ("times sooner", "times later")),
    ("Time to first token, P99", "ttft_p99_seconds", "seconds", ("times sooner", "times later")),
    ("End to end, P99", "e2e_p99_seconds", "seconds", ("times sooner", "times later")),
    ("Prefix hit ratio", "prefix_hit_ratio", "share", ("times lower", "times higher")),
    ("Busiest engine over the mean", "max_over_mean", "factor", ("times more even", "times less even")),
)
"""Name, key, unit, and the words for a fall and a rise of the figure; None: it should not happen."""
_HIGHER_IS_BETTER: Final = frozenset({"prefix_hit_ratio"})
_SAME: Final = 1.05
"""Figures that are less than this factor apart count as the same."""


def bar(share: float | None, style: str, cells: int = _BAR_CELLS) -> Text:
    """Draw a horizontal bar of `share` (0 to 1) on `cells` cells, in eighths of a cell."""
    if share is None:
        return Text(" " * cells)
    eighths = round(max(0.0, min(share, 1.0)) * cells * 8)
    whole, rest = divmod(eighths, 8)
    drawn = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return Text.assemble((drawn, style), ("·" * (cells - len(drawn)), "grey30"))


def live(title: str, note: str, view: View, total_seconds: float, columns: int = 120) -> RenderableType:
    """Draw one moment of a run on a terminal of `columns` columns."""
    cells = _BAR_CELLS if columns >= _WIDE_COLUMNS else 0
    gap = 0 if columns < _TWO_LINE_COLUMNS else 1
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, gap), pad_edge=False, header_style="bold")
    shown = _shown(columns)
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
    return _panel(
        title, note, columns, _progress(view, total_seconds, columns), table, _footer(view, columns)
    )


def _shown(columns: int) -> Sequence[int]:
    """Return the positions of the headings that fit on a terminal of `columns` columns."""
    every = range(len(_HEADINGS))
    if columns < _TINY_COLUMNS:
        return [n for n in every if n in _WHEN_TINY]
    return [n for n in every if columns >= _NARROW_COLUMNS or n not in _NOT_WHEN_NARROW]


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


def _progress(view: View, total_seconds: float, columns: int) -> Text:
    cells = min(_PROGRESS_CELLS, columns - _STAGE_CELLS)
    done = min(view.elapsed_seconds / total_seconds, 1.0) if total_seconds else 1.0
    return Text.assemble(bar(done, _WARM, cells), (f"  {stage(view, total_seconds)}", "dim"))


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
    pairs = []
    for name, value in parts:
        bad = name in {"failed", "NACKs"} and value
        pairs.append(_pair(name, "-" if value is None else f"{value:,}", "bold red" if bad else "bold"))
    return _flowing(pairs, columns)


def _pair(name: str, value: str, style: str = "bold") -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, style))


def _decision(reason: str) -> str:
    return f"{reason} picks" if reason in PICKED_REASONS else f"no pick ({reason})"


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


def comparison(result: Mapping[str, Any], targets: Sequence[Target], columns: int = 120) -> RenderableType:
    """Draw the summary, the figures of both runs side by side, and the verdicts on the targets."""
    before, after = result["round_robin"], result["warmroute"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("Envoy alone\nround robin", justify="right")
    table.add_column("Envoy with\nWarmroute", justify="right")
    changes = columns >= _TINY_COLUMNS
    if changes:
        table.add_column("\nchange")
    for name, key, unit, words in _COMPARED:
        better, change = (None, "") if words is None else _change(before[key], after[key], key, words)
        cells = [
            _value(before[key], unit, better=better is False),
            _value(after[key], unit, better=better is True),
            Text(change, style="dim" if better is None else "green" if better else "yellow"),
        ]
        table.add_row(name, *cells[: 3 if changes else 2])
    content = (
        Text(won(before, after), style="bold"),
        table,
        Text.assemble((_BETTER, "green"), ("the better one", "dim")),
        _summary_line(result, columns),
        Text(),
        _verdicts(targets),
    )
    return _panel("The same requests, twice", "", columns, *content)


def won(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return one sentence on Warmroute's effects, better or worse."""
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
    return _times(before, after, ("times sooner", "times later")) or "no sooner"


def _times(before: float, after: float, words: tuple[str, str]) -> str:
    """Say how many times one figure is the other; "" where they count as the same, or one of them is 0."""
    if min(before, after) <= 0 or max(before, after) <= _SAME * min(before, after):
        return ""
    return f"{before / after:.1f} {words[0]}" if after < before else f"{after / before:.1f} {words[1]}"


def _summary_line(result: Mapping[str, Any], columns: int) -> Text:
    """Draw Warmroute's counters; a pick after Envoy's time limit is not in time."""
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


def _verdicts(targets: Sequence[Target]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("What the default demo is held to")
    table.add_column("measured", justify="right")
    table.add_column("wanted")
    for entry in targets:
        name = entry.name.replace("_", " ")
        for plain, proper in _PROPER.items():
            name = name.replace(plain, proper)
        mark = Text("✓", style="green") if entry.met else Text("✗", style="bold red")
        value = "unknown" if entry.value is None else f"{entry.value:.3g}"
        table.add_row(mark, name, value, Text(entry.bound, style="dim"))
    return table


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _value(value: float | None, unit: str, *, better: bool) -> Text:
    if value is None:
        return _UNKNOWN
    forms = {"count": "{:,.0f}", "seconds": "{:.3f} s", "share": "{:.1%}", "factor": "{:.2f}"}
    text = forms[unit].format(value)
    return Text(f"{_BETTER}{text}", style="bold green") if better else Text(text)


def _change(
    before: float | None, after: float | None, key: str, words: tuple[str, str]
) -> tuple[bool | None, str]:
    """Return whether Warmroute's figure is the better one, and how far the two are apart, in words."""
    if before is None or after is None:
        return None, ""
    if max(before, after) <= _SAME * min(before, after):
        return None, "the same"
    better = (after > before) is (key in _HIGHER_IS_BETTER)
    return better, _times(before, after, words) or f"{after - before:+,.3g}"


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
    """Standard output in the terminal's width; characters outside its encoding become question marks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False)
