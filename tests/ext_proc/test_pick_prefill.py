"""An engine's own prefill rate counts as far as noise does not explain it."""

from __future__ import annotations

import numpy as np
import pytest

from ext_proc.pick.prefill import FIXED_SECONDS, MEMORY_SECONDS, Prefill

NOW = 100.0
DEFAULT = 20_000.0


class Engines:
    """So many, each with `tokens` computed at a rate, out of prompts of `mean` tokens of ours."""

    def __init__(self, *engines: tuple[float, float, float], attention: float = 0.0) -> None:
        size = len(engines)
        self.prefill = Prefill(size)
        rates, tokens, means = (np.array(column) for column in zip(*engines, strict=True))
        # As an engine reports it: with the fixed time of each request and the attention in it.
        factor = 1.0 + attention * means / 2
        seconds = tokens * factor / rates + FIXED_SECONDS * tokens / means
        self.prefill.learn(tokens / seconds, np.zeros(size), NOW)
        for position, mean in enumerate(means.tolist()):
            for _ in range(20):
                work = 4.0 * mean * (1.0 + attention * mean / 2)
                self.prefill.note(position, 4.0 * mean, work)
        self.prefill.learn(tokens / seconds, seconds, NOW + 1.0)

    def rates(self, rows: list[int] | None = None) -> list[float]:
        chosen = slice(None) if rows is None else np.array(rows)
        return self.prefill.rates(chosen, DEFAULT, 4.0).tolist()


def test_nothing_told_is_the_settings_rate() -> None:
    prefill = Prefill(3)
    assert prefill.rates(slice(None), DEFAULT, 4.0).tolist() == [DEFAULT] * 3
    for now in (NOW, NOW + 1):
        prefill.learn(np.array([np.nan, 0.0, 9_000.0]), np.array([0.5, 0.0, np.nan]), now)
    assert prefill.rates(slice(None), DEFAULT, 4.0).tolist() == [DEFAULT] * 3


@pytest.mark.parametrize("tokens", [7.0, 14.0, 300.0])
def test_a_rate_over_few_tokens_is_nobodys_own(tokens: float) -> None:
    """Two that computed some words, and one that had a long prompt."""
    rates = Engines((10_000.0, tokens, 7.0), (30_000.0, tokens, 7.0), (28_000.0, 3_000.0, 3_000.0)).rates()
    assert max(rates) / min(rates) == pytest.approx(1.0)


@pytest.mark.parametrize("tokens", [3e4, 3e5, 3e6])
def test_fixed_time_of_short_prompts_is_no_slowness(tokens: float) -> None:
    """60 tokens left of warm prompts, in a step of 10 ms each, next to prompts that nobody holds."""
    rates = Engines((26_000.0, tokens, 60.0), (26_000.0, tokens, 3_000.0), (26_000.0, tokens, 60.0)).rates()
    assert rates == pytest.approx([26_000.0] * 3, rel=0.05)


@pytest.mark.parametrize("tokens", [3e5, 3e6])
def test_attention_of_long_prompts_is_no_slowness(tokens: float) -> None:
    """An engine with prompts of 60,000 tokens reports 14,000 tokens a second, and is not slow."""
    engines = Engines((22_000.0, tokens, 60_000.0), (22_000.0, tokens, 1_000.0), attention=2e-5)
    assert engines.rates() == pytest.approx([22_000.0] * 2, rel=0.05)


def test_rate_holds_while_our_requests_fade() -> None:
    """A worker without requests of its own believes what the engines report."""
    prefill, rates = Prefill(2), np.full(2, 20_000.0)
    for position in range(2):
        prefill.note(position, 8_000.0, 8_000.0)
    for minute in range(120):
        prefill.learn(rates, np.full(2, 0.5), NOW + 60 * minute)
        if minute:
            assert prefill.rates(slice(None), 5_000.0, 4.0) == pytest.approx(rates, rel=0.15)
    unused = Prefill(2)
    for second in range(60):
        unused.learn(rates, np.full(2, 0.5), NOW + second)
    assert unused.rates(slice(None), 5_000.0, 4.0) == pytest.approx(rates)


