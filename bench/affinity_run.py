"""One run of bench.affinity: a workload on a fresh deployment, and what client and engines saw of it."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.prompts import prompts
from testing.stream_server import running_server, url_of
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.cpu import CpuMeter
from warmroute.demo.load import LoadRun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.prompts import WorkloadName
    from warmroute.demo.stats import Outcome
    from warmroute.simulator.workload import Turn

ALONE: Final = "least_request"
ENGINE: Final = EngineSettings(
    blocks=43_750,  # nothing is evicted: what is missed is missed by the pick
    max_num_seqs=64,
)


@dataclass(frozen=True, slots=True)
class Drive:
    """How a workload is driven. The host must have time to spare: then the engines' clock is what counts."""

    rate: float
    """Requests a second, of an engine with `speed_up` 1."""
    speed_up: float = 1.0
    repeats: int = 1


DRIVES: Final[dict[WorkloadName, Drive]] = {
    "multi_turn": Drive(16.0),
    "shared_system_prompt": Drive(22.0),  # more than one engine can answer, all of it warm
    # Tails of times are compared: of slow engines, so that they are theirs, and of many requests.
    "no_reuse": Drive(15.0, speed_up=0.5, repeats=2),
}
HOT_SPEED_UP: Final = 4.0
"""Of the engines that one system prompt meets at several rates: from idle to busy."""
HOT_SECONDS: Final = 8.0
OVERRIDES: Final = {
    "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.4},
    "limits": {"drain_seconds": 0.5},
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. `workers` is None for Envoy alone."""

    workload: WorkloadName
    workers: int | None
    shared: bool = False
    rate: float | None = None
    """Requests a second, on fast engines; None: the workload's usual drive."""

    @property
    def drive(self) -> Drive:
        """How this one is driven."""
        usual = DRIVES[self.workload]
        return usual if self.rate is None else Drive(self.rate / HOT_SPEED_UP, HOT_SPEED_UP)


@dataclass(frozen=True, slots=True)
class Run:
    """What client and engines saw of one run."""

    turns: Sequence[Turn]
    outcomes: Sequence[Outcome]
    engine_counts: Sequence[Mapping[str, int]]
    """What each engine counted."""
    cpu_used: float | None


async def one_run(plan: Plan, *, engines: int, seconds: float, load: float, seed: int) -> Run:
    """Run one workload once, `seconds` long on engines of speed 1, at `load` times its usual rate.

    Raises:
        BenchError: a part did not start.
    """
    drive = plan.drive
    turns = prompts(
        plan.workload,
        seed=seed,
        seconds=seconds / drive.speed_up if plan.rate is None else HOT_SECONDS,
        rate=drive.rate * drive.speed_up * load,
    )
    async with contextlib.AsyncExitStack() as stack:
        url = ""
        if plan.shared:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="warmroute-")))
            await stack.enter_async_context(running_server(directory))
            url = url_of(directory)
        cluster = await stack.enter_async_context(running_cluster(deployment(plan, engines, url)))
        meter = CpuMeter()
        outcomes = await LoadRun(cluster.address, ENGINE.model).run(turns)
        used = meter.used_ratio()
        engine_counts = [await cluster.get_json(address, "/admin/seen") or {} for address in cluster.engines]
    return Run(turns, outcomes, engine_counts, used)


def deployment(plan: Plan, engines: int, url: str = "") -> ClusterSettings:
    """Return what a run needs; `url` is the shared stream's server."""
    engine = replace(ENGINE, speed_up=plan.drive.speed_up)
    if plan.workers is None:
        return ClusterSettings("envoy", engines, engine, OVERRIDES, alone=ALONE)
    overrides = {**OVERRIDES, "ext_proc": {"workers": plan.workers, "shared": {"url": url}}}
    return ClusterSettings("apart", engines, engine, overrides)
