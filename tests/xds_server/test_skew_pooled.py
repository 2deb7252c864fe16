"""A pool's figures: quantiles of all its requests, means of what at least half of it tells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.endpoint import Endpoint, Membership, Pool
from testing.signals import Load, Signal, table_of
from xds_server.skew.layout import Layout
from xds_server.skew.pooled import mixture_quantile
from xds_server.skew.sample import DERIVED, ROW, SIGNALS, take

NAN = float("nan")
SECONDS = st.floats(0.001, 1000)


def layout(*sizes: int) -> Layout:
    pools = [
        Pool(f"p{n}", tuple(Endpoint(f"10.0.{n}.{i}:80", f"p{n}") for i in range(size)))
        for n, size in enumerate(sizes)
    ]
    return Layout.of(Membership(tuple(pools)))


def sampled(loads: list[dict[str, float]], now: float = 100.0, at: float = 100.0) -> dict[str, np.ndarray]:
    """One pool of these endpoints; returns each row, endpoints first, the pool last."""
    made = layout(len(loads))
    by_address = {
        address: Load(**{name: Signal(value, at, "test") for name, value in load.items()})
        for address, load in zip(made.addresses, loads, strict=True)
    }
    sample = take(made, table_of(made.addresses, by_address), now, 10.0)
    return {name: sample[row] for name, row in ROW.items()}


def quantiles(p50: list[float], p99: list[float], weights: list[float] | None = None) -> tuple[float, float]:
    given = np.array(p50), np.array(p99), np.array(weights or [1.0] * len(p50)), layout(len(p50))
    return mixture_quantile(*given, 0.5)[0], mixture_quantile(*given, 0.99)[0]


@given(SECONDS, st.floats(1.01, 100), st.integers(1, 9))
def test_equal_endpoints_make_a_pool_with_their_quantiles(p50: float, ratio: float, count: int) -> None:
    middle, far = quantiles([p50] * count, [p50 * ratio] * count)
    assert middle == pytest.approx(p50, rel=1e-4)
    assert far == pytest.approx(p50 * ratio, rel=1e-4)


@pytest.mark.untraced
@given(st.lists(st.tuples(SECONDS, st.floats(1.0, 50), st.floats(0, 100)), min_size=1, max_size=12))
def test_quantiles_lie_between_those_of_the_endpoints(endpoints: list[tuple[float, float, float]]) -> None:
    p50, p99 = [one[0] for one in endpoints], [one[0] * one[1] for one in endpoints]
    middle, far = quantiles(p50, p99, [one[2] for one in endpoints])
    if sum(one[2] for one in endpoints) <= 0:
        assert np.isnan(middle)
        return
    assert min(p50) * 0.999 <= middle <= far * 1.001
    assert far <= max(p99) * 1.002


def test_slow_endpoint_is_in_tail_not_in_middle() -> None:
    middle, far = quantiles([0.2, 0.2, 4.0], [0.4, 0.4, 8.0])
    assert middle < 0.4
    assert far > 4.0


def test_an_endpoint_that_serves_one_of_a_thousand_is_no_tail() -> None:
    _, far = quantiles([0.2, 0.2, 4.0], [0.4, 0.4, 8.0], [500, 500, 1])
    assert far < 0.6


def test_pools_do_not_mix() -> None:
    made = layout(2, 1)
    p50, p99 = np.array([0.1, 0.1, 5.0]), np.array([0.2, 0.2, 9.0])
    assert mixture_quantile(p50, p99, np.ones(3), made, 0.99) == pytest.approx([0.2, 9.0], rel=1e-4)


def test_pool_needs_half_of_its_endpoints() -> None:
    one_of_three = sampled([{"running": 4.0, "latency_p50_seconds": 1.0, "latency_p99_seconds": 2.0}, {}, {}])
    assert np.isnan(one_of_three["running"][-1])
    assert np.isnan(one_of_three["latency_p99_seconds"][-1])
    assert sampled([{"running": 4.0}, {}])["running"][-1] == 4.0


def test_the_pools_variance_is_that_of_all_its_prompts() -> None:
    """Half the prompts have 100 tokens and half 300: variance 10,000, though no endpoint has any."""
    rows = sampled([{"prompt_tokens_mean": mean, "prompt_tokens_variance": 0.0} for mean in (100.0, 300.0)])
    assert rows["prompt_tokens_mean"][-1] == pytest.approx(200)
    assert rows["prompt_tokens_variance"][-1] == pytest.approx(10_000)


def test_stale_and_senseless_is_unknown_not_zero() -> None:
    for load, at in (({"running": 4.0}, 80.0), ({"running": NAN}, 100.0), ({"running": -1.0}, 100.0)):
        assert np.isnan(sampled([load], at=at)["running"]).all()
    assert np.isnan(sampled([{"running": float("inf")}])["running"]).all()


@pytest.mark.parametrize(
    ("load", "waiting", "work"),
    [
        ({"running": 4.0, "queue_depth": 3.0}, 3.0, 7.0),
        ({"running": 4.0, "queue_depth": 1.0, "in_flight": 9.0}, 5.0, 9.0),
        ({"running": 4.0, "queue_depth": 1.0, "in_flight": 2.0}, 1.0, 5.0),
        ({"running": 4.0}, NAN, NAN),
        ({"in_flight": 0.0}, NAN, NAN),
        ({"in_flight": 3.0}, NAN, 3.0),
        ({}, NAN, NAN),
    ],
)
def test_what_waits_and_what_there_is_to_do(load: dict[str, float], waiting: float, work: float) -> None:
    rows = sampled([load])
    assert rows["waiting"][0] == pytest.approx(waiting, nan_ok=True)
    assert rows["work"][0] == pytest.approx(work, nan_ok=True)


FULL = {
    "running": 10.0,
    "prompt_tokens_mean": 800.0,
    "generation_tokens_mean": 400.0,
    "memory_used_ratio": 0.5,
    "kv_capacity_tokens": 40_000.0,
}


def test_fragmentation_estimate() -> None:
    """10 requests of 1,000 tokens each in room for 20,000."""
    assert sampled([FULL])["kv_fragmentation_estimate"][0] == pytest.approx(0.5)


@pytest.mark.parametrize("name", sorted(FULL))
def test_fragmentation_with_one_figure_unknown_is_unknown(name: str) -> None:
    rows = sampled([{key: value for key, value in FULL.items() if key != name}])
    assert np.isnan(rows["kv_fragmentation_estimate"][0])


def test_shared_prefixes_are_no_negative_fragmentation() -> None:
    assert sampled([{**FULL, "running": 90.0}])["kv_fragmentation_estimate"][0] == 0.0


@pytest.mark.parametrize(
    "other", [{"kv_fragmentation_ratio": 0.1}, {"memory_used_ratio": 0.01}, {"running": 0.0}]
)
def test_fragmentation_is_not_estimated_needlessly(other: dict[str, float]) -> None:
    assert np.isnan(sampled([{**FULL, **other}])["kv_fragmentation_estimate"][0])


def test_a_quotient_by_next_to_nothing_is_unknown() -> None:
    for limit in (5e-324, 2.2250738585072014e-308, 1e-18):
        rows = sampled([{"running": 4.0, "batch_limit": limit}])
        assert np.isnan(rows["batch_fill_ratio"][0])


FINITE_OR_NOT = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 1e12))


@pytest.mark.untraced
@given(st.lists(st.dictionaries(st.sampled_from(SIGNALS), FINITE_OR_NOT), min_size=0, max_size=5))
def test_any_load_makes_a_sample_of_known_or_unknown_figures(loads: list[dict[str, float | None]]) -> None:
    rows = sampled([{k: v for k, v in load.items() if v is not None} for load in loads])
    for name in (*SIGNALS, *DERIVED):
        assert not (rows[name] < 0).any()


@given(st.lists(st.one_of(st.just(NAN), st.floats(0, 100)), min_size=1, max_size=9))
def test_what_waits_in_a_pool_waits_at_half_of_its_endpoints(queues: list[float]) -> None:
    rows = sampled([{"queue_depth": queue} for queue in queues])
    queued = sorted(queue for queue in queues if queue == queue)
    if 2 * len(queued) < len(queues):
        assert np.isnan(rows["waiting"][-1])
    else:
        assert rows["waiting"][-1] == queued[(len(queued) - 1) // 2]
