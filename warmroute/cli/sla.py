"""`warmroute sla`: Envoy's numbers derived from SLAs and health checks, each with its reason."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleet.errors import SettingsError
from fleet.settings import load_settings
from fleet.sla_numbers import numbers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from fleet.sla_numbers import Number

_WIDTH: Final = 118
_MOST_VALUE: Final = 28
_LEAST_REASON: Final = 40
_NOTHING: Final = "neither an sla nor a health_check: Envoy's configuration does not change"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.epilog = (
        "Exit status: 0 printed, 2 the settings cannot be used: an SLA that cannot be kept says why."
    )
    parser.add_argument("settings", type=Path, help="the settings file, warmroute.yaml")
    parser.add_argument("--pool", metavar="NAME", help="only this pool")
    parser.add_argument("--json", action="store_true", help="print one JSON object, by pool")


def run(args: argparse.Namespace) -> int:
    """Print the derivation.

    Raises:
        SettingsError: the file cannot be used, or has no such pool.
    """
    settings = load_settings(args.settings)
    pools = [pool for pool in settings.pools if args.pool in (None, pool.name)]
    if not pools:
        allowed = ", ".join(pool.name for pool in settings.pools)
        raise SettingsError([f"{args.settings}: no pool is called {args.pool!r}; allowed: {allowed}"])
    by_pool = {pool.name: numbers(pool, settings) for pool in pools}
    if args.json:
        print(
            json.dumps({name: [number._asdict() for number in derived] for name, derived in by_pool.items()})
        )
    else:
        print("\n".join(lines(by_pool)))
    return 0


def lines(by_pool: Mapping[str, Sequence[Number]]) -> Iterator[str]:
    """Return a table for each pool; reasons are wrapped, not cut."""
    for name, derived in by_pool.items():
        yield f"{name}:" if derived else f"{name}: {_NOTHING}"
        if not derived:
            continue
        names = max(len(number.name) for number in derived)
        values = min(max(len(number.value) for number in derived), _MOST_VALUE)
        reason = max(_LEAST_REASON, _WIDTH - names - values - 6)
        for number in derived:
            value = textwrap.wrap(re.sub(r",(?=\S)", ", ", number.value), values) or [""]
            why = textwrap.wrap(number.why, reason) or [""]
            for i in range(max(len(value), len(why))):
                first = number.name if i == 0 else ""
                second, third = (column[i] if i < len(column) else "" for column in (value, why))
                yield f"  {first:{names}}  {second:{values}}  {third}".rstrip()
