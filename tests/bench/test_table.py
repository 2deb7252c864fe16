"""The demo's table must show what is known, mark what is best, and say what it means."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from warmroute.demo.scenario import scenario
from warmroute.demo.stats import Moment, Summary
from warmroute.demo.table import busy, comparison, running, verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

CHOSEN = scenario("simulator", seconds=12, engines=4, seed=1, rate=None)
ROBIN = Summary(326, 0, 0.067, 0.303, 0.685, 3.28, 0.117, 1.14, 0.002)
LEAST = Summary(326, 2, 0.082, 0.350, 0.737, 3.49, 0.094, 1.21, 0.003)
OURS = Summary(326, 0, 0.064, 0.164, 0.535, 2.44, 0.284, 1.14, 0.002)
COLUMNS = {"round robin": ROBIN, "least request": LEAST, "Warmroute": OURS}


def screen(columns: int, encoding: str = "utf-8") -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    return Console(file=file, width=columns)


def drawn(shape: RenderableType, console: Console) -> str:
    console.print(shape)
    assert isinstance(console.file, io.TextIOWrapper)
    buffer = console.file.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(console.file.encoding)


def lines_of(text: str) -> dict[str, str]:
    """By the name that begins a line in the frame."""
    return {re.split(" {2,}| *[|│]", line.strip("|│ "))[0]: line for line in text.splitlines()}


@pytest.mark.parametrize("columns", [40, 71, 72, 80, 99, 100, 140, 200])
def test_frames_are_whole_and_equally_wide(columns: int) -> None:
    console = screen(columns)
    moment = Moment("least request", 0.5, "12.0 of 12 s, 1,226 sent, 120 in flight", None)
    slow = {name: replace(one, ttft_p99_seconds=51.234, failures=300) for name, one in COLUMNS.items()}
    drawn(running(CHOSEN, slow, moment, console.options), console)
    text = drawn(comparison(CHOSEN, slow, verdict(slow, "ttft_p90"), console.options), console)
    assert "…" not in text
    assert {len(line) for line in text.splitlines()} == {min(columns, 100)}
    assert text.count("51.2 s") == 6, "each figure is on one line"


def test_a_moment_shows_figures_so_far_and_dashes() -> None:
    console = screen(80)
    moment = Moment("least request", 0.5, "6.0 of 12 s, 163 sent, 9 in flight", LEAST)
    columns = {"round robin": ROBIN, "least request": LEAST, "Warmroute": None}
    text = drawn(running(CHOSEN, columns, moment, console.options), console)
    assert "least request: 6.0 of 12 s, 163 sent, 9 in flight" in text
    assert lines_of(text)["Failures"].split()[1:-1] == ["Failures", "0", "2", "-"]
    assert "✓" not in text, "nothing is the best before all have run"
    assert "83% of round robin's knee" in text


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", "✓"), ("ascii", "*")])
def test_the_best_of_each_row_is_marked(encoding: str, mark: str) -> None:
    console = screen(80, encoding)
    text = drawn(comparison(CHOSEN, COLUMNS, "", console.options), console)
    lines = lines_of(text)
    for name, marked in (
        ("Time to first token, p50", [f"{mark} 67 ms", f"{mark} 64 ms"]),
        ("Time to first token, p90", [f"{mark} 164 ms"]),
        ("Whole answer, p99", [f"{mark} 2.44 s"]),
        ("Prompt tokens from the cache", [f"{mark} 28%"]),
        ("Failures", [f"{mark} 0"] * 2),
    ):
        assert lines[name].count(mark) == len(marked), lines[name]
        assert all(part in lines[name] for part in marked), lines[name]
    even = {name: replace(one, failures=0) for name, one in COLUMNS.items()}
    again = screen(80)
    assert "✓" not in lines_of(drawn(comparison(CHOSEN, even, "", again.options), again))["Failures"]


def test_the_verdict_names_gains_and_losses() -> None:
    assert verdict(COLUMNS, "ttft_p90") == (
        "90% of the first tokens came within 164 ms with Warmroute, 1.8 times as fast as with round robin"
        " and 2.1 times as fast as with least request. 28% of the prompt tokens were in the cache of the"
        " engine that got them, instead of 12% and 9%: engines need not compute those again."
        " 2 requests failed."
    )
    worse = verdict({**COLUMNS, "Warmroute": replace(OURS, ttft_p90_seconds=0.34)}, "ttft_p90")
    assert "1.1 times as slow as with round robin and as fast as with least request" in worse
    nothing = Summary(3, 3, None, None, None, None, None, None, None)
    assert verdict({"round robin": nothing, "Warmroute": nothing}, "ttft_p50") == "6 requests failed."


def test_a_busy_machine_is_named_as_the_cause() -> None:
    assert busy(COLUMNS, [0.9, 0.9, 0.9]) == ""
    late = {**COLUMNS, "Warmroute": replace(OURS, late_p99_seconds=0.26)}
    assert "with 97% of its CPU in use: requests left up to 260 ms late" in busy(late, [0.9, None, 0.97])
    assert busy(late, [None]).startswith("The machine was busy: requests left")
