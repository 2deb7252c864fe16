"""Figures of a bench, their targets, and whether the figures meet them."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Target:
    """One figure and its target. A figure that could not be measured (None) is never met."""

    name: str
    value: float | None
    bound: str
    met: bool


def at_least(name: str, value: float | None, target: float) -> Target:
    """The figure must reach `target`."""
    return Target(name, _number(value), f">= {target:g}", value is not None and value >= target)


def at_most(name: str, value: float | None, target: float) -> Target:
    """The figure must not pass `target`."""
    return Target(name, _number(value), f"<= {target:g}", value is not None and value <= target)


def exactly(name: str, value: float | None, target: float) -> Target:
    """The figure must be `target`: for counts."""
    return Target(name, _number(value), f"= {target:g}", value is not None and value == target)


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Return the quotient; None when a part is unknown or the denominator is 0."""
    if numerator is None or denominator is None or denominator == 0:
        return None
    return numerator / denominator


def exit_code(targets: Sequence[Target]) -> int:
    """Return 0 when every target is met, otherwise 1."""
    return 0 if all(entry.met for entry in targets) else 1


def lines(targets: Sequence[Target]) -> list[str]:
    """Return one readable line for each target."""
    return [
        f"{'met    ' if entry.met else 'NOT MET'}  {entry.name} {_shown(entry.value)} (wanted {entry.bound})"
        for entry in targets
    ]


def print_json(result: dict[str, Any], targets: Sequence[Target]) -> None:
    """Print the result and its targets as one JSON object on one line of standard output."""
    verdicts = [
        {"name": entry.name, "value": entry.value, "wanted": entry.bound, "met": entry.met}
        for entry in targets
    ]
    print(json.dumps({**result, "wanted": verdicts}, allow_nan=False))
    sys.stdout.flush()


def finish(result: dict[str, Any], targets: Sequence[Target], *, as_json: bool) -> int:
    """Report which targets are met, print the object with `as_json`, and return the exit status."""
    for line in lines(targets):
        progress(line)
    if as_json:
        print_json(result, targets)
    return exit_code(targets)


def progress(text: str) -> None:
    """One plain line on standard error."""
    print(text, file=sys.stderr, flush=True)


def command(main: Callable[[], int]) -> int:
    """Run a bench's main; report an expected error in one line instead of a traceback."""
    try:
        return main()
    except (WarmrouteError, OSError) as error:
        progress(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
