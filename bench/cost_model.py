"""Predicted times to first token against real ones, on replays, and against plain predictions.

The replay's own picks are the stream. For each of them, four predictions for the chosen endpoint are compared
with the time to first token that came:

- `learned`: what the pick has predicted (`ext_proc.pick.first_token`), the median;
- `roofline`: the same formula with the settings' constants, and their own queue;
- `last`: the endpoint's last time to first token, known at once;
- `average`: the endpoint's moving average of them, a tenth for each new one.

Wanted: the learned median error and its 90th percentile at least 25 % below the best of the other three, and
the predicted median and 90th percentile within 5 points of the share of answers that they should cover. The
cost of a forecast for 32 endpoints is measured in this process.
"""

from __future__ import annotations

import argparse
import sys
import time
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bench.pick import World
from ext_proc.pick.first_token import ARRIVES_AT, STEP_SECONDS, STEP_TOKENS, FirstTokens, SentRequest
from warmroute.demo import report
from warmroute.replay.job import Job
from warmroute.replay.policies.policy import Plan
from warmroute.replay.policies.warmroute import Warmroute
from warmroute.replay.run import replay
from warmroute.replay.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from fleet.settings.picks import CostSettings
    from warmroute.demo.report import Target
    from warmroute.replay.engine import Engine
    from warmroute.replay.run import Outcome
    from warmroute.replay.trace import Trace, TraceRequest

TRACES: Final = Path(__file__).parent / "data" / "traces"
_MOST_ERROR: Final = 0.75
_MOST_POINTS: Final = 0.05
_MOST_MICROSECONDS: Final = 20.0
_REPLICAS: Final = 8
_ENDPOINTS: Final = 32
_PICKS: Final = 2000
_AVERAGED: Final = 0.1


class Case(NamedTuple):
    """One replay."""

    name: str
    trace: str
    rate: float
    slow: int = 0
    """Engines that take twice as long."""


CASES: Final = (
    Case("mooncake_1.6", "mooncake", 1.6),
    Case("mooncake_2.2", "mooncake", 2.2),
    Case("azure_0.85", "azure", 10.9),
    Case("two_slow", "mooncake", 1.6, slow=2),
)


class _Recording(FirstTokens):
    """Records every request."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.requests: list[SentRequest] = []

    def sent(self, position: int, request: SentRequest) -> None:
        """Record it, and learn from it."""
        self.requests.append(request)
        super().sent(position, request)


class Recorder(Warmroute):
    """Our picks, with what they predict."""

    def __init__(self, engines: Sequence[Engine], plan: Plan, slow: int = 0) -> None:
        for engine in engines[:slow]:
            engine.model.slowdown = 2.0
        super().__init__(engines, plan)
        self.learned = _Recording(len(engines))

    def choose(self, number: int, request: TraceRequest, now: float) -> int:
        """Pick."""
        (director,) = self._directors
        self.now = now
        director.pools.follow()
        for pool in director.pools:
            pool.backlog.first_tokens = self.learned
        return super().choose(number, request, now)

    @property
    def cost(self) -> CostSettings:
        """The settings' constants."""
        return self.settings.ext_proc.pick.cost


def run(case: Case, trace: Trace, seed: int) -> tuple[Recorder, Outcome]:
    """Replay a case."""
    job = Job("warmroute", seed, _REPLICAS, case.rate)
    trace, config = job.arrivals(trace), job.engine(trace.block_tokens)
    made: list[Recorder] = []

    def policy(engines: Sequence[Engine]) -> Recorder:
        made.append(Recorder(engines, Plan(config, seed), case.slow))
        return made[0]

    outcome = replay(trace, policy, config, job.replicas)
    return made[0], outcome


class _Plain(NamedTuple):
    """The plain predictions, one number a request each."""

    roofline: NDArray[np.float64]
    last: NDArray[np.float64]
    average: NDArray[np.float64]


def plain(sent_requests: Sequence[SentRequest], outcome: Outcome, cost: CostSettings) -> _Plain:
    """Predict the same picks in the three plain ways."""
    size = len(sent_requests)
    result = _Plain(np.zeros(size), np.zeros(size), np.zeros(size))
    last, average = np.full(_REPLICAS, np.nan), np.full(_REPLICAS, np.nan)
    free_at, in_flight = np.full(_REPLICAS, -np.inf), np.zeros(_REPLICAS)
    events: list[tuple[float, int, bool]] = []
    for number, sent in enumerate(sent_requests):
        while events and events[0][0] <= sent.at:
            _, before, ended = heappop(events)
            row = outcome.engine[before]
            if ended:
                in_flight[row] -= 1
                if not in_flight[row]:
                    free_at[row] = -np.inf
                continue
            seconds = outcome.ttft[before]
            last[row] = seconds
            before_it = average[row] if np.isfinite(average[row]) else seconds
            average[row] = before_it + _AVERAGED * (seconds - before_it)
        row = outcome.engine[number]
        queue = max(free_at[row] - sent.at, 0.0)
        work = (sent.cold + cost.attention_per_token * sent.pairs) / cost.prefill_tokens_per_second
        busy = ARRIVES_AT if in_flight[row] else 0.0
        result.roofline[number] = queue + work + STEP_SECONDS * (1.0 + busy)
        share = min(1.0, sent.cold / STEP_TOKENS) if queue else 1.0
        free_at[row] = sent.at + queue + work + STEP_SECONDS * share
        in_flight[row] += 1
        for values, column in ((result.last, last), (result.average, average)):
            values[number] = column[row] if np.isfinite(column[row]) else result.roofline[number]
        heappush(events, (sent.at + outcome.ttft[number], number, False))
        heappush(events, (sent.at + outcome.e2e[number], number, True))
    return result


