"""Popularity: rates of requests by leading run, decayed, bounded, never rising with depth."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.prefix.popularity import Popularity

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

draw = random.Random(5)
SYSTEM = [draw.getrandbits(64) for _ in range(8)]


def rates_of(
    popularity: Popularity, blocks: list[int], now: float, also: Collection[int] = ()
) -> NDArray[np.float64]:
    return popularity.rates_and_totals(blocks, now, also)[0]


def fresh(count: int) -> list[int]:
    return [draw.getrandbits(64) for _ in range(count)]


def test_a_steady_rate_reads_as_itself() -> None:
    """A shared system prompt at 20 requests a second, each with a continuation of its own."""
    popularity = Popularity(average_seconds=30.0)
    now = 1000.0
    for _ in range(6000):
        prompt = SYSTEM + fresh(2)
        popularity.count(prompt, now)
        now += 0.05
    rates = rates_of(popularity, [*SYSTEM, *fresh(2)], now)
    assert rates[:8].tolist() == pytest.approx([20.0] * 8, rel=0.02)
    assert rates[8:].max() < 1.0
    assert rates_of(popularity, prompt, now)[9] == pytest.approx(1 / 30, rel=0.5)


def test_it_decays_to_nothing() -> None:
    popularity = Popularity(average_seconds=30.0)
    for _ in range(300):
        popularity.count(SYSTEM, 50.0)
    at_once = rates_of(popularity, SYSTEM, 50.0)[0]
    assert at_once == pytest.approx(10.0, rel=0.001)
    assert rates_of(popularity, SYSTEM, 80.0)[0] == pytest.approx(10.0 / 2.71828, rel=0.01)
    assert rates_of(popularity, SYSTEM, 1e6)[0] == pytest.approx(0.0, abs=1e-9)


def test_scaling_back_does_not_change_what_is_told() -> None:
    """Over many averages of time, with a clock that begins anywhere."""
    popularity = Popularity(average_seconds=1.0)
    now = 1e5
    for _ in range(1000):
        popularity.count(SYSTEM, now)
        now += 0.1
    assert rates_of(popularity, SYSTEM, now)[0] == pytest.approx(10.0, rel=0.06)


def test_asking_does_not_count() -> None:
    popularity = Popularity()
    popularity.count(SYSTEM, 1.0)
    first = rates_of(popularity, SYSTEM, 1.0).tolist()
    assert rates_of(popularity, SYSTEM, 1.0).tolist() == first
    assert rates_of(popularity, [], 1.0).size == 0


def test_memory_is_bounded_and_strangers_stay_rare() -> None:
    """Prompts that nobody shares hardly add up, though there are more of them than cells."""
    popularity = Popularity(average_seconds=30.0)
    before = popularity.nbytes
    now = 0.0
    for _ in range(10_000):
        popularity.count(fresh(10), now)
        now += 0.003
    assert popularity.nbytes == before
    assert sum(rates_of(popularity, fresh(1), now)[0] for _ in range(200)) / 200 < 0.2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.floats(0, 5)), max_size=40))
def test_rates_never_rise_with_depth_and_never_fall_short(asks: list[tuple[int, int, float]]) -> None:
    """At a counted depth what is told is at least the truth; between, it is that of the depth before."""
    popularity, now = Popularity(cells_log2=4), 10.0
    chains = [[number * 1000 + depth * 7919 for depth in range(40)] for number in range(4)]
    counted: list[tuple[int, int, float]] = []
    for number, length, wait in asks:
        now += wait
        popularity.count(chains[number][:length], now)
        counted.append((number, length, now))
    for number, chain in enumerate(chains):
        rates = rates_of(popularity, chain, now).tolist()
        assert len(rates) == 40
        assert rates == sorted(rates, reverse=True)
        for depth in (0, 3, 7, 12, 33):
            truth = sum(
                2.718281828 ** -((now - at) / 30.0) / 30.0
                for other, length, at in counted
                if other == number and length > depth
            )
            assert rates[depth] >= truth * 0.999


def test_an_average_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="average_seconds 0"):
        Popularity(0)


def test_rate_is_exact_at_a_depth_that_is_counted_too() -> None:
    """Between the depths that are counted always, a quarter of a prompt would look as hot as the rest."""
    popularity, system = Popularity(), fresh(260)
    for _ in range(300):
        popularity.count(system + fresh(40), 5.0, {0, 260})
    own = system + fresh(40)
    popularity.count(own, 5.0, {0, 260})
    exact, coarse = (rates_of(popularity, own, 5.0, also) for also in ((0, 260), ()))
    assert coarse[270] == pytest.approx(301 / 30, rel=1e-3)
    assert exact[:260].tolist() == pytest.approx([301 / 30] * 260, rel=1e-3)
    assert exact[260:].tolist() == pytest.approx([1 / 30] * 40, rel=1e-3)
    assert popularity.rate_and_total(own, 260, 5.0, 0.0)[0] == pytest.approx(1 / 30, rel=1e-3)


def test_uncounted_depth_has_at_least_the_next_counted_rate() -> None:
    """Else a prompt would look cold for half a minute whenever the edge of what is held moves."""
    popularity = Popularity()
    prompt = fresh(400)
    for _ in range(300):
        popularity.count(prompt, 5.0)
    for depth in (13, 100, 300):
        assert popularity.rate_and_total(prompt, depth, 5.0, 0.0)[0] == pytest.approx(10.0, rel=1e-3)
        assert rates_of(popularity, prompt, 5.0, (depth,)).tolist() == pytest.approx([10.0] * 400, rel=1e-3)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60), st.sets(st.integers(-3, 70), max_size=4))
def test_rates_never_rise_with_depth_wherever_they_are_asked_for(blocks: list[int], also: set[int]) -> None:
    popularity = Popularity(cells_log2=6)
    for size in range(1, len(blocks) + 1):
        popularity.count(blocks[:size], 1.0, also)
    rates = rates_of(popularity, blocks, 1.0, also)
    assert rates.size == len(blocks)
    assert (np.diff(rates) <= 1e-12).all()


def test_a_run_is_compared_with_what_came_since_it_began() -> None:
    """Under what is long hot, a new run has had as much of the requests as it has been there for."""
    popularity, new = Popularity(), SYSTEM + fresh(4)
    for total in range(1, 301):
        popularity.count(SYSTEM + fresh(4), 5.0, total=float(total), look_back=16.0)
    for total in range(301, 311):
        popularity.count(new, 5.0, total=float(total), look_back=16.0)
    rates, since = popularity.rates_and_totals(new, 5.0, total=310.0)
    assert (rates * 30.0).tolist() == pytest.approx([310] * 8 + [10] * 4, rel=1e-3)
    assert since.tolist() == pytest.approx([310] * 8 + [10] * 4, rel=1e-3)
    assert popularity.rate_and_total(new, 9, 5.0, 310.0) == pytest.approx((10 / 30, 10.0), rel=1e-3)


def test_what_came_since_fades_as_counts_do() -> None:
    popularity, total = Popularity(), 300 * 2.71828**-1 + 1
    popularity.count(SYSTEM, 5.0, total=300.0, look_back=1e9)
    popularity.count(SYSTEM, 35.0, total=total, look_back=1e9)
    rates, since = popularity.rates_and_totals(SYSTEM, 35.0, total=total)
    assert since[0] == pytest.approx(1 + 2.71828**-1, rel=1e-3) == pytest.approx(rates[0] * 30.0, rel=1e-3)


def test_rare_run_looks_back_on_a_bounded_total() -> None:
    popularity = Popularity()
    for total in (1.0, 101.0, 201.0):
        popularity.count(SYSTEM, 5.0, total=total, look_back=16.0)
    totals = [popularity.rates_and_totals(SYSTEM, 5.0, total=total)[1].tolist() for total in (201.0, 211.0)]
    assert totals[0] == pytest.approx([2 * 16 + 1] * 8)
    assert totals[1] == pytest.approx([2 * 16 + 11] * 8)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.floats(0, 5)), max_size=40))
def test_total_never_rises_with_depth_nor_exceeds_all(
    asks: list[tuple[int, int, float]],
) -> None:
    popularity, now, total = Popularity(cells_log2=4), 10.0, 0.0
    chains = [[number * 1000 + depth * 7919 for depth in range(40)] for number in range(4)]
    for number, length, wait in asks:
        now, total = now + wait, total * 2.718281828 ** -(wait / 30.0) + 1.0
        popularity.count(chains[number][:length], now, total=total, look_back=16.0)
    for chain in chains:
        since = popularity.rates_and_totals(chain, now, total=total)[1]
        assert (np.diff(since) <= 1e-6).all()
        assert 0.0 <= since.min() <= since.max() <= total
