"""What a bench wanted, what it measured, and whether that is met."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fleet.errors import WarmrouteError
from warmroute.demo.envoy import EnvoyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Wanted:
    """One figure and its target. A figure that could not be measured (None) is never met."""

    name: str
    value: float | None
    wanted: str
    met: bool


def at_least(name: str, value: float | None, target: float) -> Wanted:
    """The figure must reach `target`."""
    return Wanted(name, _number(value), f">= {target:g}", value is not None and value >= target)


def at_most(name: str, value: float | None, target: float) -> Wanted:
    """The figure must not pass `target`."""
    return Wanted(name, _number(value), f"<= {target:g}", value is not None and value <= target)


def exactly(name: str, value: float | None, target: float) -> Wanted:
    """The figure must be `target`: for counts."""
    return Wanted(name, _number(value), f"= {target:g}", value is not None and value == target)


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Return the quotient; None when a part is unknown or nothing can be divided by."""
    if numerator is None or denominator is None or denominator == 0:
        return None
    return numerator / denominator


def exit_code(wanted: Sequence[Wanted]) -> int:
    """0 when all is met, else 1."""
    return 0 if all(entry.met for entry in wanted) else 1


def lines(wanted: Sequence[Wanted]) -> list[str]:
    """One line for people each."""
    return [
        f"{'met    ' if entry.met else 'NOT MET'}  {entry.name} {_shown(entry.value)} (wanted {entry.wanted})"
        for entry in wanted
    ]


def print_json(result: dict[str, Any], wanted: Sequence[Wanted]) -> None:
    """Print the result and its targets as one JSON object on one line of standard output."""
    print(json.dumps({**result, "wanted": [asdict(entry) for entry in wanted]}, allow_nan=False))
    sys.stdout.flush()


def finish(result: dict[str, Any], wanted: Sequence[Wanted], *, as_json: bool) -> int:
    """Tell which targets are met, print the object if asked for, and return the exit status."""
    for line in lines(wanted):
        progress(line)
    if as_json:
        print_json(result, wanted)
    return exit_code(wanted)


def progress(text: str) -> None:
    """One plain line on standard error."""
    print(text, file=sys.stderr, flush=True)


def command(main: Callable[[], int]) -> int:
    """Run a bench's main; what stopped it is told in a line, not in a traceback."""
    try:
        return main()
    except (WarmrouteError, EnvoyError, OSError) as error:
        progress(str(error))
        return 2
    except KeyboardInterrupt:
        return 130


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
