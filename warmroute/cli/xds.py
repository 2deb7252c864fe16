"""`warmroute xds`: xds_server alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleet.settings import load_settings
from warmroute.cli.service import run_service

if TYPE_CHECKING:
    import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("settings", type=Path, help="the settings file, warmroute.yaml")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM."""
    return run_service(args.settings, load_settings(args.settings), "xds")
