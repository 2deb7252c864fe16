"""What the demo's engines carry by each policy, in virtual time: the load of the demo is a share of that.

The knee of a policy is the highest rate at which its TTFT p90 stays within three times that of an idle fleet
under the same policy. Each rate is the mean of some seeds, each of about a thousand requests.
"""

from __future__ import annotations

import argparse
import sys
from statistics import fmean
from typing import TYPE_CHECKING, Final

from warmroute.demo import report
from warmroute.demo.excerpt import excerpt
from warmroute.demo.scenario import KNEE_PER_ENGINE, KV_TOKENS, LOAD, SPEED_UP
from warmroute.replay.figures import figures
from warmroute.replay.job import Job, replay_job
from warmroute.replay.sweep import highest

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPARED: Final = ("round_robin", "power_of_two", "least_request", "warmroute")
"""`power_of_two` is Envoy's LEAST_REQUEST as the demo runs it; `least_request` scans all engines."""
ENGINES: Final = 4
FACTOR: Final = 3.0
PRECISION: Final = 0.05
REQUESTS: Final = 1_000
IDLE_RATE: Final = 1.0
FIRST_RATE: Final = 30.0
GAIN: Final = 1.3
"""The least factor wanted between the knees of Warmroute and of round robin."""


def ttft_p90(policy: str, rate: float, seed: int, requests: int = REQUESTS) -> float:
    """Replay the demo's requests at `rate` a second; return the 90th percentile in seconds."""
    trace = excerpt(rate, requests / rate, seed)
    job = Job(policy, seed, ENGINES, speed_up=SPEED_UP, kv_tokens=KV_TOKENS, jitter_seconds=0.0)
    return figures(replay_job(trace, job), job.limits).ttft_p90


def knee(policy: str, seeds: Sequence[int]) -> float:
    """Return the knee in requests a second, within `PRECISION`."""
    limit = FACTOR * ttft_p90(policy, IDLE_RATE, seeds[0], REQUESTS // 3)
    return highest(
        lambda rate: fmean(ttft_p90(policy, rate, seed) for seed in seeds) <= limit, FIRST_RATE, PRECISION
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the knees and the demo's load next to each."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo_knee", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="replays of each rate (default 3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(argv)
    rate = LOAD * KNEE_PER_ENGINE * ENGINES
    knees = {policy: knee(policy, range(1, args.seeds + 1)) for policy in COMPARED}
    for policy, most in knees.items():
        report.progress(
            f"{policy:14} knee {most:5.1f} requests a second; the demo's load is {rate / most:.0%} of it"
        )
    loads = {policy: rate / most for policy, most in knees.items()}
    targets = [
        report.at_least("load_of_round_robin_low", loads["round_robin"], LOAD - 0.05),
        report.at_most("load_of_round_robin_high", loads["round_robin"], LOAD + 0.05),
        report.at_least("warmroute_knee_over_round_robin", knees["warmroute"] / knees["round_robin"], GAIN),
    ]
    result = {"rate": rate, "knees": knees, "loads": loads}
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
