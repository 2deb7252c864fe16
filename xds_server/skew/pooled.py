"""A pool's figures from those of its endpoints. Unknown unless at least half of the endpoints' are known.

Most are means over the endpoints. Latencies are quantiles of the requests of all of them, and the prompts'
variance is that of all prompts; both weight endpoints by their requests per second if all of these are known.
Waiting requests are the lower median: one long queue does not make a pool that waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.skew.layout import BoolArray, FloatArray, Layout

_STEPS: Final = 24
"""Bisections: the quantile is exact to 1e-6 of the span on a logarithmic scale."""
_LEAST_RATIO: Final = 1.001
"""Of P99 to P50: a distribution has some width."""
_STEEPEST: Final = 60.0
"""Exponents beyond this give the same share, and would overflow in the end."""
_LOG_ODDS_99: Final = float(np.log(99.0))


def pooled(endpoints: FloatArray, layout: Layout, row: Mapping[str, int]) -> FloatArray:
    """Return one column per pool from `endpoints`, shape (figures, endpoints)."""
    if not layout.pools:
        return np.zeros((len(endpoints), 0))
    result = _means(endpoints, layout)
    weights = _weights(endpoints[row["requests_per_second"]], layout)
    p50, p99 = row["latency_p50_seconds"], row["latency_p99_seconds"]
    for quantile, at in ((0.5, p50), (0.99, p99)):
        result[at] = mixture_quantile(endpoints[p50], endpoints[p99], weights, layout, quantile)
    mean, variance = row["prompt_tokens_mean"], row["prompt_tokens_variance"]
    result[mean], result[variance] = _moments(endpoints[mean], endpoints[variance], weights, layout)
    for name in ("queue_depth", "waiting"):
        result[row[name]] = _lower_median(endpoints[row[name]], layout)
    # Only endpoints that are not ready have this figure; the others count as ready.
    not_ready = np.add.reduceat((endpoints[row["ready"]] == 0).astype(np.float64), layout.starts)
    result[row["ready"]] = np.where(not_ready > 0, 1.0 - not_ready / layout.counts, result[row["ready"]])
    return result


def mixture_quantile(
    p50: FloatArray, p99: FloatArray, weights: FloatArray, layout: Layout, quantile: float
) -> FloatArray:
    """Return a quantile of all requests of each pool.

    Each endpoint's latency is taken as log-logistic through its P50 and P99, F(x) = 1 / (1 + (x/p50)^-b) with
    b = ln 99 / ln(p99/p50), so that one slow endpoint shows in the pool's P99 as much as it serves.
    """
    observed = (p50 > 0) & (p99 > 0)
    counted = np.where(observed, weights, 0.0)
    total = np.add.reduceat(counted, layout.starts)
    middle = np.log(np.where(observed, p50, 1.0))
    far = np.log(np.where(observed, np.maximum(p99, p50 * _LEAST_RATIO), _LEAST_RATIO))
    steepness = _LOG_ODDS_99 / (far - middle)
    low = np.minimum.reduceat(np.where(observed, middle, np.inf), layout.starts)
    high = np.maximum.reduceat(np.where(observed, far, -np.inf), layout.starts)
    usable = _half(observed, layout) & (total > 0)
    low, high, total = np.where(usable, low, 0.0), np.where(usable, high, 0.0), np.where(usable, total, 1.0)
    for _ in range(_STEPS):
        at = (low + high) / 2.0
        steps = np.clip(steepness * (at[layout.pool_of] - middle), -_STEEPEST, _STEEPEST)
        below = np.add.reduceat(counted / (1.0 + np.exp(-steps)), layout.starts) / total
        low, high = np.where(below < quantile, at, low), np.where(below < quantile, high, at)
    return np.where(usable, np.exp((low + high) / 2.0), np.nan)


def _moments(
    mean: FloatArray, variance: FloatArray, weights: FloatArray, layout: Layout
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance over all prompts: the mean variance and the variance of the means."""
    means = _weighted(mean, weights, layout)
    apart = variance + np.square(mean - means[layout.pool_of])
    return means, _weighted(apart, weights, layout)


def _means(values: FloatArray, layout: Layout) -> FloatArray:
    observed = ~np.isnan(values)
    totals = np.add.reduceat(np.where(observed, values, 0.0), layout.starts, axis=1)
    counts = np.add.reduceat(observed.astype(np.float64), layout.starts, axis=1)
    out = np.full_like(totals, np.nan)
    return np.divide(totals, counts, out=out, where=(counts > 0) & (2 * counts >= layout.counts))


def _lower_median(values: FloatArray, layout: Layout) -> FloatArray:
    """Return a value that at least half of the pool's known endpoints reach."""
    observed = ~np.isnan(values)
    counts = np.add.reduceat(observed.astype(np.intp), layout.starts)
    ordered = values[np.lexsort((values, layout.pool_of))]  # by pool, unknown last
    middle = ordered[layout.starts + np.maximum(counts - 1, 0) // 2]
    return np.where(_half(observed, layout), middle, np.nan)


def _weighted(values: FloatArray, weights: FloatArray, layout: Layout) -> FloatArray:
    observed = ~np.isnan(values)
    counted = np.where(observed, weights, 0.0)
    totals = np.add.reduceat(np.where(observed, values, 0.0) * counted, layout.starts)
    total = np.add.reduceat(counted, layout.starts)
    out = np.full_like(totals, np.nan)
    return np.divide(totals, total, out=out, where=(total > 0) & _half(observed, layout))


def _weights(rates: FloatArray, layout: Layout) -> FloatArray:
    """Return requests per second if they are known for the whole pool, otherwise 1 for each endpoint."""
    observed = ~np.isnan(rates)
    complete = np.add.reduceat(observed.astype(np.intp), layout.starts) == layout.counts
    some = np.add.reduceat(np.where(observed, rates, 0.0), layout.starts) > 0
    return np.where((complete & some)[layout.pool_of], np.where(observed, rates, 0.0), 1.0)


def _half(observed: BoolArray, layout: Layout) -> BoolArray:
    half: BoolArray = 2 * np.add.reduceat(observed.astype(np.intp), layout.starts) >= layout.counts
    return half
