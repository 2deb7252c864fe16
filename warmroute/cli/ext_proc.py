"""`warmroute ext-proc`: ext_proc workers that follow an xds_server, one or several processes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fleet.settings import load_settings
from fleet.settings.ext_proc import MOST_WORKERS, worker_address, worker_admin_address
from warmroute.cli.options import whole
from warmroute.cli.service import run_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.settings import Settings

_GRACE_SECONDS: Final = 5.0
_LEAVE: Final = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("settings", type=Path, help="the settings file, warmroute.yaml")
    parser.add_argument(
        "--workers",
        type=partial(whole, most=MOST_WORKERS),
        metavar="N",
        help="processes, in place of ext_proc.workers; xds_server needs the same number",
    )
    # How a parent starts its workers.
    parser.add_argument("--worker", type=int, metavar="NUMBER", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM."""
    # Imported late: a worker needs nothing of what its parent does.
    from warmroute.cli.workers import WORKERS_VARIABLE, run_workers  # noqa: PLC0415

    environ = dict(os.environ)
    if args.workers is not None:
        environ[WORKERS_VARIABLE] = str(args.workers)
    settings = load_settings(args.settings, environ)
    if args.worker is not None:
        return _run_worker(args.settings, settings, args.worker)
    if settings.ext_proc.workers > 1:
        return run_workers(args.settings, settings)
    return run_service(args.settings, settings, "ext-proc")


def _run_worker(path: Path, settings: Settings, number: int) -> int:
    end_with_parent(sys.stdin.fileno(), settings.limits.drain_seconds + _GRACE_SECONDS)
    return run_service(path, settings, "ext-proc", placed(settings, number))


def placed(started: Settings, number: int) -> Callable[[Settings], Settings]:
    """Return a function that replaces the started addresses in settings by those of worker `number`."""
    first, first_admin = started.ext_proc.address, started.admin.ext_proc_address
    own, own_admin = worker_address(first, number), worker_admin_address(first_admin, number)

    def place(settings: Settings) -> Settings:
        ext_proc, admin = settings.ext_proc, settings.admin
        if ext_proc.address == first:
            ext_proc = ext_proc.model_copy(update={"address": own})
        if admin.ext_proc_address == first_admin:
            admin = admin.model_copy(update={"ext_proc_address": own_admin})
        return settings.model_copy(update={"ext_proc": ext_proc, "admin": admin})

    return place


def end_with_parent(pipe: int, grace_seconds: float, leave: Callable[[int], None] = os._exit) -> None:
    """Drain this process when `pipe`, which its parent holds open, is closed; leave it after a while.

    On a thread of its own, because an event loop that hangs would notice nothing.
    """
    ended = threading.Event()

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        ended.wait(grace_seconds)
        leave(_LEAVE)

    threading.Thread(target=watch, name="tie to parent", daemon=True).start()
