"""`warmroute diagnose`: what is the matter with each pool and endpoint, with its evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli.view.client import DEFAULT_ADMIN, AdminClient, AdminError, read_token
from cli.view.tls import tls_arguments, tls_of
from fleet.serving import run as run_loop

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

PATH: Final = "/api/v1/diagnosis"
_FIGURES: Final = 4
"""Shown beside a cause; `--json` has all."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.epilog = "Exit status: 0 all is healthy, 1 something is named, 2 there is no answer."
    parser.add_argument("what", nargs="?", metavar="ADDRESS_OR_POOL", help="default: everything")
    parser.add_argument("--admin", default=DEFAULT_ADMIN, metavar="URL", help="default: %(default)s")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="holds the admin server's token")
    tls_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Ask once and print; returns 0 when all that was asked for is healthy, else 1.

    Raises:
        AdminError: there is no answer, or nothing of what was asked for; the command ends with 2.
    """
    return run_loop(_diagnose(args))


async def _diagnose(args: argparse.Namespace) -> int:
    told = await _ask(AdminClient(args.admin, read_token(args.token_file), tls_of(args)))
    pools, endpoints = _chosen(told, args.what)
    if args.json:
        print(json.dumps({"pools": pools, "endpoints": endpoints}, allow_nan=False))
    else:
        print("\n".join(lines(pools, endpoints)))
    return 0 if all(entry["healthy"] for entry in (*pools, *endpoints)) else 1


async def _ask(client: AdminClient) -> dict[str, Any]:
    async with client:
        told = await client.get(PATH)
    if not isinstance(told, dict) or not {"observed", "pools", "endpoints"} <= told.keys():
        raise AdminError(f"{client.url}{PATH} answers with something else: is this Warmroute?")
    if not told["observed"]:
        raise AdminError(f"{client.url} has not observed anything yet")
    return told


def _chosen(told: Mapping[str, Any], what: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the pools and endpoints asked for: all, a pool with its endpoints, or one endpoint."""
    pools, endpoints = list(told["pools"]), list(told["endpoints"])
    if what is None:
        return pools, endpoints
    pools = [entry for entry in pools if entry["pool"] == what]
    endpoints = [entry for entry in endpoints if what in (entry["pool"], entry["address"])]
    if not pools and not endpoints:
        raise AdminError(f"no pool or endpoint is called {what}")
    return pools, endpoints


def lines(pools: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table, then an advice for each cause that is not healthy."""
    rows = [("pool / endpoint", "cause", "evidence")]
    names = [entry["pool"] for entry in pools] or sorted({entry["pool"] for entry in endpoints})
    for name in names:
        rows += [
            (f"{name} (pool)", entry["cause"], _pool_evidence(entry))
            for entry in pools
            if entry["pool"] == name
        ]
        rows += [
            (f"  {entry['address']}", entry["cause"], _evidence(entry))
            for entry in endpoints
            if entry["pool"] == name
        ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    table = [f"{where:{widths[0]}}  {cause:{widths[1]}}  {why}".rstrip() for where, cause, why in rows]
    named = [entry for entry in (*endpoints, *pools) if not entry["healthy"]]
    advice = dict.fromkeys(f"{entry['cause']}: {entry['advice']}" for entry in named)
    return [*table, *(("", *advice) if advice else ())]


def _pool_evidence(entry: Mapping[str, Any]) -> str:
    """Say how many endpoints have which cause before the pool's own figures."""
    counts = entry.get("endpoints") or {}
    told = ", ".join(f"{count} {cause}" for cause, count in sorted(counts.items(), key=lambda item: -item[1]))
    return "; ".join(part for part in (told, _evidence(entry)) if part)


def _evidence(entry: Mapping[str, Any]) -> str:
    if entry["cause"] == "unknown":
        return f"not known: {', '.join(entry['missing'])}"
    estimates = entry.get("estimates", ())
    shown = list(entry["evidence"].items())[:_FIGURES]
    return ", ".join(f"{name}{' ~' if name in estimates else ' '}{value:.4g}" for name, value in shown)
