"""`warmroute weight`: set an endpoint's weight by hand, for a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fleet.errors import WarmrouteError
from warmroute.cli import overriding

if TYPE_CHECKING:
    import argparse

_MOST: Final = 10_000
_WHOLE: Final = re.compile(r"[0-9]{1,9}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    overriding.arguments(
        parser,
        time_help=f"how long it holds, required with N: such as 10m, at most {overriding.LONGEST}",
        clear_help="let the weight be computed again",
    )
    parser.add_argument(
        "weight",
        nargs="?",
        metavar="N",
        help="a whole number from 1 to 10000; computed weights average 1000",
    )


def run(args: argparse.Namespace) -> int:
    """Set or clear the weight, and print the current one.

    Raises:
        WarmrouteError: the arguments do not go together, or the server refuses.
    """
    if args.clear:
        if args.weight is not None or args.seconds is not None:
            raise WarmrouteError("--clear goes without N and --for")
        answer = overriding.override(args, None, None)
        print(f"{overriding.now_of(answer, args.endpoint)}, which is computed again")
        return 0
    if args.weight is None or args.seconds is None:
        raise WarmrouteError("name a weight and how long it holds, such as 100 --for 10m, or --clear")
    weight = int(args.weight) if _WHOLE.fullmatch(args.weight) else 0
    if not 1 <= weight <= _MOST:
        drain = "warmroute drain sends it nothing new, --clear lets its weight be computed again"
        raise WarmrouteError(f"N {args.weight!r}; allowed: a whole number from 1 to {_MOST}; {drain}")
    answer = overriding.override(args, weight, args.seconds)
    until = answer.get("weights", {}).get(args.endpoint, {}).get("overridden_until")
    print(f"{overriding.now_of(answer, args.endpoint)}, until {until}{overriding.restart_note(answer)}")
    return 0
