"""`warmroute weight`: give an endpoint a share of all traffic by hand, for a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import overriding
from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    overriding.arguments(parser)
    parser.add_argument(
        "weight",
        nargs="?",
        type=int,
        metavar="N",
        help="1 to 10000; beside it, computed weights average 1000",
    )
    parser.add_argument("--for", dest="seconds", type=overriding.duration, metavar="TIME", help="such as 10m")
    parser.add_argument("--clear", action="store_true", help="let the weight be computed again")


def run(args: argparse.Namespace) -> int:
    """Set or clear it, and say what the weight is now.

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
    if args.weight < 1:
        raise WarmrouteError(f"N {args.weight}; allowed: 1 to 10000; warmroute drain stops all traffic")
    answer = overriding.override(args, args.weight, args.seconds)
    until = answer.get("weights", {}).get(args.endpoint, {}).get("overridden_until")
    print(f"{overriding.now_of(answer, args.endpoint)}, until {until}{overriding.kept(answer)}")
    return 0
