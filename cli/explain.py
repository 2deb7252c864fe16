"""`warmroute explain`: why an endpoint has its weight, or why a request went where it went."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli.view.client import (
    DEFAULT_ADMIN,
    DEFAULT_EXT_PROC_ADMIN,
    AdminClient,
    AdminError,
    NotThereError,
    read_token,
)
from cli.view.explanation import explained
from cli.view.tls import AdminTls, tls_arguments, tls_of
from fleet.serving import run as run_loop

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

DECISIONS: Final = "/api/v1/decisions"
_ENDPOINT: Final = re.compile(r".+:\d{1,5}")
_UNKNOWN_STATUS: Final = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("what", metavar="ENDPOINT|REQUEST-ID", help="host:port, or a request's x-request-id")
    parser.add_argument("--admin", default=DEFAULT_ADMIN, metavar="URL", help="default: %(default)s")
    parser.add_argument(
        "--ext-proc-admin",
        action="append",
        metavar="URL",
        help=f"of a worker, which knows of picks; may be repeated (default: {DEFAULT_EXT_PROC_ADMIN})",
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="holds the admin servers' token")
    tls_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print what the servers tell, by their URLs")


def run(args: argparse.Namespace) -> int:
    """Print it; 1 when the servers know nothing about it, 2 when none answers.

    Raises:
        AdminError: no server answers.
    """
    urls = (args.admin, *(args.ext_proc_admin or [DEFAULT_EXT_PROC_ADMIN]))
    told, troubles = ask_all(urls, query_of(args.what), read_token(args.token_file), tls_of(args))
    if not told:
        raise AdminError("; ".join(troubles))
    known = {url: document for url, document in told.items() if explained(document)}
    if args.json:
        print(json.dumps(known, allow_nan=False))
    else:
        print(
            "\n\n".join("\n".join(explained(document)) for document in known.values()),
            end="\n" if known else "",
        )
    if known:
        return 0
    for trouble in troubles:
        print(f"warmroute explain: {trouble}", file=sys.stderr)
    print(f"warmroute explain: nothing is known about {args.what}{_hint(args.what)}", file=sys.stderr)
    return _UNKNOWN_STATUS


def query_of(what: str) -> dict[str, str]:
    """Tell an endpoint's address from a request's id."""
    return {"endpoint": what} if _ENDPOINT.fullmatch(what) else {"request": what}


def ask_all(
    urls: Sequence[str], query: dict[str, str], token: str, tls: AdminTls | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Ask every server; return what each tells and why others tell nothing."""
    told: dict[str, Any] = {}
    troubles: list[str] = []

    async def ask() -> int:
        clients = (AdminClient(url, token, tls) for url in urls)
        for client in {client.url: client for client in clients}.values():
            async with client:
                try:
                    told[client.url] = await client.get(DECISIONS, query)
                except NotThereError:
                    told[client.url] = {}
                except AdminError as error:
                    troubles.append(str(error))
        return 0

    run_loop(ask())
    return told, troubles


def _hint(what: str) -> str:
    if _ENDPOINT.fullmatch(what):
        return ""
    return ": only the newest picks of each ext_proc worker are remembered"
