"""How the demo looks on a terminal: one table, a column for each policy, and what it says."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final, NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import ConsoleOptions

    from warmroute.demo.scenario import Scenario, TtftQuantile
    from warmroute.demo.stats import Moment, Summary

_WIDE_COLUMNS: Final = 100
"""Wider terminals are not filled."""
_NARROW_COLUMNS: Final = 72
"""Terminals narrower than this get short names."""
_PROGRESS_CELLS: Final = 24
_WARM: Final = "orange1"
_SAME: Final = 1.05
"""Figures that are less than this factor apart count as the same."""
_LATE_SECONDS: Final = 0.02
"""From here on, a late load blurs the figures: a median time to first token is about twice that."""


_NEXT: Final = (
    "Next: a trace, without engines: {command} replay [TRACE] (docs/replay.md);"
    " your own engines: docs/quickstart.md."
)


class _Row(NamedTuple):
    key: str
    name: str
    short: str
    unit: str
    higher_is_better: bool = False


_ROWS: Final = (
    _Row("ttft_p50_seconds", "Time to first token, p50", "TTFT p50", "seconds"),
    _Row("ttft_p90_seconds", "Time to first token, p90", "TTFT p90", "seconds"),
    _Row("ttft_p99_seconds", "Time to first token, p99", "TTFT p99", "seconds"),
    _Row("e2e_p99_seconds", "Whole answer, p99", "E2E p99", "seconds"),
    _Row("prefix_hit_ratio", "Prompt tokens from the cache", "Hits", "share", higher_is_better=True),
    _Row("busiest_over_mean", "Busiest engine over the mean", "Busiest", "factor"),
    _Row("failures", "Failures", "Failures", "count"),
)


def running(
    chosen: Scenario, columns: Mapping[str, Summary | None], moment: Moment, options: ConsoleOptions
) -> RenderableType:
    """Draw one moment: progress, and the figures so far."""
    progress = Table.grid()
    progress.add_row(ProgressBar(total=1.0, completed=moment.done_ratio, width=_PROGRESS_CELLS))
    progress.add_row(Text(f"{moment.policy}: {moment.stage}", style="bold"))
    return _panel(chosen, options, progress, Text(), _figures(columns, options, marks=False))


def comparison(
    chosen: Scenario, columns: Mapping[str, Summary], closing: str, options: ConsoleOptions
) -> RenderableType:
    """Draw the figures of all runs, the best ones marked, and what they mean."""
    legend = f"{_mark(options)}the best, or within 5% of it"
    figures = _figures(columns, options, marks=True)
    closing_lines = Text(closing), Text(), Text(_NEXT.format(command=_command()), style="dim")
    return _panel(chosen, options, Text(), figures, Text(), *closing_lines, legend=legend)


def _command() -> str:
    """Return how to call Warmroute from here: after `make demo`, its environment need not be active."""
    if which("warmroute"):
        return "warmroute"
    beside = Path(sys.executable).with_name("warmroute")
    return os.path.relpath(beside) if beside.exists() else "warmroute"


def _panel(
    chosen: Scenario, options: ConsoleOptions, *content: RenderableType, legend: str | None = None
) -> Panel:
    """Frame it; all frames on one terminal are equally wide."""
    about = f"{len(chosen.turns):,} {chosen.workload}, to {chosen.engines} engines"
    return Panel(
        Group(Text(about, style="dim"), Text(f"Load: {chosen.load}", style="dim"), *content),
        title=Text("The same requests by each policy", style=f"bold {_WARM}"),
        title_align="left",
        subtitle=Text(legend, style="green") if legend else None,
        subtitle_align="left",
        border_style="grey42",
        width=min(options.max_width, _WIDE_COLUMNS),
        padding=(0, 1),
    )


def _figures(columns: Mapping[str, Summary | None], options: ConsoleOptions, *, marks: bool) -> Table:
    narrow = options.max_width < _NARROW_COLUMNS
    padding = 0 if narrow else (0, 1)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", padding=padding)
    table.add_column("")
    for name in columns:
        table.add_column(name.replace(" ", "\n") if narrow else name, justify="right", min_width=7)
    for row in _ROWS:
        values = [getattr(summary, row.key) if summary else None for summary in columns.values()]
        best = _best(values, row) if marks else [False] * len(values)
        cells = (
            _cell(value, row.unit, _mark(options) if at else "")
            for value, at in zip(values, best, strict=True)
        )
        table.add_row(row.short if narrow else row.name, *cells)
    return table


def _best(values: list[float | None], row: _Row) -> list[bool]:
    """Return which figures are the best or as good; none where all are, or one is unknown."""
    figures = [value for value in values if value is not None]
    if len(figures) < len(values):
        return [False] * len(values)
    if row.higher_is_better:
        best = [value * _SAME >= max(figures) for value in figures]
    else:
        best = [value <= _SAME * min(figures) for value in figures]
    return [False] * len(values) if all(best) else best


def _cell(value: float | None, unit: str, mark: str) -> Text:
    if value is None:
        return Text("-", style="dim")
    return Text(f"{mark}{_written(value, unit)}", style="bold green" if mark else "")


def _written(value: float, unit: str) -> str:
    if unit == "seconds":
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:#.3g} s"
    return {"count": "{:,.0f}", "share": "{:.0%}", "factor": "{:.2f}"}[unit].format(value)


def _mark(options: ConsoleOptions) -> str:
    return "* " if options.ascii_only else "✓ "


def verdict(columns: Mapping[str, Summary], judged_by: TtftQuantile) -> str:
    """Return what the figures mean, better or worse; the last column is Warmroute's."""
    part = {"ttft_p50": "Half", "ttft_p90": "90%"}[judged_by]
    *others, ours = [getattr(one, f"{judged_by}_seconds") for one in columns.values()]
    sentences = []
    if None not in (ours, *others):
        compared = [
            f"{_speed(other, ours)} with {name}" for name, other in zip(columns, others, strict=False)
        ]
        within = _written(ours, "seconds")
        sentences.append(
            f"{part} of the first tokens came within {within} with Warmroute, {' and '.join(compared)}."
        )
    shares = [f"{hit:.0%}" for one in columns.values() if (hit := one.prefix_hit_ratio) is not None]
    if len(shares) == len(columns):
        shares = [shares[-1], *shares[:-1]]
        sentences.append(
            f"{shares[0]} of the prompt tokens were in the cache of the engine that got them,"
            f" instead of {' and '.join(shares[1:])}: engines need not compute those again."
        )
    failed = sum(summary.failures for summary in columns.values())
    sentences.append(f"{failed:,} request{'s' * (failed != 1)} failed." if failed else "No request failed.")
    return " ".join(sentences)


def _speed(other: float, ours: float) -> str:
    if max(other, ours) <= _SAME * min(other, ours):
        return "as fast as"
    return f"{other / ours:.1f} times as fast as" if ours < other else f"{ours / other:.1f} times as slow as"


def busy(summaries: Mapping[str, Summary], used_ratios: list[float | None]) -> str:
    """Say that the machine was too busy for the figures to count; "" when it was not."""
    late = max((one.late_p99_seconds or 0.0 for one in summaries.values()), default=0.0)
    if late < _LATE_SECONDS:
        return ""
    used = max((ratio for ratio in used_ratios if ratio is not None), default=None)
    share = "" if used is None else f", with {used:.0%} of its CPU in use"
    return (
        f"The machine was busy{share}: requests left up to {late * 1000:.0f} ms late (p99), which the times"
        " include. Run it again when nothing else runs, or with less load: --rate 20 (with make,"
        " DEMO_ARGS='--rate 20')."
    )


def console() -> Console:
    """Standard output in the terminal's width; characters outside its encoding become question marks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False)
