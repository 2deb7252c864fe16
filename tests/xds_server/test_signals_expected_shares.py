"""An idle engine hangs only while most of its pool answers, measured by shares."""

from __future__ import annotations

import numpy as np
import pytest

from xds_server.signals.passive.expected_answers import (
    EJECTED_SECONDS,
    ENOUGH,
    ENOUGH_OF_IDLE,
    ExpectedAnswers,
    Spread,
)

NOW = 1000.0


def of_two() -> ExpectedAnswers:
    """Expected answers of a pool of two engines."""
    expected = ExpectedAnswers()
    expected.remap_rows(np.array([-1, -1]))
    return expected


@pytest.mark.parametrize(
    ("shares", "hangs"),
    [
        ((0.5, 0.5), True),
        ((0.3, 0.7), True),
        ((0.6, 0.4), False),
        # Shares that do not add up to 1, as while Envoys are not to use some: 60 % of what is in force.
        ((0.3, 0.2), False),
        ((0.2, 0.3), True),
    ],
)
def test_silent_half_of_a_pool_may_hang(shares: tuple[float, float], hangs: bool) -> None:
    """The first engine of two is silent; the second one answers all."""
    expected = of_two()
    answered = np.array([0, 200])
    assert min(shares) * answered.sum() >= ENOUGH_OF_IDLE
    spread = Spread(np.array(shares), np.zeros(2, np.int64), answered, answered, np.zeros(2, np.int64))
    expected.add(spread, np.array([False, True]), NOW)
    assert expected.enough(spread, np.array([False, False]), NOW).tolist() == [hangs, False]


def test_suspect_hangs_from_enough_answers_on() -> None:
    """Against the first engine something else speaks too; its share of the answers is exactly enough."""
    expected = of_two()
    answered, none = np.array([0, int(2 * ENOUGH)]), np.zeros(2, np.int64)
    spread = Spread(np.array([0.5, 0.5]), none, answered, none, none)
    expected.add(spread, np.array([False, True]), NOW)
    assert expected.enough(spread, np.array([True, True]), NOW).tolist() == [True, False]


def test_silence_is_no_sign_while_shares_are_unknown() -> None:
    expected = of_two()
    answered, none = np.array([0, int(4 * ENOUGH_OF_IDLE)]), np.zeros(2, np.int64)
    expected.add(Spread(np.array([0.5, 0.5]), none, answered, answered, none), np.array([False, True]), NOW)
    assert expected.enough(None, np.array([False, False]), NOW).tolist() == [False, False]


@pytest.mark.parametrize(("after", "hangs"), [(-0.25, False), (0.0, True)])
def test_idle_engine_may_hang_once_no_ejection_explains_it(after: float, hangs: bool) -> None:
    expected = of_two()
    shares, none = np.array([0.5, 0.5]), np.zeros(2, np.int64)
    answered = np.array([0, int(4 * ENOUGH_OF_IDLE)])
    spread = Spread(shares, none, answered, answered, np.array([1, 0]))
    expected.add(spread, np.array([False, True]), NOW)
    now = NOW + EJECTED_SECONDS + after
    assert expected.enough(spread, np.array([False, False]), now).tolist() == [hangs, False]
