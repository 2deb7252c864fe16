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
    late_seconds: float = 0.0
    """From the planned start to the real one."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
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
    ttft_p90_seconds: float | None
    ttft_p99_seconds: float | None
    e2e_p99_seconds: float | None
    prefix_hit_ratio: float | None
    """Cached prompt tokens, divided by all prompt tokens answered."""
    busiest_over_mean: float | None
    """Prompt tokens computed and tokens generated of the busiest endpoint over the mean of all."""
    late_p99_seconds: float | None
    """From planned to real starts: how far the load itself was late."""
    failure_reasons: dict[str, int] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)
    """Endpoint to requests answered."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment of the run of one policy."""

    policy: str
    done_ratio: float
    stage: str
    """Progress in words."""
    summary: Summary | None
    """Of the answers so far; None: nothing has been sent."""


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
    cached = sum(o.cached_tokens or 0 for o in with_usage)
    prompts = sum(o.prompt_tokens or 0 for o in with_usage)
    work = Counter(dict.fromkeys(served, 0))
    for one in with_usage:
        if one.served:
            work[one.served] += (one.prompt_tokens or 0) - (one.cached_tokens or 0)
            work[one.served] += one.completion_tokens or 0
    ttfts = [outcome.ttft_seconds for outcome in good if outcome.ttft_seconds is not None]
    return Summary(
        requests=len(outcomes),
        failures=len(outcomes) - len(good),
        ttft_p50_seconds=percentile(ttfts, 0.5),
        ttft_p90_seconds=percentile(ttfts, 0.9),
        ttft_p99_seconds=percentile(ttfts, 0.99),
        e2e_p99_seconds=percentile([outcome.e2e_seconds for outcome in good], 0.99),
        prefix_hit_ratio=ratio(cached, prompts),
        busiest_over_mean=ratio(max(work.values(), default=0) * len(work), work.total()),
        late_p99_seconds=percentile([outcome.late_seconds for outcome in outcomes], 0.99),
        failure_reasons=dict(Counter(o.failure for o in outcomes if o.failure is not None)),
        served=dict(sorted(served.items())),
    )