def test_fixed_time_leaves_a_part_of_the_seconds() -> None:
    """Steps shorter than the fixed time would leave less than nothing: the settings' rate holds."""
    prefill, rates = Prefill(1), np.array([5_000.0])
    prefill.learn(rates, np.zeros(1), NOW)
    for _ in range(20):
        prefill.note(0, 4.0 * 40, 4.0 * 40)
    for second in range(1, 200):
        prefill.learn(rates, np.ones(1), NOW + second)
    assert prefill.rates(slice(None), DEFAULT, 4.0)[0] == pytest.approx(DEFAULT)


def test_equal_engines_that_noise_tells_apart_have_one_rate() -> None:
    rates = Engines((24_000.0, 1e5, 900.0), (20_000.0, 1e5, 900.0), (18_000.0, 1e5, 900.0)).rates()
    assert max(rates) / min(rates) == pytest.approx(1.0)
    assert rates[0] == pytest.approx(20_500, rel=0.05), "the pool's"


@pytest.mark.parametrize(
    ("tokens", "least", "most"), [(1e3, 1.0, 1.0), (3e4, 1.3, 1.9), (3e5, 1.5, 2.0), (1e7, 1.5, 2.0)]
)
@pytest.mark.parametrize("count", [2, 3, 8])
def test_half_the_speed_counts_with_the_tokens_behind_it(
    count: int, tokens: float, least: float, most: float
) -> None:
    told = [(20_000.0, tokens, 2_000.0)] * (count - 1)
    rates = Engines(*told, (10_000.0, tokens, 2_000.0)).rates()
    assert least <= rates[0] / rates[-1] <= most + 1e-9


def test_rates_are_those_of_the_rows_that_are_asked_for() -> None:
    """Of another model's engines nothing is to be learnt."""
    engines = Engines((30_000.0, 1e6, 2e3), (30_000.0, 1e6, 2e3), (5_000.0, 1e6, 2e3), (5_000.0, 1e6, 2e3))
    assert engines.rates([0, 1]) == pytest.approx([30_000] * 2, rel=0.03)
    assert engines.rates([2, 3]) == pytest.approx([5_000] * 2, rel=0.05)


def test_new_endpoint_has_the_pools_rate() -> None:
    engines = Engines((20_000.0, 1e6, 2e3), (20_000.0, 1e6, 2e3), (5_000.0, 1e6, 2e3))
    moved = engines.prefill.moved_to(np.array([2, 0, -1]))
    slow, fast, new = moved.rates(slice(None), DEFAULT, 4.0).tolist()
    assert slow < new <= fast


def test_a_restart_forgets_and_time_does_too() -> None:
    engines = Engines((20_000.0, 1e5, 2e3), (20_000.0, 1e5, 2e3), (5_000.0, 1e5, 2e3))
    assert engines.rates()[2] < 9_000
    engines.prefill.learn(np.full(3, np.nan), np.full(3, np.nan), NOW + 6 * MEMORY_SECONDS)
    assert engines.rates()[2] > 12_000
    engines = Engines((20_000.0, 1e5, 2e3), (20_000.0, 1e5, 2e3), (5_000.0, 1e5, 2e3))
    engines.prefill.forget(2)
    assert engines.rates()[2] == pytest.approx(engines.rates()[0], rel=0.02)


def test_a_tick_that_comes_late_counts_a_few_seconds_of_work() -> None:
    """A worker that stood still must not take what one window told for the whole time."""
    prefill = Prefill(2)
    rates, busy = np.array([20_000.0, 5_000.0]), np.array([0.001, 0.001])
    prefill.learn(rates, busy, NOW)
    prefill.note(0, 8_000.0, 8_000.0)
    prefill.learn(rates, busy, NOW + 3_600.0)
    told = prefill.rates(slice(None), DEFAULT, 4.0)
    assert told[0] == pytest.approx(told[1])


def test_next_to_no_work_is_no_rate() -> None:
    """What is left of an engine's work after days of idleness, or a number out of a broken page."""
    prefill = Prefill(2)
    for position in (0, 1):
        prefill.note(position, 4.0, 4.0)
    for now in (NOW, NOW + 1):
        prefill.learn(np.array([1e15, 30_000.0]), np.array([5e-324, 0.5]), now)
    idle, busy = prefill.rates(slice(None), DEFAULT, 4.0).tolist()
    assert idle == pytest.approx(busy, rel=0.5)
