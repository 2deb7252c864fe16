"""Hanging engines are found by what they owe where requests go by weights, and idle ones are not."""

from __future__ import annotations

import random
from math import inf, nan

import numpy as np
import pytest

from xds_server.signals.passive.expected_answers import (
    EJECTED_SECONDS,
    ENOUGH,
    ENOUGH_OF_IDLE,
    ExpectedAnswers,
    Spread,
)
from xds_server.signals.passive.stall import (
    BLIND_FACTOR,
    HALF_OPEN_FACTOR,
    StallDetector,
    StallInputs,
    Timing,
)

TICK = 0.25
AFTER = 2.0
TIMING = Timing(AFTER, 10.0, 1.0, 0.8)
COUNT = 4


class Pool:
    """Engines that answer draws by weight, without any worker; pages come every second."""

    def __init__(self, rate: float = 40.0, seed: int = 1, duration: float = 0.3, share: float = 0.25) -> None:
        self.random = random.Random(seed)
        self.rate = rate
        self.detector = StallDetector()
        self.detector.remap_rows(np.full(COUNT, -1))
        self.now = 1000.0
        self.duration = duration
        self.hung: set[int] = set()
        self.dark: set[int] = set()
        """Whose page does not answer."""
        self.busy = np.zeros(COUNT)
        """What pages tell as running."""
        self.sessions = False
        self.weights = np.array([share, *[(1 - share) / (COUNT - 1)] * (COUNT - 1)])
        self.progress = np.full(COUNT, 100.0)
        self.page = np.column_stack((np.full(COUNT, nan), np.full(COUNT, nan), np.full(COUNT, -inf)))
        self.in_flight = np.full(COUNT, nan)
        self.faults = np.zeros(COUNT, np.int64)

    def tick(self, only: int | None = None) -> np.ndarray:
        self.now += TICK
        expected = self.rate * TICK
        count = int(expected) + (self.random.random() < expected % 1)
        drawn = (
            self.random.choices(range(COUNT), self.weights.tolist(), k=count)
            if only is None
            else [only] * count
        )
        answered = np.zeros(COUNT, np.int64)
        for row in drawn:
            if row not in self.hung:
                answered[row] += 1
        self.progress += 10 * answered
        if (self.now - 0.3) % 1.0 < TICK:
            for row in set(range(COUNT)) - self.dark:
                self.page[row] = self.progress[row], self.busy[row], self.now
        progress, busy, page_at = self.page.T
        inputs = StallInputs(
            self.in_flight,
            self.in_flight,
            answered,
            True,
            progress,
            busy,
            page_at,
            np.full(COUNT, self.duration),
            Spread(
                self.weights,
                np.zeros(COUNT, np.int64),
                answered,
                np.zeros(COUNT, np.int64) if self.sessions else answered,
                self.faults,
            ),
        )
        return self.detector.step(inputs, self.now, TIMING)

    def work(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK)):
            assert not (self.tick() == 1).any()

    def stalls_within(self, seconds: float) -> float | None:
        """Return after how long the first engine is found to hang, and no other."""
        begun = self.now
        while self.now - begun < seconds:
            verdict = self.tick()
            assert not (verdict[1:] == 1).any(), "the others work"
            if verdict[0] == 1:
                return self.now - begun
        return None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sessions", [True, False])
def test_hung_engine_with_silent_page_stalls_without_worker(seed: int, sessions: bool) -> None:
    """As under SIGSTOP: nothing comes from it while its peers answer, and its page times out."""
    pool = Pool(seed=seed)
    pool.sessions = sessions
    pool.work(10 + seed * TICK)
    pool.hung, pool.dark = {0}, {0}
    took = pool.stalls_within(10)
    assert took is not None
    assert AFTER - 1 <= took <= 3.25


def test_rare_ticks_without_requests_in_flight_are_not_late() -> None:
    """Without workers a tick may follow another after a second; that resets no silence."""
    pool = Pool()
    pool.work(10)
    pool.hung, pool.dark = {0}, {0}
    stalled = []
    for number in range(20):
        pool.now += 0.85 * (number % 2)
        stalled.append(pool.tick()[0] == 1)
    assert any(stalled)


@pytest.mark.parametrize("busy", [0.0, 3.0], ids=["tells of nothing", "tells of requests"])
def test_hung_engine_with_a_page_stalls_by_its_counters(busy: float) -> None:
    pool = Pool()
    pool.work(10)
    pool.hung = {0}
    pool.busy[0] = busy
    took = pool.stalls_within(10)
    assert took is not None
    assert took <= 5


