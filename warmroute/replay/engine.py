"""A simulated replica of a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.simulator.metrics import EngineMetrics
from warmroute.simulator.model import EngineModel

if TYPE_CHECKING:
    from warmroute.simulator.model import EngineConfig


class Engine:
    """A simulated replica with its metrics page."""

    __slots__ = ("busy_seconds", "metrics", "model", "wake")

    def __init__(self, config: EngineConfig) -> None:
        self.metrics = EngineMetrics(config.limit_tokens)
        self.busy_seconds = 0.0
        self.model = EngineModel(config, self._on_step)
        self.wake = 0
        """Number of the newest timer: older ones are void."""

    def _on_step(self, seconds: float, prefill_tokens: int, decodes: int) -> None:
        self.busy_seconds += seconds
        self.metrics.on_step(seconds, prefill_tokens, decodes)
