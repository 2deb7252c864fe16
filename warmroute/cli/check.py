"""`warmroute check`: say whether a settings file can be used, and whether on this host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import SettingsError
from fleet.service.host_check import host_findings
from fleet.settings import load_settings, located
from fleet.settings.model_check import model_findings
from fleet.settings.role_check import findings
from warmroute.cli.forms import ROLES, obstacles

if TYPE_CHECKING:
    import argparse

    from warmroute.cli.forms import Role


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("settings", type=Path, help="the settings file, warmroute.yaml")
    parser.add_argument(
        "--form",
        choices=ROLES,
        help="end with 2 where this form would not start on this host; without it, this is a note",
    )


def run(args: argparse.Namespace) -> int:
    """Load the file; problems are raised as SettingsError, which the command prints."""
    settings = load_settings(args.settings)
    if args.form and (against := list(obstacles(settings, args.form))):
        raise SettingsError(against)
    all_findings = (*findings(settings), *model_findings(settings), *host_findings(settings))
    if any(finding.grave for finding in all_findings):
        raise SettingsError([finding.text for finding in all_findings])
    endpoints = sum(len(pool.endpoints) for pool in settings.pools)
    print(
        f"{args.settings}: good, {len(settings.pools)} pool(s), {endpoints} endpoint(s),"
        f" {len(settings.listeners)} listener(s)"
    )
    refusing: dict[str, list[Role]] = {}
    for role in () if args.form else ROLES:
        for problem in obstacles(settings, role):
            refusing.setdefault(problem, []).append(role)
    for problem, roles in refusing.items():
        forms = ", ".join(f"`{role}`" for role in roles)
        text = located(args.settings, SettingsError([problem]))
        print(f"warmroute check: {forms} would not start on this host: {text}", file=sys.stderr)
    for finding in all_findings:
        text = located(args.settings, SettingsError([finding.text]))
        print(f"warmroute check: {text}", file=sys.stderr)
    return 0
