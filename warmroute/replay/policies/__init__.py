"""Every policy by its name. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.replay.policies import perfect, plain, routers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan, Policy


def _ours(engines: Sequence[Engine], plan: Plan) -> Policy:
    # Loaded by the processes that need it: it brings both services' cores.
    from warmroute.replay.policies.warmroute import Warmroute  # noqa: PLC0415

    return Warmroute(engines, plan)


POLICIES: Final[dict[str, Callable[[Sequence[Engine], Plan], Policy]]] = {
    "round_robin": plain.RoundRobin,
    "random": plain.RandomChoice,
    "least_request": plain.LeastRequest,
    "power_of_two": plain.PowerOfTwo,
    "sglang": routers.CacheAware,
    "smg": routers.SpillGate,
    "dynamo": routers.Dynamo,
    "aibrix": routers.AIBrix,
    "llm_d": routers.LlmD,
    "cold_price": perfect.ColdPrice,
    "greedy_perfect": perfect.Greedy,
    "warmroute": _ours,
}
