"""The same workload twice, on fresh engines: Envoy alone with round robin, then Envoy with Warmroute."""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from warmroute.demo import processes, report
from warmroute.demo.cluster import ClusterSettings, running_cluster
from warmroute.demo.cpu import CpuMeter
from warmroute.demo.load import LoadRun
from warmroute.demo.scenario import Scenario, scenario
from warmroute.demo.show import LiveShow, PlainShow, Show, shown
from warmroute.demo.stats import Summary, summarise
from warmroute.demo.watch import warmroute_status
from warmroute.simulator.workload import workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.demo.cluster import Cluster, Router
    from warmroute.demo.report import Target
    from warmroute.demo.scenario import TtftQuantile
    from warmroute.demo.stats import Outcome

_HIT_RATIO_FACTOR: Final = 2.0
_TTFT_FACTOR: Final = 0.6
_HONOURED: Final = 0.99
_ALONE: Final = "round robin: each engine in turn"
_TOGETHER: Final = "each request goes where its prefix is warm; weights follow the load"


@dataclass(frozen=True)
class RunResult:
    """One of the two runs."""

    summary: Summary
    cpu_used_ratio: float | None
    """Of the whole host. Near 1 the host, not the engines' model, sets the times."""
    status: Mapping[str, Any]
    engine_counts: Mapping[str, int]
    """What the engines counted, summed: requests, routed, honoured, ...; of real engines, which do not
    count, from Envoy's response headers."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**self.summary.as_json(), "host_cpu_used_ratio": self.cpu_used_ratio}


async def compare(chosen: Scenario, show: Show) -> tuple[dict[str, Any], list[Target]]:
    """Run both and return the figures and their targets.

    Raises:
        BenchError: a part did not start.
    """
    before = await one_run(chosen, "envoy", show, "1 of 2: Envoy alone", _ALONE)
    after = await one_run(chosen, "serve", show, "2 of 2: Envoy with Warmroute", _TOGETHER)
    result = result_of(before, after)
    return result, targets_of(result, chosen.judged_by)


async def one_run(chosen: Scenario, router: Router, show: Show, title: str, note: str) -> RunResult:
    """Run the workload once on a fresh deployment."""
    turns = workload(chosen.workload)
    show.phase(title, note)
    try:
        settings = ClusterSettings(router, chosen.engines, chosen.engine, chosen.overrides)
        async with running_cluster(settings) as cluster:
            load = LoadRun(cluster.address, chosen.engine.model)
            meter = CpuMeter()
            async with shown(show, cluster, load, chosen.workload.duration_seconds):
                outcomes = await load.run(turns)
                used = meter.used_ratio()
            status = {} if router == "envoy" else await warmroute_status(cluster)
            counts = await count_requests(cluster, outcomes)
            return RunResult(summarise(outcomes, cluster.engines), used, status, counts)
    finally:
        show.end()


async def count_requests(cluster: Cluster, outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Sum the engines' counters, or count by the response headers."""
    if cluster.settings.engine.kind != "simulator":
        picked = [outcome for outcome in outcomes if outcome.picked is not None]
        return {"routed": len(picked), "honoured": sum(o.picked == o.served for o in picked)}
    totals: dict[str, int] = {}
    for address in cluster.engines:
        for name, count in (await cluster.get_json(address, "/admin/seen") or {}).items():
            if isinstance(count, int):
                totals[name] = totals.get(name, 0) + count
    return totals


def result_of(before: RunResult, after: RunResult) -> dict[str, Any]:
    """Join both runs into the object that `--json` prints."""
    reasons = after.status.get("picks") or {}
    return {
        "round_robin": before.as_json(),
        "warmroute": after.as_json(),
        "weight_updates": after.status.get("weight_updates"),
        "pushes": after.status.get("pushes"),
        "acks": after.status.get("acks"),
        "nacks": after.status.get("nacks"),
        "picks": after.engine_counts.get("routed", sum(reasons.values())),
        "pick_reasons": reasons,
        "picks_honoured": report.ratio(
            after.engine_counts.get("honoured"), after.engine_counts.get("routed")
        ),
    }


def targets_of(result: Mapping[str, Any], judged_by: TtftQuantile = "ttft_p99") -> list[Target]:
    """Hold the figures against their targets."""
    before, after = result["round_robin"], result["warmroute"]
    hits = report.ratio(after["prefix_hit_ratio"], before["prefix_hit_ratio"])
    ttft = report.ratio(after[f"{judged_by}_seconds"], before[f"{judged_by}_seconds"])
    return [
        report.exactly("round_robin_failures", before["failures"], 0),
        report.exactly("warmroute_failures", after["failures"], 0),
        report.at_least("prefix_hit_ratio_over_round_robin", hits, _HIT_RATIO_FACTOR),
        report.at_most(f"{judged_by}_over_round_robin", ttft, _TTFT_FACTOR),
        report.at_least("picks_honoured", result["picks_honoured"], _HONOURED),
        report.exactly("nacks", result["nacks"], 0),
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.add_argument("--seconds", type=_positive, default=20.0, help="length of each run (default 20)")
    parser.add_argument("--engines", type=_engines, metavar="1..64", help="default 4, of llama 2")
    parser.add_argument(
        "--engine", choices=("simulator", "llama"), default="simulator", help="default simulator"
    )
    parser.add_argument("--seed", type=int, default=7, help="another seed, another workload (default 7)")
    parser.add_argument(
        "--rate", type=_positive, help="requests a second (default: enough to make round robin queue)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def run(args: argparse.Namespace) -> tuple[dict[str, Any], list[Target]]:
    """Run the demo as the options say, show it, and print its figures.

    Raises:
        BenchError: a part did not start.
        KeyboardInterrupt: the user stopped it, and all is stopped.
    """
    on_terminal = sys.stdout.isatty() and not args.json
    show: Show = LiveShow() if on_terminal else PlainShow()
    chosen = scenario(args.engine, seconds=args.seconds, engines=args.engines, seed=args.seed, rate=args.rate)
    try:
        result, targets = processes.run(compare(chosen, show))
    except KeyboardInterrupt:
        report.progress("stopped; nothing is left running")
        raise
    if args.json:
        report.print_json(result, targets)
    else:
        from warmroute.demo.table import comparison, console  # noqa: PLC0415 (rich is an extra)

        screen = console()
        screen.print(comparison(result, targets, screen.width))
    return result, targets


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo as a bench: the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    arguments(parser)
    _, targets = run(parser.parse_args(argv))
    for line in report.lines(targets):
        report.progress(line)
    return report.exit_code(targets)


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < 1e6:
            return value
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number above 0 and below 1,000,000")


def _engines(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (value := int(text)) in range(1, 65):
            return value
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 1 to 64")
