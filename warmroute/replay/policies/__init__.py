"""Every policy by its name. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.replay.policies import (
    aibrix,
    dualmap,
    dynamo,
    llm_d,
    lmetric,
    lodestar,
    look_ahead,
    perfect,
    plain,
    preble,
    session_hash,
    sglang,
    smg,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan, Policy


def _ours(engines: Sequence[Engine], plan: Plan) -> Policy:
    # Loaded by the processes that need it: it brings both services' cores.
    from warmroute.replay.policies.warmroute import Warmroute  # noqa: PLC0415

    return Warmroute(engines, plan)


def _weights(strategy: str) -> Callable[[Sequence[Engine], Plan], Policy]:
    def make(engines: Sequence[Engine], plan: Plan) -> Policy:
        from warmroute.replay.policies.weights import Weights  # noqa: PLC0415 - as above

        return Weights(engines, plan, strategy)

    return make


POLICIES: Final[dict[str, Callable[[Sequence[Engine], Plan], Policy]]] = {
    "round_robin": plain.RoundRobin,
    "random": plain.RandomChoice,
    "least_request": plain.LeastRequest,
    "power_of_two": plain.PowerOfTwo,
    "session_hash": session_hash.SessionHash,
    "sglang": sglang.CacheAware,
    "smg": smg.Smg,
    "dynamo": dynamo.Dynamo,
    "aibrix": aibrix.AIBrix,
    "llm_d": llm_d.LlmD,
    "llm_d_sticky": llm_d.StickyUntilSaturated,
    "lmetric": lmetric.LMetric,
    "lmetric_queued": lmetric.LMetricQueued,
    "dualmap": dualmap.DualMap,
    "preble": preble.Preble,
    "lodestar": lodestar.Lodestar,
    **{strategy: _weights(strategy) for strategy in ("headroom", "p99", "predictive", "balanced")},
    "cold_price": perfect.ColdPrice,
    "greedy_perfect": perfect.Greedy,
    "look_ahead": look_ahead.LookAhead,
    "warmroute": _ours,
}
REFERENCES: Final = frozenset({"cold_price", "greedy_perfect", "look_ahead"})
"""They know what no router can: not to be beaten, but to come near to."""
