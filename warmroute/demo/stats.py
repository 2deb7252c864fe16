"""From the outcome of each request to the figures of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from warmroute.demo.report import ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. Times count from its planned start: a late client shows in them."""

    at_seconds: float
    """Planned start, from the start of the run."""
    ended_seconds: float
    """From the start of the run."""
    failure: str | None = None
    """Why it counts as failed; None for a whole answer with status 200."""
    status: int | None = None
    ttft_seconds: float | None = None
    """To the first byte of the answer's stream."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    picked: str | None = None
    """The endpoint that ext_proc named first, from the response header."""
    served: str | None = None
    """The endpoint that answered."""

    @property
    def e2e_seconds(self) -> float:
        """To the end of the answer, or of the failure."""
        return self.ended_seconds - self.at_seconds


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one run. None is unknown."""

    requests: int
    failures: int
    ttft_p50_seconds: float | None
    ttft_p99_seconds: float | None
    e2e_p50_seconds: float | None
    e2e_p99_seconds: float | None
    prefix_hit_ratio: float | None
    """Cached prompt tokens, divided by all prompt tokens answered."""
    max_over_mean: float | None
    """Requests of the busiest endpoint over the mean of all endpoints."""
    failure_reasons: dict[str, int] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)
    """Endpoint to requests answered."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which `share` (0 to 1) of `values` lie, linear between; None without any."""
    return float(np.quantile(np.asarray(values), share)) if values else None


def summarise(outcomes: Iterable[Outcome], endpoints: Iterable[str]) -> Summary:
    """Work out the figures; `endpoints` are all that could have served, idle ones too."""
    outcomes = list(outcomes)
    good = [outcome for outcome in outcomes if outcome.failure is None]
    served = Counter(dict.fromkeys(endpoints, 0))
    served.update(outcome.served for outcome in good if outcome.served)
    with_usage = [o for o in good if o.prompt_tokens is not None and o.cached_tokens is not None]
    ttfts = [outcome.ttft_seconds for outcome in good if outcome.ttft_seconds is not None]
    e2es = [outcome.e2e_seconds for outcome in good]
    return Summary(
        requests=len(outcomes),
        failures=len(outcomes) - len(good),
        ttft_p50_seconds=percentile(ttfts, 0.5),
        ttft_p99_seconds=percentile(ttfts, 0.99),
        e2e_p50_seconds=percentile(e2es, 0.5),
        e2e_p99_seconds=percentile(e2es, 0.99),
        prefix_hit_ratio=ratio(
            sum(o.cached_tokens or 0 for o in with_usage), sum(o.prompt_tokens or 0 for o in with_usage)
        ),
        max_over_mean=ratio(max(served.values(), default=0) * len(served), sum(served.values())),
        failure_reasons=dict(Counter(o.failure for o in outcomes if o.failure is not None)),
        served=dict(sorted(served.items())),
    )
