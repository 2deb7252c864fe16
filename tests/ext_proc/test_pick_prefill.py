"""An engine's own prefill rate counts as far as noise does not explain it."""

from __future__ import annotations

import numpy as np
import pytest

from ext_proc.pick.prefill import MEMORY_SECONDS, Prefill

NOW = 100.0
DEFAULT = 20_000.0


class Engines:
    """So many, each with `tokens` computed at a rate, out of prompts of `mean` tokens of ours."""

    def __init__(self, *told: tuple[float, float, float]) -> None:
        self.prefill = Prefill(len(told))
        rates, tokens, means = (np.array(column) for column in zip(*told, strict=True))
        self.prefill.learn(rates, np.zeros(len(told)), NOW)
        for position, mean in enumerate(means.tolist()):
            for _ in range(20):
                self.prefill.note(position, 4.0 * mean)
        self.prefill.learn(rates, tokens / rates, NOW + 1.0)

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
    """Two that computed some words, and one that had a long prompt: 28 times as fast, as it looks."""
    rates = Engines((900.0, tokens, 7.0), (1_050.0, tokens, 7.0), (28_000.0, 3_000.0, 3_000.0)).rates()
    assert max(rates) / min(rates) == pytest.approx(1.0)


@pytest.mark.parametrize("tokens", [3e4, 3e5, 3e6])
def test_fixed_time_of_short_prompts_makes_no_engine_slow(tokens: float) -> None:
    """60 tokens left of warm prompts, in a step of 10 ms each, beside prompts that nobody holds."""
    rates = Engines((5_000.0, tokens, 60.0), (26_000.0, tokens, 3_000.0), (5_500.0, tokens, 60.0)).rates()
    assert max(rates) / min(rates) == pytest.approx(1.0)
    assert min(rates) > 15_000, "and they say little of what the pool can do"


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
    prefill.note(0, 8_000.0)
    prefill.learn(rates, busy, NOW + 3_600.0)
    told = prefill.rates(slice(None), DEFAULT, 4.0)
    assert told[0] == pytest.approx(told[1])
