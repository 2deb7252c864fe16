"""How an endpoint is chosen for a request."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fleet.settings.strict import NotNegative, Positive, Seconds, Share, Strict


class CostSettings(Strict):
    """Constants of the `cost` pick: queue ahead + cold_price x cold prefill, in seconds."""

    cold_price: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Cold work counts this many times its own time, because it delays those who come later."""
    prefill_tokens_per_second: Positive = 20_000.0
    """Used where the engine's own rate is unknown."""
    bytes_per_token: Positive = 4.0
    in_flight_seconds: NotNegative = 0.01
    """What each request in flight adds to the wait."""
    memory_pressure_from: Share = 0.85
    """Memory in use above this adds to the cost: the KV cache's where it is told, else the GPU's."""
    memory_pressure_full: Share = 0.92
    """From here on it adds `memory_pressure_seconds`: the engine is about to preempt or to fail."""
    memory_pressure_seconds: NotNegative = 3.0
    distrust_seconds: NotNegative = 2.0
    """What an endpoint whose answers are all bad would cost more; in proportion to trust and errors."""
    slow_from_ratio: Annotated[float, Field(ge=1, le=1000)] = 2.0
    """An endpoint that takes so many times the pool's usual time for our requests costs what is beyond it."""
    slow_most_seconds: NotNegative = 30.0
    """At most so much; 0 switches it off."""

    @model_validator(mode="after")
    def _pressure_rises(self) -> Self:
        if self.memory_pressure_full < self.memory_pressure_from:
            raise ValueError("allowed: memory_pressure_full at least memory_pressure_from")
        return self


class PickSettings(Strict):
    """How an endpoint is chosen for a request."""

    strategy: Literal["cost"] = "cost"
    cost: CostSettings = CostSettings()
    block_bytes: Annotated[int, Field(ge=16, le=65_536)] = 256
    fallbacks: Annotated[int, Field(ge=0, le=16)] = 2
    """Endpoints named after the first, for retries."""
    other_domain_seconds: NotNegative = 1.0
    """A fallback from another fault domain goes before cheaper ones, up to so much above the cheapest."""
    trial_interval_seconds: Seconds = 0.7
    """An endpoint that is not trusted gets at most one request in this time, of each worker."""
    cold_without_load: Literal["weights", "rendezvous"] = "weights"
    """Who decides when nothing is warm and no load is known."""
