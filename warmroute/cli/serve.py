"""`warmroute serve`: both services in one process, on one store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import SettingsError
from fleet.settings import load_settings
from warmroute.cli.forms import several_workers
from warmroute.cli.service import run_service

if TYPE_CHECKING:
    import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("settings", type=Path, help="the settings file, warmroute.yaml")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM."""
    settings = load_settings(args.settings)
    if refused := several_workers(settings):
        raise SettingsError([refused])
    return run_service(args.settings, settings, "serve")
