"""The numbers of the demo, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from warmroute.demo.cluster import EngineSettings
from warmroute.demo.excerpt import SHORTER, excerpt, turns
from warmroute.simulator.workload import Span, Turn, WorkloadSettings, workload

if TYPE_CHECKING:
    from collections.abc import Mapping

EngineKind = Literal["simulator", "llama"]
TtftQuantile = Literal["ttft_p50", "ttft_p90"]

SPEED_UP: Final = 2.0
"""Of the simulated engines: two small cores still have time to spare, so the engines set the times."""
KV_TOKENS: Final = 700_000 // SHORTER
"""An H100 TP4 replica's KV cache, as much smaller as the prompts."""
BLOCK_TOKENS: Final = 16
KNEE_PER_ENGINE: Final = 8.15
"""Requests a second at which round robin's TTFT p90 is three times that of an idle fleet.

`python -m bench.demo_knee` measures it.
"""
LOAD: Final = 0.834
"""Of the knee: where operators run."""


@dataclass(frozen=True)
class Scenario:
    """A workload, the engines that it runs on, and the settings of Warmroute that differ from defaults."""

    engines: int
    engine: EngineSettings
    seconds: float
    turns: tuple[Turn, ...]
    workload: str
    """In words."""
    load: str
    """In words."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    judged_by: TtftQuantile = "ttft_p90"


def scenario(
    kind: EngineKind, *, seconds: float, engines: int | None, seed: int, rate: float | None
) -> Scenario:
    """Return the demo's scenario on simulated engines, or on llama.cpp."""
    make = _llama if kind == "llama" else _simulated
    return make(seconds, engines, seed, rate)


def _simulated(seconds: float, engines: int | None, seed: int, rate: float | None) -> Scenario:
    """Build a chat of a real trace on engines that are timed like Llama-3.1-70B on four H100s."""
    engines = engines or 4
    knee = KNEE_PER_ENGINE * engines
    rate = rate or LOAD * knee
    overrides = {
        "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.4},
        # Time runs faster in the engines, so Warmroute watches faster.
        "weights": {"stabiliser": {"smoothing_seconds": 3.0 / SPEED_UP}},
        "limits": {"drain_seconds": 0.5},
    }
    engine = EngineSettings(speed_up=SPEED_UP, blocks=KV_TOKENS // BLOCK_TOKENS, block_tokens=BLOCK_TOKENS)
    return Scenario(
        engines,
        engine,
        seconds,
        turns(excerpt(rate, seconds, seed)),
        "requests from conversations of a real trace (Mooncake)",
        f"{rate:.3g} requests a second, {rate / knee:.0%} of round robin's knee",
        overrides,
    )


def _llama(seconds: float, engines: int | None, seed: int, rate: float | None) -> Scenario:
    """Build a small chat for real llama.cpp with a model of 135 M parameters on a host of two cores.

    A cold prompt of 250 tokens takes such an engine a second or two, a warm one 50 ms. It keeps one
    prefix in each of its two slots, so two engines hold all four tenants' prefixes, but only when each
    tenant stays where it is. A short run has so few requests that each tenant's first, always cold, sets
    p99: the median tells more.
    """
    rate = rate or 1.5
    chat = WorkloadSettings(
        seed=seed,
        duration_seconds=seconds,
        rate_per_second=rate,
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
    return Scenario(
        engines or 2,
        EngineSettings(kind="llama"),
        seconds,
        workload(chat),
        "requests of a small chat of four tenants",
        f"{rate:.3g} requests a second",
        overrides,
        "ttft_p50",
    )
