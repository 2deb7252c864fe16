"""`warmroute diagnose`: the cause and the evidence of each unhealthy pool and endpoint."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from warmroute.cli.view import client
from warmroute.cli.view.client import AdminClient, AdminError
from warmroute.cli.view.model import ENDPOINTS, STATUS, WEIGHTS, drained_until, envoys_away, kept_out
from warmroute.cli.view.wrapping import output_columns, row_with_text, wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

PATH: Final = "/api/v1/diagnosis"
_ADVICE: Final = {"not_ready": "Its probe does not pass, so it is not let in."}
"""By cause of a kept-out endpoint; the other causes are an operator's choice."""
_START_ONE: Final = "start one with what `warmroute bootstrap` prints, or see its log"
_FIGURES: Final = 4
"""The most figures shown next to a cause; `--json` has all."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.epilog = "Exit status: 0 all is healthy, 1 something is named, 2 there is no answer."
    parser.add_argument("what", nargs="?", metavar="ADDRESS_OR_POOL", help="default: everything")
    client.arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Ask once and print; return 0 when every chosen pool and endpoint is healthy, otherwise 1.

    Raises:
        AdminError: there is no answer, or no such pool or endpoint; the command ends with 2.
    """
    return asyncio.run(_diagnose(args))


async def _diagnose(args: argparse.Namespace) -> int:
    documents = await _ask(AdminClient.of(args))
    diagnosis, status = documents[PATH], documents.get(STATUS, {})
    endpoints_page = documents.get(ENDPOINTS, {}).get("endpoints", [])
    whole = with_kept_out(diagnosis, endpoints_page, drained_until(documents.get(WEIGHTS)))
    pools, endpoints = _chosen(whole, args.what)
    alone = envoys_away(status) if args.what is None else ""
    if args.json:
        shown = {"pools": pools, "endpoints": endpoints, "clients": status.get("clients")}
        print(json.dumps(shown, allow_nan=False))
    else:
        columns = output_columns()
        warning = ["", *wrapped(f"{alone}: {_START_ONE}", columns)] if alone else []
        print("\n".join([*lines(pools, endpoints, columns), *warning]))
    return 0 if not alone and all(entry["healthy"] for entry in (*pools, *endpoints)) else 1


async def _ask(client: AdminClient) -> dict[str, Any]:
    """Return the documents by path: the diagnosis, and endpoints, weights and status if served."""
    async with client:
        documents = await client.documents(PATH, (ENDPOINTS, WEIGHTS, STATUS))
    diagnosis = documents[PATH]
    if not isinstance(diagnosis, dict) or not {"observed", "pools", "endpoints"} <= diagnosis.keys():
        raise AdminError(f"{client.url}{PATH} answers with something else: is this Warmroute?")
    if not diagnosis["observed"]:
        raise AdminError(f"{client.url} has not observed anything yet")
    return documents


def with_kept_out(
    diagnosis: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], until: Mapping[str, str]
) -> dict[str, Any]:
    """Add the endpoints that get no new requests, or that serve only because their pool has no other.

    `until` has the ends of drains by address.
    """
    endpoints = {entry["address"]: entry for entry in diagnosis["endpoints"]}
    pools = {
        entry["pool"]: {**entry, "endpoints": dict(entry.get("endpoints") or {})}
        for entry in diagnosis["pools"]
    }
    for entry in entries:
        observed, out = endpoints.get(entry["address"]), kept_out(entry, until)
        if out is None or (observed is not None and observed["cause"] == "down"):
            continue
        cause, why = out
        endpoints[entry["address"]] = {
            "pool": entry["pool"],
            "address": entry["address"],
            "cause": cause,
            "healthy": cause not in _ADVICE,
            "why": why,
            "evidence": {} if observed is None else observed["evidence"],
            "estimates": [] if observed is None else observed["estimates"],
            "advice": _ADVICE.get(cause, "Nothing to mend."),
            "missing": [],
        }
        if entry["pool"] in pools:
            counts = pools[entry["pool"]]["endpoints"]
            counts[cause] = counts.get(cause, 0) + 1
            if observed is not None:
                counts[observed["cause"]] -= 1
    return {**diagnosis, "pools": list(pools.values()), "endpoints": list(endpoints.values())}


def _chosen(
    diagnosis: Mapping[str, Any], what: str | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the chosen pools and endpoints: all, a pool with its endpoints, or one endpoint."""
    pools, endpoints = list(diagnosis["pools"]), list(diagnosis["endpoints"])
    if what is None:
        return pools, endpoints
    pools = [entry for entry in pools if entry["pool"] == what]
    endpoints = [entry for entry in endpoints if what in (entry["pool"], entry["address"])]
    if not pools and not endpoints:
        raise AdminError(f"no pool or endpoint is called {what}")
    return pools, endpoints


def lines(
    pools: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]], columns: int | None = None
) -> list[str]:
    """Return the table and an advice for each cause that is not healthy, no line wider than `columns`."""
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
    table = [
        line
        for where, cause, why in rows
        for line in row_with_text(f"{where:{widths[0]}}  {cause:{widths[1]}}  ", why, columns)
    ]
    findings = [entry for entry in (*endpoints, *pools) if not entry["healthy"]]
    advice = dict.fromkeys(f"{entry['cause']}: {entry['advice']}" for entry in findings)
    return [*table, *([""] if advice else []), *(part for line in advice for part in wrapped(line, columns))]


def _pool_evidence(entry: Mapping[str, Any]) -> str:
    """Return the number of endpoints by cause, then the pool's own figures."""
    counts = entry.get("endpoints") or {}
    most = sorted(counts.items(), key=lambda item: -item[1])
    causes = ", ".join(f"{count} {cause}" for cause, count in most if count)
    return "; ".join(part for part in (causes, _evidence(entry)) if part)


def _evidence(entry: Mapping[str, Any]) -> str:
    """Return the entry's reason, otherwise the missing signals, or the first figures."""
    if "why" in entry:
        return str(entry["why"])
    if entry["cause"] == "unknown":
        return f"not known: {', '.join(entry['missing'])}"
    estimates = entry.get("estimates", ())
    figures = list(entry["evidence"].items())[:_FIGURES]
    return ", ".join(f"{name}{' ~' if name in estimates else ' '}{value:.4g}" for name, value in figures)
