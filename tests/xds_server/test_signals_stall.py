"""A hanging engine is found in time, and a working one never is."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Any

import numpy as np
import pytest

from xds_server.signals.passive.stall import (
    BLIND_FACTOR,
    HALF_OPEN_FACTOR,
    SLOW_FACTOR,
    StallDetector,
    StallInputs,
    Timing,
)

TICK = 0.25
AFTER = 2.0
TIMING = Timing(AFTER, 10.0, 1.0, 0.8)


@dataclass
class Engine:
    """One engine as the detector sees it, with a page every second."""

    in_flight: float = 0.0
    finished: float = 0.0
    progress: float = 100.0
    busy: float = 0.0
    answers: bool = True
    """Whether its page is answered."""
    listening: bool = True
    duration: float = nan
    reachable: float = nan

    def __post_init__(self) -> None:
        self.detector = StallDetector()
        self.detector.remap_rows(np.array([-1]))
        self.now = 1000.0
        self.page = (nan, nan, -inf)

    def tick(self, answered: int = 0) -> float:
        self.now += TICK
        if self.answers and (self.now - 0.3) % 1.0 < TICK:
            self.page = (self.progress, self.busy, self.now)
        progress, busy, page_at = (np.array([value]) for value in self.page)
        inputs = StallInputs(
            np.array([self.in_flight]),
            np.array([self.finished]),
            np.array([answered]),
            self.listening,
            progress,
            busy,
            page_at,
            np.array([self.duration]),
            reachable=np.array([self.reachable]),
        )
        return float(self.detector.step(inputs, self.now, TIMING)[0])

    def work(self, seconds: float, tokens: float = 50.0, finishes: bool = True) -> None:
        """Serve well: counters move, requests end."""
        for number in range(round(seconds / TICK)):
            self.progress += tokens * TICK
            done = int(finishes and number % 2 == 0)
            self.finished += done
            assert self.tick(done) == 0

    def stalls_within(self, seconds: float) -> float | None:
        """Hang and return after how many seconds that is seen, at the most so long."""
        begun = self.now
        while self.now - begun < seconds:
            if self.tick() == 1:
                return self.now - begun
        return None


@pytest.mark.parametrize("page", [True, False], ids=["page answers", "page silent"])
@pytest.mark.parametrize("phase", range(4))
def test_frozen_engine_stalls_within_three_seconds(page: Any, phase: Any) -> None:
    """Its gauges tell of nothing, or its page does not answer, whenever in the second it freezes."""
    engine = Engine(in_flight=4, busy=0.0 if page else 4.0)
    engine.work(5 + phase * TICK)
    engine.answers = page
    took = engine.stalls_within(10)
    assert took is not None
    assert AFTER - 2 * TICK <= took <= 3.0


@pytest.mark.parametrize("busy", [0.0, 4.0], ids=["page shows nothing", "page shows them"])
@pytest.mark.parametrize("late", [1.5, 3.0, 8.0, 60.0])
def test_own_lateness_is_no_silence_of_engines(late: float, busy: float) -> None:
    """While this process stands still it reads no page and no log, whatever engines do meanwhile."""
    engine = Engine(in_flight=4, busy=busy)
    for _ in range(4):
        engine.work(5)
        engine.now += late
        assert engine.tick() == 0, "nothing has been read since"
        engine.work(0.5, finishes=False)
    engine.answers = False
    took = engine.stalls_within(10)
    assert took is not None
    assert took <= 3.0


def test_slow_ticks_are_no_lateness() -> None:
    engine = Engine(in_flight=4)
    engine.work(5)
    engine.answers, begun = False, engine.now
    while not engine.tick():
        engine.now += 3.0 - TICK
        assert engine.now - begun < 12


def test_frozen_idle_engine_stalls_after_its_first_requests() -> None:
    """Nothing is known before: it has no requests of ours."""
    engine = Engine()
    for _ in range(40):
        assert engine.tick() == 0
    engine.in_flight = 2
    took = engine.stalls_within(10)
    assert took is not None
    assert took <= 3.0


def test_a_long_prefill_is_no_stall() -> None:
    """The page says that all of ours are there: silence is allowed for five times as long, then no more."""
    engine = Engine(in_flight=4, busy=4.0)
    engine.work(10, finishes=False)
    took = engine.stalls_within(60)
    assert took is not None
    assert SLOW_FACTOR * AFTER - 1 <= took <= SLOW_FACTOR * AFTER + 1.5


def test_new_requests_during_a_long_prefill_are_no_stall() -> None:
    """A page cannot tell of what came after it."""
    engine = Engine(in_flight=1, busy=1.0)
    engine.work(10, finishes=False)
    for number in range(36):
        engine.in_flight = 1 + number // 4
        assert engine.tick() == 0
        engine.busy = engine.in_flight


def test_counters_that_move_with_completions_only_get_more_time() -> None:
    """Long answers of such an engine look like a hang for as long as they take."""
    engine = Engine(in_flight=2, busy=2.0)
    for _ in range(5):
        engine.progress += 100
        engine.finished += 1
        engine.tick(1)
        for _ in range(4):
            engine.tick()
    took = engine.stalls_within(200)
    assert took is not None
    assert BLIND_FACTOR * AFTER - 2 <= took <= BLIND_FACTOR * AFTER + 1


def test_long_answers_are_work() -> None:
    """Nothing completes for a minute, but tokens are counted."""
    engine = Engine(in_flight=4, busy=0.0)
    engine.work(60, finishes=False)


@pytest.mark.parametrize("sign", ["answer", "counter"])
def test_any_sign_of_life_ends_it_at_once(sign: Any) -> None:
    """An answer in the same tick, a counter with its next page."""
    engine = Engine(in_flight=4)
    engine.work(5)
    assert engine.stalls_within(5)
    if sign == "answer":
        assert engine.tick(1) == 0
    else:
        engine.progress += 1
        assert min(engine.tick() for _ in range(4)) == 0
    assert engine.tick() == 0


def test_a_process_that_thaws_is_back_with_its_page() -> None:
    """It was found by the silence of its page, so the page's answer is news."""
    engine = Engine(in_flight=4, busy=4.0)
    engine.work(5)
    engine.answers = False
    assert engine.stalls_within(5)
    engine.answers = True
    assert [engine.tick() for _ in range(5)][-1] == 0


