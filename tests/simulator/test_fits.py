"""What the fits must say about real engines."""

from __future__ import annotations

import pytest

from warmroute.simulator.fits import UnknownFitError, fit_names, pairs, timing


@pytest.mark.parametrize(
    ("tokens", "measured_ms"), [(512, 30.1), (2048, 108.5), (8192, 394.5), (32768, 1997.9)]
)
def test_solo_prefill_is_near_the_measured_time(tokens: int, measured_ms: float) -> None:
    """H100 TP4 within 12 % of the stated times to first token, short and long."""
    assert timing("h100_sxm/tp4").prefill(tokens) * 1e3 == pytest.approx(measured_ms, rel=0.12)


@pytest.mark.parametrize("name", fit_names())
def test_prefill_is_superlinear_for_long_prompts(name: str) -> None:
    """Four times the tokens take more than four times as long, with windows in half the layers too."""
    fit = timing(name)
    assert fit.prefill(32_768) > 4.1 * fit.prefill(8_192)


def test_a_lone_decode_costs_what_the_reference_says() -> None:
    """One sequence with 8k tokens of context: 10.87 ms in the reference, within 6 %."""
    assert timing("h100_sxm/tp4").step(1, 8192, 0, 0) * 1e3 == pytest.approx(10.87, rel=0.06)


def test_faster_divides_every_term() -> None:
    """A speed-up of 10 makes any step ten times shorter."""
    fit = timing()
    assert fit.faster(10).step(7, 9000, 500, 10_000) == pytest.approx(fit.step(7, 9000, 500, 10_000) / 10)


def test_chunks_do_the_same_attention_as_one_piece() -> None:
    """Splitting a prefill leaves the number of token pairs as it is."""
    assert pairs(0, 100) + pairs(100, 50) == pairs(0, 150)


def test_an_unknown_fit_lists_the_allowed_ones() -> None:
    """The error helps."""
    with pytest.raises(UnknownFitError, match="h100_sxm/tp4"):
        timing("abacus")
