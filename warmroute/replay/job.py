"""One replay as a job of its own process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from warmroute.replay.figures import Limits, figures
from warmroute.replay.policies import POLICIES
from warmroute.replay.policies.policy import Plan
from warmroute.replay.run import replay
from warmroute.replay.trace import MOONCAKE_STEP_SECONDS
from warmroute.simulator.fits import timing
from warmroute.simulator.model import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warmroute.replay.figures import Figures
    from warmroute.replay.run import Outcome
    from warmroute.replay.trace import Trace

_COPY_SEED: Final = 1_000_003


@dataclass(frozen=True, slots=True)
class Job:
    """What is replayed."""

    policy: str
    seed: int = 1
    replicas: int = 8
    rate: float = 1.0
    """Times the trace's own."""
    copies: int = 1
    workers: int = 1
    gpu: str = "h100_sxm/tp4"
    kv_tokens: int = 700_000
    limits: Limits = field(default_factory=Limits)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of Warmroute's own picks: parts of a settings file."""


def outcome_of(trace: Trace, job: Job) -> Outcome:
    """Replay a job."""
    if job.copies > 1:
        trace = trace.copies(job.copies, job.seed * _COPY_SEED)
    jitter = MOONCAKE_STEP_SECONDS if trace.coarse else 0.0
    trace = trace.at_rate(job.rate, job.seed, jitter)
    config = EngineConfig(
        timing=timing(job.gpu),
        num_blocks=job.kv_tokens // trace.block_tokens,
        block_tokens=trace.block_tokens,
        report_tokens=False,
    )
    plan = Plan(trace.block_tokens, config, job.seed, settings=job.settings, workers=job.workers)
    return replay(trace, lambda engines: POLICIES[job.policy](engines, plan), config, job.replicas)


def run_job(trace: Trace, job: Job) -> Figures:
    """Replay a job and compute its figures."""
    return figures(outcome_of(trace, job), job.limits)
