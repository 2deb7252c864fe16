"""The strategies by name: a new one is a file beside `headroom.py` and a line below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from xds_server.weights import balanced, headroom, p99, predictive

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.load import Load
    from fleet.settings import WeightSettings
    from xds_server.weights.columns import Columns, FloatArray, Peers


@dataclass(frozen=True, slots=True)
class Strategy:
    """How loads become scores, and how a score is explained."""

    scores: Callable[[Columns, WeightSettings], FloatArray]
    """One score an endpoint; shares of the traffic go in proportion. All unknown gives equal scores."""
    reason: Callable[[Load, WeightSettings, Peers], str]
    """Names the signal that decides an endpoint's score, in a few words; `unknown` without any."""


STRATEGIES: Final[dict[str, Strategy]] = {
    "headroom": Strategy(
        lambda columns, settings: headroom.scores(columns, settings.headroom),
        lambda load, settings, peers: headroom.reason(load, settings.headroom, peers),
    ),
    "p99": Strategy(
        lambda columns, settings: p99.scores(columns, settings.p99),
        lambda load, settings, _: p99.reason(load, settings.p99),
    ),
    "predictive": Strategy(
        lambda columns, settings: predictive.scores(columns, settings.predictive),
        lambda load, settings, _: predictive.reason(load, settings.predictive),
    ),
    "balanced": Strategy(
        lambda columns, settings: balanced.scores(columns, settings.balanced),
        lambda load, settings, _: balanced.reason(load, settings.balanced),
    ),
}
"""The values of `weights.strategy`."""
