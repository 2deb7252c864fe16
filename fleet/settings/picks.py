"""How an endpoint is chosen for a request."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleet.settings.strict import NotNegative, Positive, Share, Strict


class CostSettings(Strict):
    """Constants of the `cost` pick: queue ahead + cold_price x cold prefill, in seconds."""

    cold_price: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Cold work counts this many times its own time, because it delays those who come later."""
    prefill_tokens_per_second: Positive = 20_000.0
    """Used where the engine's own rate is unknown."""
    bytes_per_token: Positive = 4.0
    in_flight_seconds: NotNegative = 0.01
    """What each request in flight adds to the wait."""
    memory_pressure_from: Share = 0.9
    """KV memory in use above this adds up to `memory_pressure_seconds`."""
    memory_pressure_seconds: NotNegative = 1.0


class PickSettings(Strict):
    """How an endpoint is chosen for a request."""

    strategy: Literal["cost"] = "cost"
    cost: CostSettings = CostSettings()
    block_bytes: Annotated[int, Field(ge=16, le=65_536)] = 256
    fallbacks: Annotated[int, Field(ge=0, le=16)] = 2
    """Endpoints named after the first, for retries."""
    cold_without_load: Literal["weights", "rendezvous"] = "weights"
    """Who decides when nothing is warm and no load is known."""
