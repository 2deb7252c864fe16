"""`warmroute doctor`: parts of a proxy's configuration that hurt LLM traffic, with remedies."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fleet.settings import load_settings
from fleet.settings.address import split_host_port
from warmroute.cli.options import seconds, whole
from warmroute.cli.view.envoy_admin import (
    CLUSTERS_PATH,
    CONFIG_PATH,
    DEFAULT_ADMIN,
    STATS_PATH,
    ask,
    document,
)
from warmroute.cli.view.front_files import PROXIES, read_front
from warmroute.doctor.envoy.queries import coverage, engine_passages, p99_seconds
from warmroute.doctor.envoy.read import read
from warmroute.doctor.envoy.rules import RULES
from warmroute.doctor.front import rules as front
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

    from warmroute.doctor.envoy.facts import Facts
    from warmroute.doctor.rule import Rule

ENVOY: Final = "envoy"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.epilog = (
        "Exit status: 0 nothing is found, 1 something at least as bad as --fail-on is, 2 there is nothing "
        "to read. docs/doctor.md lists the rules."
    )
    fronts = parser.add_mutually_exclusive_group()
    for proxy in PROXIES:
        fronts.add_argument(
            f"--{proxy}",
            type=Path,
            metavar="PATH",
            help=f"judge the {proxy} in front of Envoy: its configuration file or folder",
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
        help="warmroute.yaml: only routes to its pools count, of a proxy in front those to its listeners' "
        "ports; default: all routes",
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
    context = _context(args)
    proxy = next((name for name in PROXIES if getattr(args, name) is not None), ENVOY)
    if proxy == ENVOY:
        facts = await _envoy(args)
        findings, parts = examine(RULES, facts, context), coverage(facts, context)
        _print(proxy, findings, RULES, parts, as_json=args.json)
    else:
        if context.p99_seconds is None and (args.admin or args.config_dump):
            context = replace(context, p99_seconds=_slowest(await _envoy(args), context))
        fronted = await asyncio.to_thread(read_front, proxy, getattr(args, proxy))
        if args.settings is not None and not any(front.ways(fronted, context)):
            ports = ", ".join(str(port) for port in sorted(context.ports or ()))
            raise DoctorError(
                f"{getattr(args, proxy)}: no route leads to a listener of {args.settings} (port {ports}); "
                "mend the addresses, or leave --settings out to judge all routes"
            )
        findings, parts = examine(front.RULES, fronted, context), front.coverage(fronted, context)
        _print(proxy, findings, front.RULES, parts, as_json=args.json)
    worst = max((finding.severity for finding in findings), default=None)
    return int(worst is not None and worst >= Severity[args.fail_on.upper()])


async def _envoy(args: argparse.Namespace) -> Facts:
    documents = await _documents(args)
    try:
        return read(*documents.values())
    except DoctorError as error:
        raise _named(error, args) from error


def _slowest(facts: Facts, context: Context) -> float | None:
    """The longest P99 of the clusters of engines; None without statistics."""
    clusters = {passage.route.cluster for passage in engine_passages(facts, context)}
    p99s = (p99_seconds(facts, context, cluster) for cluster in clusters)
    return max((p99 for p99 in p99s if p99 is not None), default=None)


def _print(
    proxy: str,
    findings: Sequence[Finding],
    rules: Mapping[str, Rule[Any]],
    parts: Mapping[str, int],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print(json.dumps(data(proxy, findings, parts), allow_nan=False))
    else:
        titles = {name: rule.title for name, rule in rules.items()}
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
    pools = ports = None
    if args.settings is not None:
        settings = load_settings(args.settings)
        pools = frozenset(pool.name for pool in settings.pools)
        ports = frozenset(split_host_port(listener.address)[1] for listener in settings.listeners)
    return Context(
        longest_prompt_bytes=args.longest_prompt_bytes,
        p99_seconds=args.p99_seconds,
        pools=pools,
        ports=ports,
        ping_permits=dict(args.ping_permit),
    )


def _permit(text: str) -> tuple[str, float]:
    cluster, _, permitted = text.rpartition("=")
    if not cluster:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: CLUSTER=SECONDS")
    return cluster, seconds(permitted)
