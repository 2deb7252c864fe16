"""`warmroute drain`: send an endpoint no new requests, for a time; what it has begun goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from cli import overriding
from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    import argparse

_A_DAY: Final = "24h"
_NOT_IN_FORCE: Final = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    overriding.arguments(parser)
    parser.add_argument(
        "--for",
        dest="seconds",
        type=overriding.duration,
        metavar="TIME",
        help=f"such as 10m (default: {_A_DAY}, the most)",
    )
    parser.add_argument("--clear", action="store_true", help="let it have requests again")


def run(args: argparse.Namespace) -> int:
    """Drain it or end that; 1 when it is drained but nobody else of its pool is left.

    Raises:
        WarmrouteError: the arguments do not go together, or the server refuses.
    """
    if args.clear:
        if args.seconds is not None:
            raise WarmrouteError("--clear goes without --for")
        told = overriding.override(args, None, None)
        print(f"{overriding.now_of(told, args.endpoint)}, and gets requests again")
        return 0
    told = overriding.override(args, 0, args.seconds or overriding.duration(_A_DAY))
    entry = next(entry for entry in told["drained"] if entry["endpoint"] == args.endpoint)
    until = f"until {entry['until']}{overriding.kept(told)}"
    if not entry["in_force"]:
        print(
            f"warmroute drain: {args.endpoint} still gets requests: nobody else of its pool is left;"
            f" it is drained as soon as somebody is, {until}",
            file=sys.stderr,
        )
        return _NOT_IN_FORCE
    print(f"{args.endpoint} gets no new requests, {until}; what it has begun goes on")
    return 0
