"""The numbers of the demo, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from warmroute.demo.cluster import EngineSettings
from warmroute.simulator.workload import Span, WorkloadSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

EngineKind = Literal["simulator", "llama"]
TtftQuantile = Literal["ttft_p50", "ttft_p99"]


@dataclass(frozen=True)
class Scenario:
    """A workload, the engines that it runs on, and the settings of Warmroute that differ from defaults."""

    engines: int
    engine: EngineSettings
    workload: WorkloadSettings
    overrides: Mapping[str, Any] = field(default_factory=dict)
    judged_by: TtftQuantile = "ttft_p99"


def scenario(
    kind: EngineKind, *, seconds: float, engines: int | None, seed: int, rate: float | None
) -> Scenario:
    """Return the demo's scenario on simulated engines, or on llama.cpp."""
    make = _llama if kind == "llama" else _simulated
    return make(seconds, engines, seed, rate)


def _simulated(seconds: float, engines: int | None, seed: int, rate: float | None) -> Scenario:
    """Build a chat of several tenants on engines that are timed like Llama-3.1-70B on four H100s.

    The KV cache is scaled down with the number of tenants: what matters to routing is how many tenants'
    prefixes one engine holds (some, not all), as in a fleet where hundreds of tenants meet a full-sized
    cache.
    """
    speed_up = 2.0  # two small cores still have time to spare: the engines' clock is what counts
    blocks, block_tokens = 2048, 16  # 32,768 tokens: the prefixes of seven of the 24 tenants
    workload = WorkloadSettings(
        seed=seed,
        duration_seconds=seconds,
        rate_per_second=28.0 if rate is None else rate,  # where round robin begins to queue
        tenants=24,
        tenant_skew=0.5,  # the busiest tenant sends five times as much as the least busy one
        system_prompt_tokens=Span(3300, 5800),  # as long as those of public coding agents
        user_tokens=Span(20, 120),
        answer_tokens=Span(20, 80),
        turns=Span(2, 8),
        think_seconds=4.0 / speed_up,
        max_tokens=Span(16, 64),
    )
    overrides = {
        "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.4},
        # Time runs faster in the engines, so Warmroute watches faster.
        "weights": {"stabiliser": {"smoothing_seconds": 3.0 / speed_up}},
        "limits": {"drain_seconds": 0.5},
    }
    engine = EngineSettings(speed_up=speed_up, blocks=blocks, block_tokens=block_tokens, max_num_seqs=64)
    return Scenario(engines or 4, engine, workload, overrides)


def _llama(seconds: float, engines: int | None, seed: int, rate: float | None) -> Scenario:
    """Build a small chat for real llama.cpp with a model of 135 M parameters on a host of two cores.

    A cold prompt of 250 tokens takes such an engine a second or two, a warm one 50 ms. It keeps one
    prefix in each of its two slots, so two engines hold all four tenants' prefixes, but only when each
    tenant stays where it is. A short run has so few requests that each tenant's first, always cold, sets
    p99: the median tells more.
    """
    workload = WorkloadSettings(
        seed=seed,
        duration_seconds=seconds,
        rate_per_second=1.5 if rate is None else rate,
        tenants=4,
        tenant_skew=0.0,
        system_prompt_tokens=Span(180, 240),
        user_tokens=Span(8, 16),
        answer_tokens=Span(4, 8),
        turns=Span(1, 3),
        think_seconds=4.0,
        max_tokens=Span(4, 8),
    )
    overrides = {
        "ext_proc": {
            "pick": {
                "block_bytes": 64,
                "cost": {"prefill_tokens_per_second": 150.0, "in_flight_seconds": 0.5},
            }
        },
        "limits": {"index_blocks_per_endpoint": 2 * 320 * 4 // 64, "drain_seconds": 0.5},
    }
    return Scenario(engines or 2, EngineSettings(kind="llama"), workload, overrides, "ttft_p50")
