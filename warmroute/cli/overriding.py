"""What `warmroute weight` and `warmroute drain` have in common: an override of a weight, for a time."""

from __future__ import annotations

import argparse
import asyncio
import re
from typing import Any, Final

from warmroute.cli.view import client

UPDATE_WEIGHTS: Final = "/api/v1/update_weights"
LONGEST: Final = "24h"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_NEGATIVE: Final = re.compile(r"-\d")


def arguments(parser: argparse.ArgumentParser, *, time_help: str, clear_help: str) -> None:
    """Declare the endpoint, the time, the end, and the admin server."""
    # Otherwise `-5m` is taken for an option, and the error names only the missing value.
    parser._negative_number_matcher = _NEGATIVE
    parser.add_argument("endpoint", metavar="ENDPOINT", help="host:port, as `warmroute top` shows it")
    parser.add_argument("--for", dest="seconds", type=duration, metavar="TIME", help=time_help)
    parser.add_argument("--clear", action="store_true", help=clear_help)
    client.arguments(parser)


def duration(text: str) -> float:
    """Read seconds: `90s`, `10m`, `1.5h`, `1d`; above 0 and at most a day."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0.0 < seconds <= _SECONDS["d"]:
        allowed = f"a number with s, m, h or d, such as 10m, above 0 and at most {LONGEST}"
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: {allowed}")
    return seconds


def override(args: argparse.Namespace, weight: int | None, seconds: float | None) -> dict[str, Any]:
    """Set a weight, drain (0) or clear (None); return all weights as the server then reports them.

    Raises:
        AdminError: the server refuses or does not answer.
    """
    body: dict[str, Any] = {"weights": {args.endpoint: weight}}
    if seconds is not None:
        body["expires_seconds"] = seconds

    async def post() -> Any:
        async with client.AdminClient.of(args) as admin:
            return await admin.post(UPDATE_WEIGHTS, body)

    answer: dict[str, Any] = asyncio.run(post())
    return answer


def restart_note(answer: dict[str, Any]) -> str:
    """Say whether a restart ends it."""
    return (
        "" if answer.get("kept_over_restart") else ", or until xds_server restarts: it has no xds.state_path"
    )


def now_of(answer: dict[str, Any], endpoint: str) -> str:
    """Print an endpoint's current weight."""
    entry = answer.get("weights", {}).get(endpoint)
    if entry is None or entry.get("weight") is None:
        return f"{endpoint} has no weight yet"
    share = entry.get("share")
    part = "" if share is None else f", {share:.1%} of pool {entry.get('pool')}"
    return f"{endpoint} has weight {entry['weight']:,}{part}"
