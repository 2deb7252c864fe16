"""Forecasts of engines' loads against what came: two models, their choice, last value, moving average.

Four series of queue, running requests and memory of eight engines, read every 0.5 s, whose requests were
drawn by weights alone (`bench/data/loads`): a conversation trace, a trace without reuse, bursts, a period.
The forecaster reads a series from its beginning; figures are of the second half. A loss is the mean pinball
loss over both quantiles (P50 and P90), signals and endpoints, in units of the last value's. 1 is the last
value; the moving average is that of the window.

`refusals` counts queues past a limit of 3, and the share that is past it at the horizon too: by the last
value, and by the last value and P50 together, as admission counts.

`cpu_ms` is what a tick takes at 1,000 endpoints with forecasts and without, in ten pools, as `bench.tick`
measures it. `--effect TRACE` replays a trace by weights alone, with forecasts and without.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench import prediction_run
from bench.tick import POOLS, TICK_SECONDS
from bench.tick_site import Site
from fleet.signals import SIGNALS, SignalTable, Source, rows_of
from warmroute.demo import report
from warmroute.replay.job import Job
from warmroute.replay.trace import read_trace
from xds_server.signals.forecast.forecaster import MODELS, TARGETS, WINDOW, SignalForecaster
from xds_server.signals.forecast.quantiles import QUANTILES, pinball

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from warmroute.demo.report import Target

    Floats = NDArray[np.float64]

SERIES: Final = Path(__file__).parent / "data" / "loads"
NAMES: Final = ("conversation", "azure", "bursty", "periodic")
HORIZON_SECONDS: Final = 2.0
STALE_SECONDS: Final = 10.0
COMPARED: Final = (*MODELS, "chosen", "moving average")
MOST_OVER_BEST: Final = 1.02
MOST_ADDED_SHARE: Final = 0.25
QUEUE_LIMIT: Final = 3
"""Of `refusals`: requests that wait in an engine."""
LEAST_TICKS: Final = 60
_ROWS: Final = rows_of(TARGETS)
_P50_ROWS: Final = rows_of(f"{target}_forecast_p50" for target in TARGETS)
_P90_ROWS: Final = rows_of(f"{target}_forecast_p90" for target in TARGETS)
_AHEAD: Final = round(HORIZON_SECONDS / prediction_run.SCRAPE_SECONDS)


def tables(name: str) -> Iterator[tuple[float, SignalTable]]:
    """Yield the signals of a series, sample by sample."""
    with np.load(SERIES / f"{name}.npz") as series:
        times, loads = prediction_run.unpacked(series)
    addresses = tuple(f"engine-{number}" for number in range(loads.shape[2]))
    for at, load in zip(times.tolist(), loads, strict=True):
        values = np.full((len(SIGNALS), len(addresses)), np.nan)
        values[_ROWS] = load
        observed_at = np.where(np.isnan(values), np.nan, at)
        yield at, SignalTable(addresses, values, observed_at, np.full(values.shape, Source.SCRAPE, np.uint8))


def judge(name: str) -> dict[str, Any]:
    """Forecast a series; return losses and median absolute errors by who forecast."""
    forecaster = SignalForecaster(HORIZON_SECONDS, STALE_SECONDS)
    forecasts, loads, p50 = [], [], []
    for at, table in tables(name):
        joined = forecaster.add_to(table, at)
        chosen = np.stack([joined.values[_P50_ROWS].T, joined.values[_P90_ROWS].T], axis=-1)[:, :, None]
        loads.append(table.values[_ROWS].T)
        p50.append(joined.values[_P50_ROWS].T)
        average = np.broadcast_to(np.mean(loads[-WINDOW:], axis=0)[..., None, None], chosen.shape)
        forecasts.append(np.concatenate((forecaster.forecasts, chosen, average), axis=2))
    half = len(loads) // 2
    came = np.array(loads[half + _AHEAD :])[..., None, None]
    errors = (came - np.array(forecasts[half:-_AHEAD])).astype(np.float32)
    losses = np.nanmean(pinball(errors), axis=(0, 1))
    # Each signal and quantile in units of the last value's, so that running requests do not drown memory.
    shares = losses / losses[:, :1]
    medians = np.nanmedian(np.abs(errors[..., 0]), axis=(0, 1))
    return {
        "samples": len(loads),
        "loss": _by_name(shares.mean(axis=(0, 2))),
        "loss_p50": _by_name(shares[..., 0].mean(axis=0)),
        "loss_by_signal": {
            f"{target} p{quantile * 100:.0f}": _by_name(shares[row, :, column])
            for row, target in enumerate(TARGETS)
            for column, quantile in enumerate(QUANTILES.tolist())
        },
        "refusals": _refusals(
            np.array(loads)[half:-_AHEAD, :, 0], np.array(p50)[half:-_AHEAD, :, 0], came[:, :, 0, 0, 0]
        ),
        "median_error": {target: _by_name(medians[row]) for row, target in enumerate(TARGETS)},
    }


def _refusals(queue: Floats, forecast: Floats, came: Floats) -> dict[str, float]:
    """Return how often a queue past its limit was past it at the horizon too, and what forecasts change."""
    past, stays = queue > QUEUE_LIMIT, came > QUEUE_LIMIT
    both = past & (forecast > QUEUE_LIMIT)
    return {
        "past": int(past.sum()),
        "lasting_ratio": round(float((past & stays).sum() / past.sum()), 3),
        "past_with_forecast": int(both.sum()),
        "lasting_ratio_with_forecast": round(float((both & stays).sum() / both.sum()), 3),
    }


def _by_name(values: NDArray[np.float32]) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in zip(COMPARED, values, strict=True)}


def tick_costs(endpoints: int, rounds: int) -> dict[str, float]:
    """Return the CPU of a tick in milliseconds, with forecasts and without; the lower of some rounds."""
    costs = {"without": 0.0, "with": 0.0}
    for name, strategy in (("without", "headroom"), ("with", "predictive")):
        costs[name] = min(_tick_cost(endpoints, strategy) for _ in range(rounds))
    return {name: round(cost, 3) for name, cost in costs.items()}


def _tick_cost(endpoints: int, strategy: str) -> float:
    """Return the mean over ticks: forecasts are made in every second one."""
    site = Site(endpoints, POOLS, random.Random(7), strategy)
    spent = []
    for number in range(LEAST_TICKS + 40):
        site.now += TICK_SECONDS
        site.move(number)
        site.pages()
        began = time.process_time_ns()
        for _, work in site.tick_parts():
            work()
        spent.append((time.process_time_ns() - began) / 1e6)
    pairs = [first + second for first, second in zip(spent[40::2], spent[41::2], strict=True)]
    return statistics.median(pairs) / 2


def effect(path: Path, rate: float, copies: int, seeds: int, most: int | None) -> dict[str, Any]:
    """Replay a trace by weights alone, with forecasts and without."""
    names = ("ttft_p50", "ttft_p90", "ttft_p99", "slowdown_p99", "e2e_p99", "busiest_over_mean")
    result: dict[str, Any] = {"trace": path.stem, "rate": rate, "copies": copies, "seeds": seeds}
    trace = read_trace(path, "", most)
    for case, horizon in (("without", 0.0), ("with", HORIZON_SECONDS)):
        runs = []
        for seed in range(1, seeds + 1):
            job = Job("predictive", seed, rate=rate, copies=copies)
            runs.append(prediction_run.run(trace, job, horizon)[0])
            report.progress(f"{case} forecasts, seed {seed}: TTFT p90 {runs[-1].ttft_p90:.2f} s")
        result[case] = {
            name: round(statistics.fmean(getattr(run, name) for run in runs), 3) for name in names
        }
    return result


def targets_of(series: dict[str, Any], costs: dict[str, float] | None) -> list[Target]:
    """Return the figures that have targets."""
    targets = []
    for name, judged in series.items():
        loss = judged["loss"]
        best = min(loss["linear"], loss["network"])
        targets.append(
            report.at_most(f"{name}: chosen over the better model", loss["chosen"] / best, MOST_OVER_BEST)
        )
        targets += [
            report.at_most(f"{name}: {kind} over the last value's", judged[kind]["chosen"], 1.0)
            for kind in ("loss", "loss_p50")
        ]
    if costs is not None:
        added = costs["with"] / costs["without"] - 1.0
        targets.append(report.at_most("share of a tick added", added, MOST_ADDED_SHARE))
    return targets


def record(name: str, path: Path | None, rate: float, copies: int, most: int | None) -> None:
    """Replay a trace by weights without forecasts, and keep its loads as a series."""
    made = {"bursty": prediction_run.bursty, "periodic": prediction_run.periodic}
    trace = made[name]() if path is None else read_trace(path, "", most)
    _, samples = prediction_run.run(trace, Job("predictive", rate=rate, copies=copies), 0.0)
    SERIES.mkdir(exist_ok=True)
    np.savez_compressed(SERIES / f"{name}.npz", **prediction_run.packed(samples))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status tells whether all targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.prediction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--endpoints", type=int, default=1000, help="of the tick (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="of the tick; 0: leave it out (default 3)")
    parser.add_argument("--trace", type=Path, help="for --effect and --record")
    parser.add_argument("--effect", action="store_true", help="replay the trace, nothing else")
    parser.add_argument("--record", choices=NAMES, help="replay the trace and keep its loads, nothing else")
    parser.add_argument("--rate", type=float, default=1.0, help="of the trace (default 1)")
    parser.add_argument("--copies", type=int, default=1, help="of the trace (default 1)")
    parser.add_argument("--requests", type=int, help="the first ones of the trace only")
    parser.add_argument("--seeds", type=int, default=3, help="of --effect (default 3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    if args.effect:
        print(json.dumps(effect(args.trace, args.rate, args.copies, args.seeds, args.requests)))
        return 0
    if args.record:
        record(args.record, args.trace, args.rate, args.copies, args.requests)
        return 0
    logging.disable()  # The tick's figures are random, so skew begins and ends all the time.
    series = {name: judge(name) for name in NAMES}
    for name, judged in series.items():
        report.progress(f"{name}: " + ", ".join(f"{who} {loss:.3f}" for who, loss in judged["loss"].items()))
    costs = tick_costs(args.endpoints, args.rounds) if args.rounds else None
    result = {"series": series, "cpu_ms": costs}
    return report.finish(result, targets_of(series, costs), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
