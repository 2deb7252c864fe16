"""The strategies by name. CONTRIBUTING.md lists the steps to a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from xds_server.weights import balanced, headroom, p99, predictive

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.settings import WeightSettings
    from xds_server.weights.columns import Columns, FloatArray, Peers


@dataclass(frozen=True, slots=True)
class Strategy:
    """How signals become scores, and how a score is explained."""

    scores: Callable[[Columns, WeightSettings], FloatArray]
    """One score an endpoint; shares of the traffic go in proportion. All unknown gives equal scores."""
    reason: Callable[[Columns, int, WeightSettings, Peers], str]
    """Names the signal that decides the score of the endpoint at a row; `unknown` without any."""
    signals: tuple[str, ...]
    """The signals of its formula; `memory` is the memory that `weights.memory` chooses."""


_WAITING: Final = ("queue_depth", "running", "in_flight")
"""The signals behind `Columns.waiting`."""
_FORECASTS: Final = (
    "queue_depth_forecast_p90",
    "running_forecast_p90",
    "memory_used_ratio_forecast_p90",
)
_LATENCY: Final = ("latency_p50_seconds", "latency_p99_seconds")

STRATEGIES: Final[dict[str, Strategy]] = {
    "headroom": Strategy(
        lambda columns, settings: headroom.scores(columns, settings.headroom),
        lambda columns, row, settings, peers: headroom.reason(columns, row, settings.headroom, peers),
        ("memory", *_WAITING, *_LATENCY),
    ),
    "p99": Strategy(
        lambda columns, settings: p99.scores(columns, settings.p99),
        lambda columns, row, settings, _: p99.reason(columns, row, settings.p99),
        ("latency_p99_seconds",),
    ),
    "predictive": Strategy(
        lambda columns, settings: predictive.scores(columns, settings.predictive),
        lambda columns, row, settings, _: predictive.reason(columns, row, settings.predictive),
        ("memory", *_WAITING, *_LATENCY, *_FORECASTS),
    ),
    "balanced": Strategy(
        lambda columns, settings: balanced.scores(columns, settings.balanced),
        lambda columns, row, settings, _: balanced.reason(columns, row, settings.balanced),
        ("memory", "latency_p99_seconds", "prefix_hit_ratio"),
    ),
}
"""The values of `weights.strategy`."""
