"""`warmroute explain`: why an endpoint has its weight, or why a request went where it went."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from warmroute.cli.view import client
from warmroute.cli.view.client import AdminClient, AdminError, NotThereError
from warmroute.cli.view.explanation import endpoint_details, explained
from warmroute.cli.view.model import ENDPOINTS, WEIGHTS
from warmroute.cli.view.wrapping import output_columns

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

DEFAULT_EXT_PROC_ADMIN: Final = "127.0.0.1:19001"
DECISIONS: Final = "/api/v1/decisions"
_ENDPOINT: Final = re.compile(r"(.+:\d{1,5})(?:#\d+)?")
_UNKNOWN_STATUS: Final = 1
_MOST_NAMED: Final = 3
"""Endpoints of a pool."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "what",
        metavar="ENDPOINT|REQUEST-ID",
        help="host:port; or a request's x-request-id, or the id in its answer",
    )
    client.arguments(parser)
    parser.add_argument(
        "--ext-proc-admin",
        action="append",
        metavar="URL",
        help="of an ext_proc worker, which has the picks; may be repeated"
        f" (default: {DEFAULT_EXT_PROC_ADMIN}, by http or https as --admin)",
    )
    parser.add_argument("--json", action="store_true", help="print the servers' answers, by their URLs")


def run(args: argparse.Namespace) -> int:
    """Print the answers; return 1 when no server knows the name, 2 when none answers.

    Raises:
        AdminError: no server answers.
    """
    query, urls = query_of(args.what), (args.admin, *(args.ext_proc_admin or ()))
    documents, failures = asyncio.run(ask_all((AdminClient.of(args, url) for url in urls), query))
    if args.ext_proc_admin is None and not any("picks" in document for document in documents.values()):
        # With `serve` one server has the picks too, and no other listens.
        scheme, separator, _ = args.admin.rpartition("://")
        of_picks = AdminClient.of(args, f"{scheme}{separator}{DEFAULT_EXT_PROC_ADMIN}")
        more, other_failures = asyncio.run(ask_all((of_picks,), query))
        documents, failures = {**documents, **more}, failures + other_failures
    if not documents:
        raise AdminError("\n".join(failures))
    lines = {url: explained(document, output_columns()) for url, document in documents.items()}
    answers = {url: documents[url] for url, of_it in lines.items() if of_it}
    if args.json:
        print(json.dumps(answers, allow_nan=False))
    elif answers:
        print("\n\n".join("\n".join(lines[url]) for url in answers))
    for failure in failures:
        print(f"warmroute explain: {failure}", file=sys.stderr)
    if answers:
        if failures and not any("picks" in document for document in documents.values()):
            step = "name ext_proc's admin server by --ext-proc-admin"
            print(f"warmroute explain: no picks are shown: {step}", file=sys.stderr)
        return 0
    hint = _hint(args.what, asyncio.run(_endpoints_of(args.what, AdminClient.of(args))))
    print(f"warmroute explain: nothing is known about {args.what}{hint}", file=sys.stderr)
    return _UNKNOWN_STATUS


def query_of(what: str) -> dict[str, str]:
    """Tell an endpoint's address, with or without a rank, from a request's id."""
    endpoint = _ENDPOINT.fullmatch(what)
    return {"request": what} if endpoint is None else {"endpoint": endpoint[1]}


async def ask_all(clients: Iterable[AdminClient], query: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Query every server once; return each answer by URL and the reasons of missing ones."""
    documents: dict[str, Any] = {}
    failures: list[str] = []
    for admin in {admin.url: admin for admin in clients}.values():
        async with admin:
            try:
                documents[admin.url] = await _ask(admin, query)
            except AdminError as error:
                failures.append(str(error))
    return documents, failures


async def _ask(admin: AdminClient, query: dict[str, str]) -> dict[str, Any]:
    """Return the decisions; for an endpoint also its details and its pool's."""
    decisions: dict[str, Any] = await admin.get(DECISIONS, query)
    if (address := query.get("endpoint")) is None or "verdict" not in decisions:
        return decisions
    try:
        documents = await admin.documents(ENDPOINTS, (WEIGHTS,))
    except NotThereError:
        return decisions
    return {**decisions, **endpoint_details(address, documents)}


async def _endpoints_of(pool: str, admin: AdminClient) -> list[str]:
    """Return the addresses of a pool's endpoints; none if there is no such pool, or no answer."""
    async with admin:
        try:
            document = await admin.get(ENDPOINTS)
        except AdminError:
            return []  # Its reason is among the failures already.
    return [entry["address"] for entry in document["endpoints"] if entry.get("pool") == pool]


def _hint(what: str, of_pool: Sequence[str]) -> str:
    if of_pool:
        more = ", ..." if len(of_pool) > _MOST_NAMED else ""
        addresses = ", ".join(of_pool[:_MOST_NAMED])
        return (
            f": it is a pool; name one of its endpoints ({addresses}{more}),"
            f" or ask `warmroute diagnose {what}`"
        )
    if _ENDPOINT.fullmatch(what):
        return ": no pool has such an endpoint, and no pick has named it lately"
    return (
        ": only the newest picks of each ext_proc worker are remembered, and requests that ext_proc does not"
        " see have none (closed paths, and an x-warmroute-reason of content_type, method or upgrade)"
    )
