"""When the shape of the load, not its size, is the trouble."""

from __future__ import annotations

from fleet.settings.strict import Positive, Seconds, Share, Strict


class SkewSettings(Strict):
    """Detectors over one window; each raises an event, a metric and its action."""

    window_seconds: Seconds = 60.0
    period_seconds: Seconds = 5.0
    tail_ratio: Positive = 3.0
    """P99 above so many times P50, for `tail_periods`, is a long tail."""
    tail_periods: int = 3
    collapse_ratio: Share = 0.3
    """Batch sizes that spread, and fill, below this share have collapsed."""
    burst_growth_ratio: Positive = 4.0
    """Variance of the prompts' length up by so many times itself (400 %) is a burst of contexts, ..."""
    burst_tokens: Positive = 2048.0
    """... if prompts are longer than this on the mean."""
