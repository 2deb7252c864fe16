"""One replay as a job of a pool of processes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from warmroute.replay.fault import NO_CANCELS
from warmroute.replay.figures import Limits, figures
from warmroute.replay.policies import POLICIES
from warmroute.replay.policies.policy import Plan
from warmroute.replay.run import replay
from warmroute.replay.trace import MOONCAKE_STEP_SECONDS, TraceError
from warmroute.simulator.fits import DEFAULT_FIT, timing
from warmroute.simulator.model import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.sharedctypes import Synchronized

    from warmroute.replay.fault import Cancels, Fault
    from warmroute.replay.figures import Figures
    from warmroute.replay.run import Outcome
    from warmroute.replay.trace import Trace

_COPY_SEED: Final = 1_000_003
"""Copies of one seed begin elsewhere than those of the next."""
_COUNT_STEP: Final = 64
MAX_REQUESTS: Final = 2_000_000
"""Of all copies of a trace: some gigabytes."""


@dataclass(frozen=True, slots=True)
class Job:
    """Parameters of one replay."""

    policy: str
    seed: int = 1
    replicas: int = 8
    rate: float = 1.0
    """Multiple of the trace's own."""
    copies: int = 1
    """Copies of the trace at once; they share no prefix."""
    workers: int = 1
    """Of ext_proc."""
    gpu: str = DEFAULT_FIT
    """Name of the engines' timing."""
    speed_up: float = 1.0
    """How many times as fast the engines are."""
    kv_tokens: int = 700_000
    """Of each engine's KV cache."""
    limits: Limits = field(default_factory=Limits)
    jitter_seconds: float | None = None
    """Requests are up to so late, in the trace's time; None: 3 s where its times are coarse, otherwise 0."""
    scrape_seconds: float | None = None
    """Between two readings of an engine; None: the policy's own."""
    signal_delay_seconds: float = 0.0
    """From a reading to its effect on picks."""
    faults: tuple[Fault, ...] = ()
    cancels: Cancels = NO_CANCELS

    def arrivals(self, trace: Trace) -> Trace:
        """Return the trace with the job's copies, rate and jitter."""
        if self.copies > 1:
            trace = trace.copies(self.copies, self.seed * _COPY_SEED)
        jitter = self.jitter_seconds
        if jitter is None:
            jitter = MOONCAKE_STEP_SECONDS if trace.coarse else 0.0
        return trace.at_rate(self.rate, self.seed, jitter).impatient(*self.cancels, self.seed)

    def engine(self, block_tokens: int) -> EngineConfig:
        """Return what each replica is, for a trace with blocks of this size."""
        return EngineConfig(
            timing=timing(self.gpu).faster(self.speed_up),
            num_blocks=max(1, self.kv_tokens // block_tokens),
            block_tokens=block_tokens,
            report_tokens=False,
        )


def replay_job(trace: Trace, job: Job, on_request: Callable[[int], None] = lambda _count: None) -> Outcome:
    """Replay a trace as a job says; `check_fits` finds requests that are too long before."""
    trace = job.arrivals(trace)
    config = job.engine(trace.block_tokens)
    plan = Plan(config, job.seed, job.workers, job.scrape_seconds, job.signal_delay_seconds, trace.requests)
    policy = POLICIES[job.policy]
    return replay(trace, lambda engines: policy(engines, plan), config, job.replicas, on_request, job.faults)


def check_copies(trace: Trace, copies: int) -> None:
    """Check the number of requests of all copies.

    Raises:
        TraceError: they are too many.
    """
    requests = len(trace.requests)
    if copies > 1 and copies * requests > MAX_REQUESTS:
        allowed = f"{max(1, MAX_REQUESTS // requests):,}, for {MAX_REQUESTS:,} requests in all"
        raise TraceError(f"--copies is {copies:,}, of {requests:,} requests; allowed: up to {allowed}")


def check_fits(trace: Trace, job: Job) -> None:
    """Check every request against the engine's limits.

    Raises:
        TraceError: one is too long.
    """
    limit = min(job.kv_tokens // trace.block_tokens * trace.block_tokens, EngineConfig().max_model_tokens)
    for request in trace.requests:
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > limit:
            raise TraceError(
                f"the request at {request.at:g} s has {tokens} tokens; allowed: {limit}, the smaller of"
                f" --kv-tokens and the model's {EngineConfig().max_model_tokens}"
            )


_trace: Trace | None = None
_requests: Synchronized[int] | None = None


def begin_process(trace: Trace, requests: Synchronized[int]) -> None:
    """Take what all jobs of a process share: the trace, and the count of requests for the progress bar."""
    global _trace, _requests
    logging.disable()  # What both services log of simulated engines.
    _trace, _requests = trace, requests


def run_job(job: Job) -> Figures:
    """Replay a job in a process that `begin_process` has prepared."""
    return figures(run_whole_job(job), job.limits)


def run_whole_job(job: Job) -> Outcome:
    """As `run_job`, for all results instead of figures."""
    return replay_job(process_trace(), job, counting())


def process_trace() -> Trace:
    """Return the trace of this process."""
    assert _trace is not None, "begin_process has prepared it"
    return _trace


def counting() -> Callable[[int], None]:
    """Return a function that adds to the count of requests what a replay has sent."""
    counter, counted = _requests, 0

    def count(sent: int) -> None:
        nonlocal counted
        if sent < counted:
            counted = 0  # The next replay.
        if counter is not None and sent - counted >= _COUNT_STEP:
            with counter.get_lock():
                counter.value += sent - counted
            counted = sent

    return count