def test_its_share_and_its_pools_answers_say_how_long_it_takes() -> None:
    """At 2.7 answers a second of its peers, and a tenth of the weight, seven are expected after 26 s."""
    pool = Pool(rate=3.0, share=0.1)
    pool.work(20)
    pool.hung, pool.dark = {0}, {0}
    pool.weights = np.array([0.1, 0.3, 0.3, 0.3])
    took = pool.stalls_within(60)
    assert took is not None
    assert took == pytest.approx(ENOUGH / (0.1 * 0.9 * 3.0), rel=0.35)


@pytest.mark.parametrize("rate", [0.5, 4.0, 40.0])
def test_working_engines_never_stall(rate: float) -> None:
    """Ten minutes at any rate, although some engine has no request for long by chance."""
    Pool(rate=rate, seed=3).work(600)


def test_engines_with_sessions_only_may_be_idle() -> None:
    """Maglev keeps a session on one engine: the others answer nothing, and nothing is wrong."""
    pool = Pool()
    pool.sessions = True
    for _ in range(400):
        assert not (pool.tick(only=2) == 1).any()


def test_mostly_silent_pool_is_not_spread_by_weights() -> None:
    """Another's Envoy that keeps everything on one endpoint, and tells of no session."""
    pool = Pool()
    for _ in range(400):
        assert not (pool.tick(only=2) == 1).any()


def test_engine_ejected_after_a_refusal_does_not_stall() -> None:
    """It is back and idle, because Envoy has not tried it again yet."""
    pool = Pool()
    pool.work(10)
    pool.faults[0] = 2
    pool.tick()
    pool.faults[0] = 0
    pool.hung = {0}
    pool.work(EJECTED_SECONDS - 1)
    assert pool.stalls_within(10) is not None, "that excuses nobody for ever"


def test_long_answers_are_waited_for() -> None:
    """What has taken half a minute may take so again: counters that stand say nothing before."""
    pool = Pool(duration=30.0)
    pool.work(10)
    pool.hung = {0}
    pool.busy[0] = 2.0
    took = pool.stalls_within(200)
    assert took is not None
    assert took >= BLIND_FACTOR * AFTER - 2


def test_a_silent_page_alone_is_no_stall() -> None:
    """An engine that does nothing but work answers its page late."""
    pool = Pool()
    pool.work(5)
    pool.dark = {0}
    for _ in range(80):
        assert not (pool.tick() == 1).any()


def test_failed_trial_stalls_again() -> None:
    """Half open as with workers: after ten seconds, then after twenty."""
    pool = Pool()
    pool.work(10)
    pool.hung, pool.dark = {0}, {0}
    for trial in range(2):
        assert pool.stalls_within(10) is not None
        pool.weights = np.array([0.0, *[1 / 3] * 3])
        wait = AFTER * HALF_OPEN_FACTOR * 2**trial
        for _ in range(round(wait / TICK) - 1):
            assert pool.tick()[0] == 1
        assert [pool.tick()[0] for _ in range(2)][-1] != 1
        pool.weights = np.full(COUNT, 0.25)
    pool.hung.clear()
    pool.dark.clear()
    pool.work(20)


def test_a_thawed_engine_is_back_with_its_page() -> None:
    pool = Pool()
    pool.work(10)
    pool.hung, pool.dark = {0}, {0}
    assert pool.stalls_within(10) is not None
    pool.hung, pool.dark = set(), set()
    assert [pool.tick()[0] for _ in range(5)][-1] != 1


def test_requests_by_weight_count_with_idle_workers() -> None:
    """What ext_proc does not read, it does not have in flight."""
    pool = Pool()
    pool.in_flight = np.zeros(COUNT)
    pool.work(10)
    pool.hung, pool.dark = {0}, {0}
    assert pool.stalls_within(10) is not None


def test_debts_follow_their_endpoints_and_pools_are_apart() -> None:
    expected = ExpectedAnswers()
    expected.remap_rows(np.array([-1, -1, -1]))
    answered, none = np.array([0, 40, 0]), np.zeros(3, np.int64)
    spread = Spread(np.array([0.5, 0.5, 1.0]), np.array([0, 0, 1]), answered, answered, none)
    expected.add(spread, np.array([False, True, False]), 5.0)
    assert expected.since.tolist() == [5.0, inf, inf]
    nobody = np.zeros(3, np.bool_)
    assert expected.enough(spread, nobody, 5.0).tolist() == [True, False, False], f"{ENOUGH_OF_IDLE:g} of 20"
    expected.remap_rows(np.array([2, 0]))
    assert expected.since.tolist() == [inf, 5.0]
