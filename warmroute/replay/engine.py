"""A simulated replica of a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.replay.fault import SLOW_FACTOR, FaultKind
from warmroute.simulator.metrics import EngineMetrics
from warmroute.simulator.model import EngineModel

if TYPE_CHECKING:
    from warmroute.replay.fault import Fault
    from warmroute.simulator.model import EngineConfig, Steps


class Engine:
    """A simulated replica with its metrics page."""

    __slots__ = ("_config", "busy_seconds", "fault", "metrics", "model", "wake")

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self.busy_seconds = 0.0
        self.wake = 0
        """Number of the newest timer: older ones are void."""
        self.fault: FaultKind | None = None
        self._start()

    @property
    def refuses(self) -> bool:
        """Whether its port refuses connections."""
        return self.fault is FaultKind.GONE

    @property
    def readable(self) -> bool:
        """Whether its metrics page answers."""
        return self.fault not in (FaultKind.GONE, FaultKind.FROZEN)

    def begin(self, fault: Fault) -> None:
        """Fail from now on. What is open at an engine that is gone is the caller's to end."""
        self.fault = fault.kind
        if fault.kind is FaultKind.SLOW:
            self.model.slowdown = SLOW_FACTOR
        elif fault.kind is FaultKind.FROZEN:
            self.model.freeze(fault.at, fault.until)

    def end(self) -> None:
        """Recover: an engine that was gone starts with an empty cache and new counters."""
        if self.refuses:
            self._start()
        self.fault, self.model.slowdown = None, 1.0

    def _start(self) -> None:
        self.metrics = EngineMetrics(self._config.limit_tokens)
        self.model = EngineModel(self._config, self._on_steps)

    def _on_steps(self, steps: Steps) -> None:
        self.busy_seconds += steps.seconds
        self.metrics.on_steps(steps)