def test_clients_that_give_up_are_no_sign_of_life() -> None:
    """The streams of their requests end, and Envoys tell of no answer."""
    engine = Engine(in_flight=4)
    engine.work(5)
    verdicts = []
    for number in range(16):
        engine.finished += 1
        engine.in_flight = 4 - number % 2
        verdicts.append(engine.tick())
    assert verdicts[-1] == 1
    engine.in_flight = 0
    assert engine.tick() == 1


def test_half_open_tries_again_and_waits_longer_each_time() -> None:
    """Without requests nothing can be seen: after a while it is tried, and found again within the time."""
    engine = Engine(in_flight=4)
    engine.work(5)
    for trial in range(3):
        took = engine.stalls_within(10)
        assert took is not None
        assert took <= 3.0
        engine.in_flight = 0
        wait = AFTER * HALF_OPEN_FACTOR * 2**trial
        for _ in range(round(wait / TICK) - 1):
            assert engine.tick() == 1
        for _ in range(2):
            last = engine.tick()
        assert last == 0
        engine.in_flight = 1
    engine.work(2)
    assert engine.stalls_within(4)


def test_one_whose_port_gives_no_connection_is_not_tried() -> None:
    """It would hang with whatever it is tried with; and it is when a page has answered."""
    engine = Engine()
    engine.work(10)
    engine.in_flight, engine.answers = 3.0, False
    assert engine.stalls_within(10) is not None
    engine.in_flight, engine.reachable = 0.0, 0.0
    assert {engine.tick() for _ in range(400)} == {1.0}
    engine.answers, engine.reachable = True, 1.0
    assert 0.0 in {engine.tick() for _ in range(8)}


