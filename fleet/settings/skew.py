"""When the shape of the load, not its size, is the trouble."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.settings.strict import Positive, Seconds, Share, Strict

Periods = Annotated[int, Field(ge=1, le=60)]


class SkewSettings(Strict):
    """Detectors over one window; each raises an event, a metric and its action."""

    window_seconds: Seconds = 60.0
    """From 6 to 120 periods."""
    period_seconds: Seconds = 5.0
    tail_ratio: Annotated[float, Field(gt=1, le=1000)] = 3.0
    """P99 above so many times P50, for `tail_periods` in a row, is a long tail."""
    tail_seconds: Seconds = 0.5
    """A P99 up to this long is no long tail: nobody waits long."""
    tail_periods: Periods = 3
    tail_requests: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """Of fewer requests in its own window, where their number is known, a P99 says nothing."""
    collapse_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Batch sizes that spread, and fill, below this share while requests wait have collapsed."""
    burst_growth_ratio: Positive = 4.0
    """Variance of the prompts' length up by so many times itself (400 %) is a burst of contexts, ..."""
    burst_tokens: Positive = 2048.0
    """... if prompts are longer than this on the mean."""
    release_ratio: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Calm again is what is this far on the good side of its threshold: between the two nothing changes."""
    calm_periods: Periods = 3
    """An event ends after so many calm periods in a row."""
    trace_sample_ratio: Share = 0.1
    """While there is a long tail, at least this share of picks gets a span, ..."""
    trace_boost_seconds: Seconds = 300.0
    """... for at most so long an event."""
    recent_events: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Events that are over and still shown."""

    @model_validator(mode="after")
    def _window_of_periods(self) -> Self:
        if not 6 <= self.periods <= 120:
            raise ValueError("allowed: window_seconds from 6 to 120 times period_seconds")
        return self

    @property
    def periods(self) -> int:
        """Samples that the window holds."""
        return round(self.window_seconds / self.period_seconds)
