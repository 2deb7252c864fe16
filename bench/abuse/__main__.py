"""Attacks on each door of a running `warmroute serve`, and what they cost honest requests meanwhile.

Envoy stands in front, 20 honest requests a second run all the time, and attackers and hostile servers are
processes of their own. A round is a quiet time, the attack, and a recovery time.

A stall is the time for which `serve` keeps others waiting because it computes: the time of an answer, less
the longest answer of a bare gRPC server in the same time, and at most the CPU time of `serve` meanwhile. The
two reductions exclude delays by a busy host. A round's stall is its longest. Health checks of ext_proc
("stall ms") and GET /healthz of admin ("admin ms") are sent every 10 ms each. The smallest of some rounds
counts, above the smallest of all quiet times (for admin, above the quiet time of the same round).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from bench.abuse.attacks import ATTACKS
from bench.abuse.figures import (
    WELL_SECONDS,
    Cost,
    Moments,
    Samples,
    heading,
    quiet_level,
    round_of,
    row,
    unwell_at,
)
from bench.abuse.site import RATE, running_site, strike
from warmroute.demo import processes, report
from warmroute.demo.cpu import CpuMeter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.abuse.figures import Round
    from bench.abuse.site import Site
    from bench.peer import Peer
    from warmroute.demo.report import Target

_SETTLE_SECONDS: Final = 3.0
_STAYS_WELL_SECONDS: Final = 1.5
_POLL_SECONDS: Final = 0.25


async def abuse(names: Sequence[str], seconds: float, rounds: int) -> list[Cost]:
    """Run the attacks one after the other, each for `seconds` a round.

    Raises:
        BenchError: a part did not start, or an attacker broke.
    """
    costs: list[Cost] = []
    pending = sorted(names, key=_form)
    report.progress(heading())
    while pending:
        form = _form(pending[0])
        async with running_site(ATTACKS[pending[0]]) as site:
            await asyncio.sleep(_SETTLE_SECONDS)
            running = True
            while running and pending and _form(pending[0]) == form:
                level = quiet_level(costs) if costs else None
                costs.append(await _attack(site, pending.pop(0), seconds, rounds, level))
                report.progress(row(costs[-1]))
                running = site.attacked.running
    return costs


def _form(name: str) -> tuple[bool, bool]:
    """How what is attacked is started."""
    return ATTACKS[name].tls, ATTACKS[name].apart


async def _attack(site: Site, name: str, seconds: float, rounds: int, quiet: float | None) -> Cost:
    """Run rounds until one meets every target, at most `rounds`."""
    done: list[Round] = []
    async with site.attacker(name) as attacker:
        for _ in range(rounds):
            done.append(await _round(site, attacker, name, seconds))
            # A round that has missed its door shows nothing.
            cost = Cost(name, ATTACKS[name].sends, [entry for entry in done if entry.sent_bytes] or done)
            level = quiet_level([cost]) if quiet is None else min(quiet, quiet_level([cost]))
            well = report.exit_code(cost.targets(level)) == 0
            if well or not site.attacked.running:
                break
    return cost


async def _round(site: Site, attacker: Peer, name: str, seconds: float) -> Round:
    await site.take()
    load = site.load
    began = time.monotonic() - load.elapsed_seconds
    quiet = time.monotonic()
    await asyncio.sleep(seconds)
    attack = time.monotonic()
    sent = await strike(site, attacker, name, seconds)
    over, started = time.monotonic(), load.started
    samples = Samples()
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        samples.extend(await site.take())
        at = Moments(quiet, attack, over, time.monotonic())
        unwell = unwell_at(samples, load.outcomes, began, at)
        ended = len(load.outcomes) >= started
        if (ended and at.end - unwell > _STAYS_WELL_SECONDS) or at.end - over > 1.2 * WELL_SECONDS:
            return round_of(samples, load.outcomes, began, at, sent)


def result_of(costs: Sequence[Cost], seconds: float) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and its targets."""
    level = quiet_level(costs)
    result = {
        "seconds": seconds,
        "requests_per_second": RATE,
        "quiet_own_seconds": level,
        "attacks": [cost.as_json() for cost in costs],
    }
    return result, [entry for cost in costs for entry in cost.targets(level)]


def _chosen(patterns: Sequence[str]) -> list[str]:
    """Return the names that patterns select; all without any.

    Raises:
        ValueError: a pattern selects none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in ATTACKS):
            raise ValueError(f"no such attack: {pattern}; there are {', '.join(ATTACKS)}")
    return [name for name in ATTACKS if not patterns or any(fnmatchcase(name, one) for one in patterns)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.abuse", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="an attack, or a pattern such as 'admin.*'",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of an attack in a round (default 3)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="at most; the first that meets all is the last (default 5)"
    )
    parser.add_argument("--list", action="store_true", help="only name the attacks")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    try:
        names = _chosen(args.only)
    except ValueError as error:
        parser.error(str(error))
    if args.list:
        print("\n".join(names))
        return 0
    meter, load = CpuMeter(), os.getloadavg()[0]
    costs = processes.run(abuse(names, args.seconds, args.rounds))
    result, targets = result_of(costs, args.seconds)
    result |= {"cpu_used_ratio": meter.used_ratio(), "load_average_before": load}
    missed = [entry for entry in targets if not entry.met]
    for line in report.lines(missed):
        report.progress(line)
    report.progress(f"{len(targets) - len(missed)} of {len(targets)} targets are met")
    if args.json:
        report.print_json(result, targets)
    return report.exit_code(targets)


if __name__ == "__main__":
    sys.exit(report.command(main))
