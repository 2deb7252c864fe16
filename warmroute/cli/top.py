"""`warmroute top`: endpoints, weights and health, live on a terminal or once for scripts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from warmroute.cli.options import interval
from warmroute.cli.view import client
from warmroute.cli.view.client import AdminClient, AdminError
from warmroute.cli.view.columns import SORTABLE, History, matching, ordered
from warmroute.cli.view.keys import Screen, press
from warmroute.cli.view.model import (
    ENDPOINTS,
    KV_EVENTS,
    SKEW,
    STATUS,
    WEIGHTS,
    Picture,
    kv_event_notes,
    picture,
)
from warmroute.cli.view.table import Frame, live, notes_of, once, page_rows
from warmroute.cli.view.terminal import Terminal

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

_SCRIPT_COLUMNS: Final = 200
"""A pipe has no width: all columns fit into this."""
_OPTIONAL: Final = (STATUS, WEIGHTS, SKEW, KV_EVENTS)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    client.arguments(parser)
    parser.add_argument(
        "--sort", default="endpoint", choices=SORTABLE, metavar="COLUMN", help=", ".join(SORTABLE)
    )
    parser.add_argument("--reverse", action="store_true", help="sort the other way")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only rows with each of these words")
    parser.add_argument(
        "--interval", type=interval, default=1.0, metavar="SECONDS", help="default: %(default)s"
    )
    parser.add_argument(
        "--once", action="store_true", help="print one table and end; so where no terminal is"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and end")


def run(args: argparse.Namespace) -> int:
    """Show it until the user leaves.

    Raises:
        AdminError: nothing can be printed once, because the admin server does not answer.
    """
    admin = AdminClient.of(args)
    screen = Screen(sort=args.sort, reverse=args.reverse, filter=args.filter)
    console = _console()
    if args.once or args.json or not console.is_terminal or console.is_dumb_terminal:
        return asyncio.run(_once(admin, screen, console, as_json=args.json))
    ended_by = asyncio.run(Top(admin, screen, console, args.interval).run())
    return 128 + ended_by if ended_by else 0


async def _once(client: AdminClient, screen: Screen, console: Console, *, as_json: bool) -> int:
    async with client:
        now = await ask(client)
    if as_json:
        print(json.dumps(as_plain(now, screen), allow_nan=False))
    else:
        console.print(once(now, console.width, screen))
        for note in (*notes_of(now.status), *kv_event_notes(now.kv_events)):
            print(f"warmroute top: {note}", file=sys.stderr)
    return 0


async def ask(client: AdminClient) -> Picture:
    """Ask for everything once.

    Raises:
        AdminError: there is no answer.
    """
    return picture(await client.documents(ENDPOINTS, _OPTIONAL))


def as_plain(now: Picture, screen: Screen) -> dict[str, Any]:
    """Return the picture as plain values, rows filtered and in order; null is unknown."""
    rows = ordered(matching(now.rows, screen.filter), screen.sort, reverse=screen.reverse)
    return {
        "endpoints": [{**asdict(row), "health": row.health} for row in rows],
        "status": now.status,
        "skew": list(now.skew),
        "kv_events": dict(now.kv_events),
    }


class Top:
    """The live view: asks every `interval` seconds, and redraws on each answer, key and change of size."""

    def __init__(self, client: AdminClient, screen: Screen, console: Console, interval: float) -> None:
        self._client = client
        self._screen = screen
        self._console = console
        self._interval = interval
        self._history = History()
        self._picture: Picture | None = None
        self._answered_at = 0.0
        self._trouble = ""
        self._event = asyncio.Event()

    async def run(self) -> int:
        """Show until the user leaves; returns the number of the signal that ended it, 0 without one."""
        async with self._client:
            with Terminal(self._console, self._on_key, self._event.set) as terminal:
                asking = asyncio.create_task(self._ask_for_ever(), name="top asks")
                try:
                    while not self._screen.quit and terminal.ended_by is None:
                        terminal.draw(live(self._frame(), self._console.width, self._console.height))
                        await self._event.wait()
                        self._event.clear()
                        if asking.done():
                            asking.result()
                finally:
                    asking.cancel()
                    await asyncio.wait([asking])
        ended_by = terminal.ended_by
        return 0 if ended_by in {None, signal.SIGINT} else int(ended_by or 0)

    async def _ask_for_ever(self) -> None:
        try:
            while True:
                if not self._screen.paused:
                    await self._ask()
                    self._event.set()
                await asyncio.sleep(self._interval)
        finally:
            self._event.set()

    async def _ask(self) -> None:
        try:
            new_picture = await ask(self._client)
        except AdminError as error:
            self._trouble = str(error)
            return
        if self._screen.paused:
            return  # The key came while the answer was on its way.
        self._trouble = ""
        self._picture, self._answered_at = new_picture, time.monotonic()
        self._history.add(self._answered_at, new_picture)

    def _on_key(self, key: str) -> None:
        rows = len(matching(self._picture.rows, self._screen.filter)) if self._picture else 0
        page = page_rows(self._frame(), self._console.width, self._console.height)
        self._screen = press(self._screen, key, SORTABLE, rows, page)
        self._event.set()

    def _frame(self) -> Frame:
        now = time.monotonic()
        return Frame(
            url=self._client.url,
            picture=self._picture,
            trouble=self._trouble,
            age_seconds=now - self._answered_at,
            screen=self._screen,
            history=self._history,
            now=self._answered_at,
            clock=time.strftime("%H:%M:%S"),
        )


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    if sys.stdout.isatty():
        return Console(highlight=False)
    columns = os.environ.get("COLUMNS", "")
    return Console(
        highlight=False, width=int(columns) if columns.isdigit() and int(columns) else _SCRIPT_COLUMNS
    )
