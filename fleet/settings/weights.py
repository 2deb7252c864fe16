"""From signals to weights: the strategies, their bounds, and the stabiliser."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fleet.settings.strict import NotNegative, Positive, Seconds, Share, Strict
from fleet.settings.topology import TopologySettings

Memory = Literal["kv", "gpu", "highest"]


class HeadroomSettings(Strict):
    """Constants of `headroom`: 1 / (memory + queue + latency), each normalised to [0, 1]."""

    memory: NotNegative = 0.4
    queue: NotNegative = 0.3
    latency: NotNegative = 0.3
    safe_queue: Positive = 32.0
    reference_latency_seconds: Seconds = 2.0
    slow_ratio: Annotated[float, Field(ge=1, le=1000)] | None = 3.0
    """Multiple of the pool's usual latency that also counts as full latency; None: only the reference
    counts."""

    @model_validator(mode="after")
    def _something_counts(self) -> Self:
        if self.memory + self.queue + self.latency <= 0:
            raise ValueError("allowed: at least one of memory, queue and latency above 0")
        return self


class StabiliserSettings(Strict):
    """Keeps weights from following noise."""

    smoothing_seconds: NotNegative = 3.0
    """Time constant of the exponential smoothing; 0 switches it off. Memory leaves the silent zone with
    twice this time constant."""
    dead_band_ratio: Share = 0.1
    """A weight changes only beyond this relative change. Weights lie on a grid half as wide."""
    minimum_interval_seconds: NotNegative = 1.0
    """Between two weight updates; changes of membership do not wait."""
    floor_share: Share = 0.05
    """Every endpoint keeps this share of the equal share, so that it can recover."""
    rise_ratio_per_second: Annotated[float, Field(gt=1, le=1e12)] = 3.0
    """A share grows at most by this factor in a second. It may fall faster, because overload is urgent."""
    ratio_cap: Annotated[float, Field(ge=1, le=10_000)] = 20.0
    """Loads give the best endpoint at most this multiple of the worst one's share."""
    most_fair_ratio: Annotated[float, Field(ge=1, le=10_000)] = 2.0
    """Loads give no endpoint more than this multiple of the equal share: the others' traffic must not all go
    to the endpoint that looks idle."""
    neutral_seconds: NotNegative = 60.0
    """For this long, a new endpoint weighs no more than the mean: an empty engine has the best signals."""
    max_unhealthy_share: Share = 0.5
    """At most this share of a pool is marked unhealthy."""


class P99Settings(Strict):
    """Constants of `p99`: full score up to tolerance x baseline, then factor x baseline / p99."""

    baseline_seconds: Seconds | None = None
    """None: the median of the pool."""
    tolerance_ratio: Annotated[float, Field(ge=1, le=100)] = 1.1
    factor: Positive = 1.5
    least_score: Annotated[float, Field(gt=0, le=100)] = 10.0


class PredictiveSettings(Strict):
    """Constants of `predictive`: (1 - memory) x (1 - min(predicted latency / reference, most share))."""

    reference_seconds: Seconds = 5.0
    most_latency_share: Annotated[float, Field(ge=0, lt=1)] = 0.99


class ForecastSettings(Strict):
    """Forecasts of queue, running requests and memory, for `predictive` and for admission."""

    horizon_seconds: Annotated[float, Field(ge=0, le=30)] = 2.0
    """How far ahead. A weight of now is in use until the next update, about so long; 0: no forecasts."""


class BalancedSettings(Strict):
    """Constants of `balanced`: a softmax over latency, free memory and closeness."""

    temperature: Annotated[float, Field(ge=0.01, le=1000)] = 0.2
    latency: NotNegative = 0.4
    free_memory: NotNegative = 0.35
    closeness: NotNegative = 0.25
    reference_latency_seconds: Seconds = 2.0
    """The P99 from which latency scores 0."""


class SilentZoneSettings(Strict):
    """Memory in use at which an engine is about to fail while its probes still succeed."""

    from_ratio: Share = 0.85
    """From this share on, the weight falls steeply, down to `least_factor` at `full_ratio`."""
    full_ratio: Share = 0.92
    least_factor: Share = 0.05

    @model_validator(mode="after")
    def _begins_before_it_is_full(self) -> Self:
        if self.from_ratio >= self.full_ratio:
            raise ValueError("allowed: from_ratio below full_ratio")
        return self


class FaultSettings(Strict):
    """Effect of a GPU's faults on its endpoints; docs/faults.md has the classes."""

    transient_seconds: Seconds = 30.0
    isolated_seconds: Seconds = 300.0
    limited_factor: Share = 0.5
    """Factor of the weight while a GPU has transient faults."""


class WeightSettings(Strict):
    """How signals become weights."""

    strategy: Literal["headroom", "p99", "predictive", "balanced"] = "headroom"
    memory: Memory = "kv"
    """Which memory counts: the KV cache's share in use, the GPU's, or the higher of the two. Engines reserve
    the GPU's memory in advance, so its use says nothing about their load."""
    headroom: HeadroomSettings = HeadroomSettings()
    p99: P99Settings = P99Settings()
    predictive: PredictiveSettings = PredictiveSettings()
    balanced: BalancedSettings = BalancedSettings()
    forecast: ForecastSettings = ForecastSettings()
    silent_zone: SilentZoneSettings = SilentZoneSettings()
    faults: FaultSettings = FaultSettings()
    stabiliser: StabiliserSettings = StabiliserSettings()
    topology: TopologySettings = TopologySettings()
