"""Detection of load that is skewed rather than too high."""

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
    """P99 above this multiple of P50, for `tail_periods` in a row, is a long tail."""
    tail_seconds: Seconds = 0.5
    """A shorter P99 is no long tail."""
    tail_periods: Periods = 3
    tail_requests: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """The P99 of fewer requests in its window is ignored, where their number is known."""
    collapse_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Batch sizes have collapsed when their spread and their fill are below this share while requests
    wait."""
    burst_growth_ratio: Positive = 4.0
    """A burst of contexts: the variance of the prompts' length has grown by this multiple of itself, ..."""
    burst_tokens: Positive = 2048.0
    """... and the mean prompt is longer than this."""
    release_ratio: Annotated[float, Field(gt=0, le=1)] = 0.8
    """An event may end once its value is better than its threshold by this factor: the hysteresis."""
    calm_periods: Periods = 3
    """An event ends after this many calm periods in a row."""
    trace_sample_ratio: Share = 0.1
    """While there is a long tail, at least this share of picks gets a span, ..."""
    trace_boost_seconds: Seconds = 300.0
    """... for at most this long in each event."""
    recent_events: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Ended events that are still shown."""

    @model_validator(mode="after")
    def _window_of_periods(self) -> Self:
        if not 6 <= self.periods <= 120:
            raise ValueError("allowed: window_seconds from 6 to 120 times period_seconds")
        return self

    @property
    def periods(self) -> int:
        """Samples that the window holds."""
        return round(self.window_seconds / self.period_seconds)