def figures(case: Case, trace: Trace, seed: int) -> dict[str, Any]:
    """Return the errors of all predictions on one case, in seconds."""
    recorder, outcome = run(case, trace, seed)
    sent_requests, real = recorder.learned.requests, outcome.ttft
    if len(sent_requests) != real.size:
        raise AssertionError(f"{len(sent_requests)} predictions of {real.size} requests")
    median = np.array([sent.expected.median for sent in sent_requests])
    p90 = np.array([sent.expected.p90 for sent in sent_requests])
    predicted = {"learned": median, **plain(sent_requests, outcome, recorder.cost)._asdict()}
    errors = {name: np.abs(values - real) for name, values in predicted.items()}
    return {
        "case": case.name,
        "requests": real.size,
        "ttft_p50": float(np.median(real)),
        **{f"{name}_error_p50": float(np.median(each)) for name, each in errors.items()},
        **{f"{name}_error_p90": float(np.quantile(each, 0.9)) for name, each in errors.items()},
        "covered_by_p50": float((real <= median).mean()),
        "covered_by_p90": float((real <= p90).mean()),
    }


def costs() -> dict[str, float]:
    """Return the microseconds of a pick's forecast and booking, and of a tick, for 32 endpoints."""
    world = World(_ENDPOINTS, 32)
    profile = world.profile()
    request = world.request(world.requests[0], world.director.reader.read(world.requests[0]))
    forecaster, learned = profile.forecaster, world.pool.backlog.first_tokens
    best_forecast = best_sent = float("inf")
    for _ in range(_PICKS):
        begun = time.perf_counter()
        forecast = forecaster.of(request)
        expected = forecaster.expected(forecast, 0)
        between = time.perf_counter()
        learned.sent(0, SentRequest(world.now, expected, 1000.0, 1e6))
        best_sent = min(best_sent, time.perf_counter() - between)
        best_forecast = min(best_forecast, between - begun)
    return {
        "forecast_us": round(best_forecast * 1e6, 2),
        "sent_us": round(best_sent * 1e6, 2),
        "tick_us": round(_tick_seconds() * 1e6, 2),
    }


def _tick_seconds() -> float:
    """Return the time of a tick in which every endpoint has begun an answer."""
    learned, alone, best = FirstTokens(_ENDPOINTS), np.ones(_ENDPOINTS, np.bool_), float("inf")
    rates, totals = np.full(_ENDPOINTS, 20_000.0), np.zeros((2, _ENDPOINTS))
    world = World(_ENDPOINTS, 32)
    request = world.request(world.requests[0], world.director.reader.read(world.requests[0]))
    forecaster = world.profile().forecaster
    expected = forecaster.expected(forecaster.of(request), 0)
    for number in range(100):
        for row in range(_ENDPOINTS):
            learned.sent(row, SentRequest(float(number), expected, 1000.0, 1e6))
        totals = np.add(totals, [[1.0], [0.1]])
        begun = time.perf_counter()
        learned.learn(totals, np.full(_ENDPOINTS, number + 0.5), alone, number + 0.5)
        learned.learn_slowness(rates, 2e-5)
        learned.coefficients(slice(None), rates, 2e-5)
        best = min(best, time.perf_counter() - begun)
    return best


def targets_of(runs: Sequence[dict[str, Any]], cost: dict[str, float]) -> Iterator[Target]:
    """Compare the learned predictions with the best of the others."""
    for each in runs:
        for quantile in ("p50", "p90"):
            others = min(each[f"{name}_error_{quantile}"] for name in _Plain._fields)
            ratio = report.ratio(each[f"learned_error_{quantile}"], others)
            yield report.at_most(f"{each['case']}_error_{quantile}_over_best", ratio, _MOST_ERROR)
        for share, name in ((0.5, "p50"), (0.9, "p90")):
            apart = abs(each[f"covered_by_{name}"] - share)
            yield report.at_most(f"{each['case']}_coverage_{name}_apart", apart, _MOST_POINTS)
    yield report.at_most("pick_us", cost["forecast_us"] + cost["sent_us"], _MOST_MICROSECONDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.cost_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mooncake", type=Path, default=TRACES / "mooncake_conversation.jsonl.xz")
    parser.add_argument("--azure", type=Path, default=TRACES / "azure_conversation.csv.xz")
    parser.add_argument("--most", type=int, default=6000, help="requests of each trace (default 6,000)")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES], help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(argv)
    runs = []
    for case in CASES:
        if not args.case or case.name in args.case:
            trace = read_trace(getattr(args, case.trace), case.trace, args.most)
            runs.append(figures(case, trace, args.seed))
            report.progress("  ".join(f"{name} {_shown(value)}" for name, value in runs[-1].items()))
    cost = costs()
    report.progress("  ".join(f"{name} {value}" for name, value in cost.items()))
    return report.finish({"runs": runs, "cost": cost}, list(targets_of(runs, cost)), as_json=args.json)


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(report.command(main))
