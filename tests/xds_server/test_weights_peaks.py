"""Returns into the silent zone are remembered; what only moves within it is no return."""

from __future__ import annotations

import numpy as np

from xds_server.weights.peaks import Peaks

ZONE, RELEASE, TICK = 0.85, 1.0, 0.25
ADDRESSES = ("a:1", "b:1")


class Pool:
    """Two endpoints; the memory of the first moves."""

    def __init__(self) -> None:
        self.peaks, self.now = Peaks(), 100.0

    def step_for(self, memory: float, seconds: float) -> float:
        levels = np.zeros(2)
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            levels = self.peaks.step(ADDRESSES, np.array([memory, 0.1]), self.now, RELEASE, ZONE)
        return float(levels[0])


def test_one_visit_is_over_soon_after_it_ends() -> None:
    pool = Pool()
    pool.step_for(0.1, 5)
    assert pool.step_for(0.97, 5) == 0.97
    assert pool.step_for(0.1, 5) < 0.2


def test_fading_and_returning_figure_is_one_visit() -> None:
    """Where little is sent, values fade between two requests; that is no flapping."""
    pool = Pool()
    pool.step_for(0.1, 5)
    for _ in range(6):
        pool.step_for(0.97, 1)
        for faded in (0.962, 0.954, 0.946, 0.938, 0.93, 0.923, 0.916, 0.909):
            pool.step_for(faded, TICK)
    assert pool.step_for(0.1, 5) < 0.2


def test_drops_within_the_zone_are_noise() -> None:
    pool = Pool()
    pool.step_for(0.1, 5)
    for _ in range(6):
        pool.step_for(0.97, 1)
        pool.step_for(0.88, 2)
    assert pool.step_for(0.1, 5) > 0.9


def test_third_visit_lasts_longer() -> None:
    pool = Pool()
    for _ in range(3):
        pool.step_for(0.1, 40)
        pool.step_for(0.97, 2)
    assert pool.step_for(0.1, 20) > 0.9