def test_without_any_access_log_the_end_of_streams_counts() -> None:
    """Only where the engine has no counters that tell better."""
    engine = Engine(in_flight=4, progress=nan, busy=nan, listening=False)
    for _ in range(100):
        engine.finished += 1
        assert engine.tick() == 0
    counted = Engine(in_flight=4, listening=False)
    counted.work(5)
    for _ in range(14):
        counted.finished += 1
        last = counted.tick()
    assert last == 1


def test_a_page_that_never_answered_gives_nobody_away() -> None:
    """Somebody else's engine without metrics, and an answer that takes half a minute."""
    engine = Engine(in_flight=1, answers=False)
    assert engine.stalls_within(30) is None


def test_without_ext_proc_there_is_no_verdict() -> None:
    """In flight unknown is not 0."""
    engine = Engine(in_flight=nan)
    assert all(isnan(engine.tick()) for _ in range(100))


def test_rows_follow_their_endpoints() -> None:
    """A newcomer works; who hangs goes on hanging in another row."""
    engine = Engine(in_flight=4)
    engine.work(5)
    assert engine.stalls_within(5)
    engine.detector.remap_rows(np.array([-1, 0]))
    inputs = StallInputs(
        np.array([1.0, 4.0]),
        np.zeros(2),
        np.zeros(2, np.int64),
        True,
        np.array([nan, engine.progress]),
        np.full(2, nan),
        np.array([-inf, engine.now]),
        np.full(2, nan),
    )
    assert engine.detector.step(inputs, engine.now + 0.1, TIMING).tolist() == [0.0, 1.0]


def test_short_requests_make_silence_stall_a_truthful_page() -> None:
    """Frozen gauges may tell of as many requests as hang there; but what took 0.3 s does not take seconds."""
    engine = Engine(in_flight=2, busy=3, duration=0.3)
    engine.work(20)
    took = engine.stalls_within(20)
    assert took is not None
    assert took <= 1.0 + 2.5 + 2 * TICK, "a page that has not told yet, and two and a half that say nothing"


def test_silence_of_long_or_unknown_requests_is_no_stall() -> None:
    for duration in (10.0, nan):
        engine = Engine(in_flight=2, busy=3, duration=duration)
        engine.work(20)
        assert engine.stalls_within(AFTER * SLOW_FACTOR - 1) is None


def test_slow_pages_make_no_stall() -> None:
    """With a page every ten seconds, silence between two of them says nothing."""
    slow = Timing(AFTER, 20.0, 10.0, 0.8)
    detector = StallDetector()
    detector.remap_rows(np.array([-1]))
    progress, page_at = 0.0, -inf
    for tick in range(1200):
        now = 1000.0 + tick * TICK
        if tick % 40 == 0:
            progress, page_at = progress + 10, now
        inputs = StallInputs(
            np.array([4.0]),
            np.zeros(1),
            np.zeros(1, np.int64),
            True,
            np.array([progress]),
            np.array([4.0]),
            np.array([page_at]),
            np.array([0.1]),
        )
        assert detector.step(inputs, now, slow)[0] == 0


def doubted(**fields: Any) -> Engine:
    engine = Engine(**fields)
    engine.detector.restore(np.array([0]), engine.now)
    return engine


@pytest.mark.parametrize("workers", [True, False])
def test_page_does_not_end_a_stall_from_before_a_restart(workers: bool) -> None:
    """A hung engine's page may answer all the time; after the time of a half-open it is tried."""
    engine = doubted(in_flight=0.0 if workers else nan)
    verdicts = [engine.tick() for _ in range(round(AFTER * HALF_OPEN_FACTOR / TICK))]
    assert verdicts == [1.0] * len(verdicts)
    assert [engine.tick() for _ in range(2)][-1] != 1


@pytest.mark.parametrize("sign", ["answer", "counter"])
def test_answer_ends_a_stall_from_before_a_restart(sign: str) -> None:
    engine = doubted()
    for _ in range(8):
        assert engine.tick() == 1
    if sign == "answer":
        assert engine.tick(1) == 0
    else:
        engine.progress += 1
        assert min(engine.tick() for _ in range(4)) == 0
