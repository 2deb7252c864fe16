"""`warmroute check`: say whether a settings file can be used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleet.settings import load_settings

if TYPE_CHECKING:
    import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("settings", type=Path, help="the settings file, warmroute.yaml")


def run(args: argparse.Namespace) -> int:
    """Load the file; problems are raised as SettingsError, which the command prints."""
    settings = load_settings(args.settings)
    endpoints = sum(len(pool.endpoints) for pool in settings.pools)
    print(
        f"{args.settings}: good, {len(settings.pools)} pool(s), {endpoints} endpoint(s),"
        f" {len(settings.listeners)} listener(s)"
    )
    return 0
