"""The transitions of an exchange, as the decision's table has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ext_proc.protocol.modes import TRANSITIONS, UNDECLARED, Event, Step
from tests.ext_proc.fake_envoy import MODES

PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "0024-the-exchange-returns-events.md"


def table() -> dict[str, dict[str, str]]:
    """The page's transitions: event to mode to step."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    start = next(number for number, line in enumerate(lines) if line.startswith("| event |"))
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines[start:])
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def test_every_mode_of_envoy_has_transitions() -> None:
    assert TRANSITIONS.keys() == {*MODES.values(), UNDECLARED}


@pytest.mark.parametrize("event", Event)
def test_transitions_are_those_of_the_page(event: Event) -> None:
    for column, cell in table()[event.value].items():
        names = ["UNDECLARED"] if column == "not declared" else re.split(r",\s*", column)
        for name in names:
            mode = UNDECLARED if name == "UNDECLARED" else MODES[name]
            assert TRANSITIONS[mode].get(event) is (Step(cell) if cell else None), (name, event)
