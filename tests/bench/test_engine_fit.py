"""Constants from measured loads, where the engine is fitted."""

from __future__ import annotations

import numpy as np

from bench.engine_fit import Load, Times, fit, fit_rows, parts, predict, read_rows
from warmroute.simulator.fits import fit_names, timing
from warmroute.simulator.model import EngineConfig, Request


def load(clients: int, prompt_tokens: int, output_tokens: int) -> Load:
    requests = (Request(prompt_tokens, output_tokens),) * (3 * clients)
    return Load(EngineConfig(block_tokens=256, num_blocks=4_000, report_tokens=False), clients, requests)


def test_a_fit_finds_the_times_of_loads_it_did_not_see() -> None:
    """From a guess that is 30 % off, and an engine that follows the model."""
    truth = timing("h100_sxm/tp4")
    fitted = [load(1, 500, 50), load(8, 500, 200), load(2, 8_000, 50), load(8, 8_000, 200), load(32, 500, 50)]
    guess = truth.faster(1.3)
    constants = fit(guess, fitted, [predict(truth, each) for each in fitted])
    for other in (load(16, 3_000, 100), load(4, 20_000, 30)):
        assert np.allclose(predict(constants, other), predict(truth, other), rtol=0.05)
        assert not np.allclose(predict(guess, other), predict(truth, other), rtol=0.2)


def test_the_first_requests_of_all_clients_queue() -> None:
    """A mean time to first token has the wait of the burst at the beginning."""
    constants = timing("h100_sxm/tp4")
    alone, crowd = predict(constants, load(1, 8_000, 50)), predict(constants, load(16, 8_000, 50))
    assert isinstance(crowd, Times)
    assert crowd.first_token > 3 * alone.first_token


def test_every_fit_has_rows_of_its_own_for_the_check() -> None:
    """The names are those of the committed constants, and no row serves both."""
    rows = read_rows()
    assert tuple(rows) == fit_names()
    for measured in rows.values():
        fitted, check = parts(measured)
        assert not set(fitted) & set(check)
        assert len(fitted) + len(check) == len(measured)


def test_the_committed_constants_are_those_of_the_rows() -> None:
    """The fit's command gives them again."""
    fitted = parts(read_rows()["h200_sxm/gpt-oss-120b-mxfp4/tp1"])[0]
    assert fit_rows(fitted) == timing("h200_sxm/gpt-oss-120b-mxfp4/tp1")
