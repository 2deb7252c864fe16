"""`warmroute drain`: send an endpoint no new requests for a time; running ones continue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from fleet.errors import WarmrouteError
from warmroute.cli import overriding

if TYPE_CHECKING:
    import argparse

_NOT_IN_FORCE: Final = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    overriding.arguments(
        parser,
        time_help=f"such as 10m (default: {overriding.LONGEST}, the most)",
        clear_help="let it have requests again",
    )


def run(args: argparse.Namespace) -> int:
    """Drain it or end that; 1 when the drain is not in force.

    Raises:
        WarmrouteError: the arguments do not go together, or the server refuses.
    """
    if args.clear:
        if args.seconds is not None:
            raise WarmrouteError("--clear goes without --for")
        answer = overriding.override(args, None, None)
        print(f"{overriding.now_of(answer, args.endpoint)}, and gets requests again")
        return 0
    answer = overriding.override(args, 0, args.seconds or overriding.duration(overriding.LONGEST))
    entry = next((entry for entry in answer["drained"] if entry["endpoint"] == args.endpoint), None)
    if entry is not None and entry["in_force"]:
        print(f"{args.endpoint} gets no new requests, {_until(entry, answer)}; running ones continue")
        return 0
    print(f"warmroute drain: {_why_not(args.endpoint, entry, answer)}", file=sys.stderr)
    return _NOT_IN_FORCE


def _why_not(endpoint: str, entry: dict[str, Any] | None, answer: dict[str, Any]) -> str:
    """Explain why a drain is not in force, and the consequence."""
    if entry is None:
        return f"{endpoint} gets requests again: its time was over at once; take a longer --for"
    if entry["in_force"] is None:
        until = _until(entry, answer)
        return f"no endpoint has the address {endpoint} now; it is drained if it comes back, {until}"
    return (
        f"{endpoint} still gets requests: its pool has no other endpoint that serves; it is drained as soon"
        f" as another one does, {_until(entry, answer)}"
    )


def _until(entry: dict[str, Any], answer: dict[str, Any]) -> str:
    return f"until {entry['until']}{overriding.restart_note(answer)}"
