"""`warmroute explain`: why an endpoint has its weight, or why a request went where it went."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fleet.service.serving import run as run_loop
from warmroute.cli.view.client import (
    DEFAULT_ADMIN,
    DEFAULT_EXT_PROC_ADMIN,
    AdminClient,
    read_token,
)
from warmroute.cli.view.errors import AdminError, NotThereError
from warmroute.cli.view.explanation import endpoint_details, explained
from warmroute.cli.view.model import ENDPOINTS, WEIGHTS
from warmroute.cli.view.tls import AdminTls, tls_arguments, tls_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

DECISIONS: Final = "/api/v1/decisions"
_ENDPOINT: Final = re.compile(r".+:\d{1,5}")
_UNKNOWN_STATUS: Final = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "what",
        metavar="ENDPOINT|REQUEST-ID",
        help="host:port; or a request's x-request-id, or the id in its answer",
    )
    parser.add_argument("--admin", default=DEFAULT_ADMIN, metavar="URL", help="default: %(default)s")
    parser.add_argument(
        "--ext-proc-admin",
        action="append",
        metavar="URL",
        help="of a worker, which knows of picks; may be repeated"
        f" (default: {DEFAULT_EXT_PROC_ADMIN}, by http or https as --admin)",
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="holds the admin servers' token")
    tls_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the servers' answers, by their URLs")


def run(args: argparse.Namespace) -> int:
    """Print the answers; return 1 when no server knows the name, 2 when none answers.

    Raises:
        AdminError: no server answers.
    """
    query, token, tls = query_of(args.what), read_token(args.token_file), tls_of(args)
    documents, troubles = ask_all((args.admin, *(args.ext_proc_admin or ())), query, token, tls)
    if args.ext_proc_admin is None and not any("picks" in document for document in documents.values()):
        # With `serve` one server knows of picks too, and no other listens.
        scheme, separator, _ = args.admin.rpartition("://")
        more, other_troubles = ask_all((f"{scheme}{separator}{DEFAULT_EXT_PROC_ADMIN}",), query, token, tls)
        documents, troubles = {**documents, **more}, troubles + other_troubles
    if not documents:
        raise AdminError("; ".join(troubles))
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = {url: explained(document, columns) for url, document in documents.items()}
    answers = {url: documents[url] for url, of_it in lines.items() if of_it}
    if args.json:
        print(json.dumps(answers, allow_nan=False))
    elif answers:
        print("\n\n".join("\n".join(lines[url]) for url in answers))
    for trouble in troubles:
        print(f"warmroute explain: {trouble}", file=sys.stderr)
    if answers:
        if troubles and not any("picks" in document for document in documents.values()):
            step = "name ext_proc's admin server by --ext-proc-admin"
            print(f"warmroute explain: no picks are shown: {step}", file=sys.stderr)
        return 0
    print(f"warmroute explain: nothing is known about {args.what}{_hint(args.what)}", file=sys.stderr)
    return _UNKNOWN_STATUS


def query_of(what: str) -> dict[str, str]:
    """Tell an endpoint's address from a request's id."""
    return {"endpoint": what} if _ENDPOINT.fullmatch(what) else {"request": what}


def ask_all(
    urls: Sequence[str], query: dict[str, str], token: str, tls: AdminTls | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Query every server; return each answer by URL and the reasons of missing ones."""
    documents: dict[str, Any] = {}
    troubles: list[str] = []

    async def ask() -> int:
        clients = (AdminClient(url, token, tls) for url in urls)
        for client in {client.url: client for client in clients}.values():
            async with client:
                try:
                    documents[client.url] = await _ask(client, query)
                except NotThereError:
                    documents[client.url] = {}
                except AdminError as error:
                    troubles.append(str(error))
        return 0

    run_loop(ask())
    return documents, troubles


async def _ask(client: AdminClient, query: dict[str, str]) -> dict[str, Any]:
    """Return the decisions; for an endpoint also its details and its pool's."""
    decisions: dict[str, Any] = await client.get(DECISIONS, query)
    if (address := query.get("endpoint")) is None or "verdict" not in decisions:
        return decisions
    try:
        documents = await client.documents(ENDPOINTS, (WEIGHTS,))
    except NotThereError:
        return decisions
    return {**decisions, **endpoint_details(address, documents)}


def _hint(what: str) -> str:
    if _ENDPOINT.fullmatch(what):
        return ": no pool has such an endpoint, and no pick has named it lately"
    return (
        ": only the newest picks of each ext_proc worker are remembered, and requests that ext_proc does not"
        " see (large or chunked bodies, GET) have none"
    )
