"""The same requests three times, on fresh engines: Envoy's round robin, its least request, and Warmroute."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from warmroute.demo import processes, report
from warmroute.demo.cluster import ClusterSettings, running_cluster
from warmroute.demo.cpu import CpuMeter
from warmroute.demo.load import LoadRun
from warmroute.demo.scenario import Scenario, scenario
from warmroute.demo.show import LiveShow, PlainShow, Show, shown
from warmroute.demo.stats import Moment, Summary, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.demo.cluster import Cluster, Router
    from warmroute.demo.envoy_alone import Policy
    from warmroute.demo.report import Target
    from warmroute.demo.scenario import TtftQuantile
    from warmroute.demo.stats import Outcome

_HITS_FACTOR: Final = 1.5
_TTFT_FACTOR: Final = 0.7
_HONOURED: Final = 0.99


class _Contender(NamedTuple):
    name: str
    router: Router
    alone: Policy = "round_robin"


CONTENDERS: Final = {
    "round_robin": _Contender("round robin", "envoy", "round_robin"),
    "least_request": _Contender("least request", "envoy", "least_request"),
    "warmroute": _Contender("Warmroute", "serve"),
}
"""By their keys in the JSON object, in the order of their runs."""


@dataclass(frozen=True)
class RunResult:
    """The run of one policy."""

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


async def compare(chosen: Scenario, show: Show) -> dict[str, RunResult]:
    """Run all contenders, one after the other.

    Raises:
        BenchError: a part did not start.
    """
    try:
        return {key: await one_run(chosen, contender, show) for key, contender in CONTENDERS.items()}
    finally:
        show.end()


async def one_run(chosen: Scenario, contender: _Contender, show: Show) -> RunResult:
    """Run the workload once on a fresh deployment."""
    show.update(Moment(contender.name, 0.0, "starting", None))
    settings = ClusterSettings(
        contender.router, chosen.engines, chosen.engine, chosen.overrides, alone=contender.alone
    )
    async with running_cluster(settings) as cluster:
        load = LoadRun(cluster.address, chosen.engine.model)
        meter = CpuMeter()
        async with shown(show, contender.name, load, chosen.seconds, cluster.engines):
            outcomes = await load.run(chosen.turns)
            used = meter.used_ratio()
        status = {} if contender.router == "envoy" else await cluster.status()
        counts = await count_requests(cluster, outcomes)
        return RunResult(summarise(outcomes, cluster.engines), used, status, counts)


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


def result_of(runs: Mapping[str, RunResult]) -> dict[str, Any]:
    """Join the runs into the object that `--json` prints."""
    ours = runs["warmroute"]
    reasons = ours.status.get("picks") or {}
    return {
        **{key: run.as_json() for key, run in runs.items()},
        "weight_updates": ours.status.get("weight_updates"),
        "pushes": ours.status.get("pushes"),
        "acks": ours.status.get("acks"),
        "nacks": ours.status.get("nacks"),
        "picks": ours.engine_counts.get("routed", sum(reasons.values())),
        "pick_reasons": reasons,
        "picks_honoured": report.ratio(ours.engine_counts.get("honoured"), ours.engine_counts.get("routed")),
    }


def targets_of(result: Mapping[str, Any], judged_by: TtftQuantile = "ttft_p90") -> list[Target]:
    """Hold the figures against their targets."""
    ours = result["warmroute"]
    targets = [report.exactly(f"{key}_failures", result[key]["failures"], 0) for key in CONTENDERS]
    for key in ("round_robin", "least_request"):
        other = result[key]
        hits = report.ratio(ours["prefix_hit_ratio"], other["prefix_hit_ratio"])
        ttft = report.ratio(ours[f"{judged_by}_seconds"], other[f"{judged_by}_seconds"])
        targets += [
            report.at_least(f"prefix_hit_ratio_over_{key}", hits, _HITS_FACTOR),
            report.at_most(f"{judged_by}_over_{key}", ttft, _TTFT_FACTOR),
        ]
    return [
        *targets,
        report.at_least("picks_honoured", result["picks_honoured"], _HONOURED),
        report.exactly("nacks", result["nacks"], 0),
    ]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the demo's options."""
    parser.add_argument("--seconds", type=_positive, default=12.0, help="length of each run (default 12)")
    parser.add_argument("--engines", type=_engines, metavar="1..64", help="default 4, of llama 2")
    parser.add_argument(
        "--engine", choices=("simulator", "llama"), default="simulator", help="default simulator"
    )
    parser.add_argument("--seed", type=int, default=7, help="of the arrival times (default 7)")
    parser.add_argument(
        "--rate", type=_positive, help="requests a second (default: 83 %% of what round robin carries)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def run(args: argparse.Namespace) -> list[Target]:
    """Run the demo as the options say, show it, and return its targets.

    Raises:
        BenchError: a part did not start.
        KeyboardInterrupt: the user stopped it, and all is stopped.
    """
    from warmroute.demo.table import busy, comparison, console, verdict  # noqa: PLC0415 (rich is an extra)

    screen = console()
    chosen = scenario(args.engine, seconds=args.seconds, engines=args.engines, seed=args.seed, rate=args.rate)
    names = {key: contender.name for key, contender in CONTENDERS.items()}
    live = screen.is_interactive and not args.json
    show: Show = LiveShow(screen, chosen, list(names.values())) if live else PlainShow()
    try:
        runs = processes.run(compare(chosen, show))
    except KeyboardInterrupt:
        report.progress("stopped; nothing is left running")
        raise
    columns = {names[key]: run.summary for key, run in runs.items()}
    machine = busy(columns, [run.cpu_used_ratio for run in runs.values()])
    result = result_of(runs)
    targets = targets_of(result, chosen.judged_by)
    if args.json:
        if machine:
            report.progress(machine)
        report.print_json(result, targets)
    else:
        closing = " ".join(filter(None, (verdict(columns, chosen.judged_by), machine)))
        screen.print(comparison(chosen, columns, closing, screen.options))
    return targets


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo as a bench: the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    arguments(parser)
    targets = run(parser.parse_args(argv))
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
