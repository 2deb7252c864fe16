"""Predictions of picks against what engines count, as metrics by pool.

The time to first token is compared at ticks, see `ext_proc.pick.first_token`. For cached tokens the engines
name no request: the cached part of the prompts picked for stands next to their own hit ratio.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

    from ext_proc.pick.first_token import Answers

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Accuracy:
    """How good predictions were."""

    def __init__(self, registry: CollectorRegistry) -> None:
        errors = Histogram(
            "warmroute_ttft_prediction_error_seconds",
            "Between the predicted median time to first token and the time by the engine's count",
            ["pool", "direction"],
            buckets=_BUCKETS,
            registry=registry,
        )
        predicted = Counter(
            "warmroute_ttft_predictions",
            "Compared times to first token, by the predicted 90th percentile",
            ["pool", "outcome"],
            registry=registry,
        )
        # Look-ups of labels cost on the hot path. Pools come from the settings, so they are few.
        self._errors = cache(errors.labels)
        self._predicted = cache(predicted.labels)
        self._prompts: dict[str, list[int]] = {}
        """By pool the cached and the cold bytes of prompts: plain numbers, because each pick adds to both."""
        registry.register(self)

    def answered(self, pool: str, answers: Answers) -> None:
        """Count the comparisons of one tick."""
        for late, within in zip(answers.late_seconds.tolist(), answers.within_p90.tolist(), strict=True):
            self._errors(pool, "late" if late >= 0 else "early").observe(abs(late))
            self._predicted(pool, "within_p90" if within else "beyond_p90").inc()

    def picked(self, pool: str, text_bytes: int, cached_bytes: int) -> None:
        """Count a prompt."""
        # Settings may have changed since the pick, and counters refuse numbers below 0.
        cached_bytes = min(cached_bytes, text_bytes)
        prompts = self._prompts.get(pool)
        if prompts is None:
            prompts = self._prompts[pool] = [0, 0]
        prompts[0] += cached_bytes
        prompts[1] += text_bytes - cached_bytes

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the bytes of prompts, for the registry."""
        family = CounterMetricFamily(
            "warmroute_picked_prompt_bytes",
            "Prompts of picks, by what the picked endpoint is predicted to have cached",
            labels=["pool", "part"],
        )
        for pool, (cached, cold) in self._prompts.items():
            family.add_metric([pool, "cached"], cached)
            family.add_metric([pool, "cold"], cold)
        yield family
