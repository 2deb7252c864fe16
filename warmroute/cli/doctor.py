"""`warmroute doctor`: parts of an Envoy's configuration that hurt LLM traffic, with remedies."""

from __future__ import annotations

import argparse
import asyncio
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fleet.settings import load_settings
from warmroute.cli.options import seconds, whole
from warmroute.cli.view.envoy_admin import (
    CLUSTERS_PATH,
    CONFIG_PATH,
    DEFAULT_ADMIN,
    STATS_PATH,
    ask,
    document,
)
from warmroute.doctor.envoy.queries import coverage
from warmroute.doctor.envoy.read import read
from warmroute.doctor.envoy.rules import RULES
from warmroute.doctor.report import data, lines
from warmroute.doctor.rule import (
    DEFAULT_LONGEST_PROMPT_BYTES,
    Context,
    DoctorError,
    Finding,
    Severity,
    examine,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROXY: Final = "envoy"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.epilog = (
        "Exit status: 0 nothing is found, 1 something at least as bad as --fail-on is, 2 there is nothing "
        "to read. docs/doctor.md lists the rules."
    )
    parser.add_argument("--admin", metavar="URL", help=f"a running Envoy's admin; default: {DEFAULT_ADMIN}")
    parser.add_argument(
        "--config-dump",
        type=Path,
        metavar="FILE",
        help="instead of asking: /config_dump?include_eds, or a bootstrap, as JSON or YAML",
    )
    parser.add_argument("--clusters", type=Path, metavar="FILE", help="/clusters?format=json")
    parser.add_argument("--stats", type=Path, metavar="FILE", help="/stats?format=json")
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="warmroute.yaml: only routes to its pools count; default: all routes",
    )
    parser.add_argument(
        "--longest-prompt-bytes",
        type=partial(whole, most=2**62),
        default=DEFAULT_LONGEST_PROMPT_BYTES,
        metavar="N",
        help="the longest request body that must pass; default: %(default)s",
    )
    parser.add_argument(
        "--p99-seconds",
        type=seconds,
        metavar="X",
        help="P99 of whole answers; default: from Envoy's statistics",
    )
    parser.add_argument(
        "--ping-permit",
        type=_permit,
        action="append",
        default=[],
        metavar="CLUSTER=SECONDS",
        help="how often the gRPC server behind a cluster permits HTTP/2 pings",
    )
    parser.add_argument(
        "--fail-on",
        choices=[level.word for level in Severity],
        default=Severity.WARNING.word,
        help="the mildest finding that makes the exit status 1; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Examine and print; returns 0 or 1 as the epilog says.

    Raises:
        DoctorError: there is nothing to read; the command ends with 2.
    """
    return asyncio.run(_doctor(args))


async def _doctor(args: argparse.Namespace) -> int:
    documents = await _documents(args)
    try:
        facts = read(*documents.values())
    except DoctorError as error:
        raise _named(error, args) from error
    context = _context(args)
    findings = examine(RULES, facts, context)
    _print(findings, coverage(facts, context), as_json=args.json)
    worst = max((finding.severity for finding in findings), default=None)
    return int(worst is not None and worst >= Severity[args.fail_on.upper()])


def _print(findings: Sequence[Finding], parts: Mapping[str, int], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(data(PROXY, findings, parts), allow_nan=False))
    else:
        titles = {name: rule.title for name, rule in RULES.items()}
        print("\n".join(lines(findings, titles, parts)))


async def _documents(args: argparse.Namespace) -> dict[str, Any]:
    """Read configuration, states and statistics: from files where these are named, else from Envoy.

    Next to a configuration from a file, the others are queried only with `--admin`.
    """
    files = _files(args)
    documents: dict[str, Any] = {
        path: await asyncio.to_thread(document, file) for path, file in files.items() if file is not None
    }
    if args.admin or args.config_dump is None:
        missing = [path for path in files if path not in documents]
        answers = await ask(args.admin or DEFAULT_ADMIN, missing)
        documents |= dict(zip(missing, answers, strict=True))
    return {path: documents.get(path) for path in files}


def _files(args: argparse.Namespace) -> dict[str, Path | None]:
    return {CONFIG_PATH: args.config_dump, CLUSTERS_PATH: args.clusters, STATS_PATH: args.stats}


def _named(error: DoctorError, args: argparse.Namespace) -> DoctorError:
    """Say where the document comes from that an error is about."""
    if not error.document:
        return error
    path = {"configuration": CONFIG_PATH, "clusters": CLUSTERS_PATH, "stats": STATS_PATH}[error.document]
    source = _files(args)[path] or f"{args.admin or DEFAULT_ADMIN} {path}"
    return DoctorError(f"{source}: {error}")


def _context(args: argparse.Namespace) -> Context:
    pools = None
    if args.settings is not None:
        pools = frozenset(pool.name for pool in load_settings(args.settings).pools)
    return Context(
        longest_prompt_bytes=args.longest_prompt_bytes,
        p99_seconds=args.p99_seconds,
        pools=pools,
        ping_permits=dict(args.ping_permit),
    )


def _permit(text: str) -> tuple[str, float]:
    cluster, _, permitted = text.rpartition("=")
    if not cluster:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: CLUSTER=SECONDS")
    return cluster, seconds(permitted)
