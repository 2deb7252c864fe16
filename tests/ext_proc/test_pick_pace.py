"""How fast endpoints finish what is sent there: slow and hanging ones stand out, quiet ones do not."""

from __future__ import annotations

import numpy as np
import pytest

from ext_proc.pick.pace import LEAST_MEMORY_SECONDS, MOST_MEMORY_SECONDS, Pace


class Engines:
    """Each holds its requests for its own time; requests come evenly to all of them."""

    def __init__(self, *durations: float, every: float = 0.05) -> None:
        self.pace = Pace(len(durations))
        self.durations = list(durations)
        self.every = every
        self.now = 50.0
        self.ends: list[list[float]] = [[] for _ in durations]

    @property
    def in_flight(self) -> np.ndarray:
        return np.array([len(ends) for ends in self.ends], float)

    def run(self, seconds: float, *, arrive: bool = True) -> None:
        for _ in range(round(seconds / self.every)):
            self.now += self.every
            for position, ends in enumerate(self.ends):
                left = [end for end in ends if end > self.now]
                self.pace.note(position, len(ends), len(left), self.now)
                if arrive:
                    left.append(self.now + self.durations[position])
                    self.pace.note(position, len(left) - 1, len(left), self.now)
                self.ends[position] = left

    def slow(self, most: float = 1000.0) -> list[float]:
        judgement = self.pace.judge(self.in_flight, self.now, 2.0, most)
        assert judgement is not None
        return judgement.slow_seconds.tolist()

    def held(self) -> list[float]:
        judgement = self.pace.judge(self.in_flight, self.now, 2.0, 1.0)
        assert judgement is not None
        return judgement.least_in_flight.tolist()


def test_equal_engines_are_not_slow() -> None:
    engines = Engines(0.2, 0.2, 0.2)
    for _ in range(10):
        engines.run(0.5)
        assert engines.slow() == [0, 0, 0]


def test_one_that_is_ten_times_slower_is_told_by_how_much() -> None:
    """Up to the 8 usual durations beyond twice the usual; the prior takes some of it."""
    engines = Engines(0.2, 0.2, 0.2, 2.0)
    engines.run(10)
    *others, slow = engines.slow()
    assert others == [0, 0, 0]
    assert 0.5 * 8 * 0.2 < slow < 1.5 * 8 * 0.2


def test_one_that_hangs_is_slow_before_anything_ended() -> None:
    engines = Engines(0.2, 0.2, 0.2)
    engines.run(3)
    engines.slow()
    engines.durations[1] = 1e9
    engines.run(2)
    assert engines.slow()[1] > 0.4
    assert engines.slow(most=0.3)[1] == 0.3


def test_a_single_long_request_makes_nobody_slow_by_much() -> None:
    engines = Engines(0.2, 0.2, 0.2)
    engines.run(3)
    engines.run(1, arrive=False)
    engines.pace.note(0, 0, 1, engines.now)
    engines.ends[0] = [engines.now + 1e9]
    for position in (1, 2):
        engines.ends[position] = []
    engines.slow()
    for _ in range(20):
        engines.now += 0.05
        for position in (1, 2):
            engines.pace.note(position, 1, 0, engines.now)
    assert engines.slow()[0] < 0.2


def test_what_is_quiet_is_forgotten_within_seconds() -> None:
    engines = Engines(0.2, 0.2, 0.2)
    engines.run(3)
    engines.durations[1] = 1e9
    engines.run(3)
    assert engines.slow()[1] > 0
    engines.pace.note(1, len(engines.ends[1]), 0, engines.now)
    engines.ends[1] = []
    engines.durations[1] = 0.2
    engines.run(3)
    assert engines.slow() == [0, 0, 0]


def test_when_all_are_slow_none_is() -> None:
    engines = Engines(0.2, 0.2)
    engines.run(3)
    engines.durations = [2.0, 2.0]
    engines.run(20)
    assert engines.slow() == [0, 0]


@pytest.mark.parametrize(("duration", "memory"), [(0.01, LEAST_MEMORY_SECONDS), (60, MOST_MEMORY_SECONDS)])
def test_memory_follows_the_usual_duration_within_bounds(duration: float, memory: float) -> None:
    engines = Engines(duration, duration)
    engines.run(max(1.0, 2 * duration))
    engines.slow()
    assert engines.pace.memory_seconds == memory


def test_nothing_is_known_before_anything_was_sent() -> None:
    assert Pace(2).judge(np.zeros(2), 5.0, 2.0, 30.0) is None


def test_who_stays_keeps_its_pace() -> None:
    engines = Engines(0.2, 0.2, 2.0)
    engines.run(5)
    before = engines.slow()
    moved = engines.pace.moved_to(np.array([2, -1, 1, 0]))
    order = np.array([*engines.in_flight[[2]], 0, *engines.in_flight[[1, 0]]])
    after = moved.judge(order, engines.now, 2.0, 1000.0)
    assert after is not None
    assert after.slow_seconds.tolist() == pytest.approx([before[2], 0, before[1], before[0]])


def test_a_clock_that_steps_back_does_no_harm() -> None:
    pace = Pace(2)
    for now in (10.0, 9.0, 8.0, 11.0):
        pace.note(0, 0, 1, now)
        pace.note(0, 1, 0, now + 0.1)
    judgement = pace.judge(np.zeros(2), 5.0, 2.0, 30.0)
    assert judgement is not None
    assert np.isfinite(judgement).all()


@pytest.mark.parametrize("peers", [1, 2, 3, 4])
def test_instant_answers_count_as_usual_durations(peers: int) -> None:
    """Engines that refuse everything have nothing in flight, and would draw every pick."""
    engines = Engines(0.001, *[0.2] * peers)
    engines.run(5)
    held, *others = engines.held()
    assert held == pytest.approx(4.0, rel=0.3), "20 a second, 0.2 s each"
    assert others == [0] * peers
    assert engines.slow() == [0] * (1 + peers), "its peers are not slow by comparison"


def test_plausibly_faster_engine_keeps_its_advantage() -> None:
    engines = Engines(0.1, 0.3, 0.3)
    engines.run(5)
    assert engines.held() == [0, 0, 0]


def test_request_from_before_the_first_event_counts() -> None:
    pace = Pace(2)
    pace.note(0, 1, 0, 1.0)
    assert pace.judge(np.zeros(2), 1.0, 2.0, 1000.0) is not None
