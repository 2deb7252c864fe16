"""Context burst: the prompts' length varies five times as much as before (up by 400 %), and they are long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.skew.finding import Detector, Finding
from xds_server.skew.window import mean_observed

if TYPE_CHECKING:
    from fleet.settings.skew import SkewSettings
    from xds_server.skew.window import Window

LEAST_DEVIATION_SHARE: Final = 0.01
"""Of the mean length: the variance of prompts of equal length would make any growth infinite."""


def find(window: Window, settings: SkewSettings) -> Finding:
    """Compare the newest variance with the mean of the window's older half, if half of those are known."""
    variance, mean = window.newest("prompt_tokens_variance"), window.newest("prompt_tokens_mean")
    older = window.older("prompt_tokens_variance")
    before = mean_observed(older, (len(older) + 1) // 2)
    length_before = mean_observed(window.older("prompt_tokens_mean"))
    least = np.square(np.fmax(LEAST_DEVIATION_SHARE * length_before, 1.0))
    observed = ~np.isnan(variance) & ~np.isnan(mean) & ~np.isnan(before)
    nothing = np.full_like(variance, np.nan)
    growth = np.divide(variance, np.maximum(before, least), out=nothing, where=observed) - 1.0
    least_growth, tokens, release = settings.burst_growth_ratio, settings.burst_tokens, settings.release_ratio
    return Finding(
        skewed=(growth > least_growth) & (mean > tokens),
        clear=observed & ((growth <= least_growth * release) | (mean <= tokens * release)),
        observed=observed,
        evidence={
            "prompt_tokens_mean": mean,
            "prompt_tokens_variance": variance,
            "prompt_tokens_variance_before": before,
            "variance_growth_ratio": growth,
        },
    )


DETECTOR: Final = Detector(
    find=find,
    begin_periods=lambda _: 2,  # one long prompt among few makes one such sample
    action="warm_up_hint",
    hint="longer contexts have begun to come: warm their shared prefixes up before they queue as prefill",
)
