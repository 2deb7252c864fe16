"""In-flight counts and durations from the life of streams."""

from __future__ import annotations

import random
from math import ceil
from typing import Any

from ext_proc.director.traffic import DURATIONS_KEPT, TrafficCounter


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def only(counter: TrafficCounter) -> Any:
    (entry,) = counter.snapshot()
    return entry


def test_a_request_is_in_flight_until_it_is_finished() -> None:
    clock = Clock()
    counter = TrafficCounter(clock, 30.0)
    token = counter.started("a:1")
    assert (only(counter).in_flight, only(counter).duration_p99_seconds) == (1, None)
    clock.now += 2.5
    counter.finished(token)
    entry = only(counter)
    assert (entry.in_flight, entry.started_total, entry.finished_total) == (0, 1, 1)
    assert entry.duration_p99_seconds == 2.5


def test_finishing_twice_counts_once() -> None:
    counter = TrafficCounter(Clock(), 30.0)
    one, _two = counter.started("a:1"), counter.started("a:1")
    counter.finished(one)
    counter.finished(one)
    assert counter.in_flight("a:1") == 1


def test_an_endpoint_that_leaves_and_returns_keeps_its_requests() -> None:
    counter = TrafficCounter(Clock(), 30.0)
    token = counter.started("a:1")
    counter.keep(set())
    assert counter.in_flight("a:1") == 1, "it still runs there"
    counter.keep({"a:1"})
    later = counter.started("a:1")
    assert counter.in_flight("a:1") == 2
    counter.finished(token)
    counter.finished(later)
    assert counter.in_flight("a:1") == 0


def test_an_endpoint_that_left_is_dropped_once_idle() -> None:
    counter = TrafficCounter(Clock(), 30.0)
    token = counter.started("a:1")
    counter.keep(set())
    counter.finished(token)
    counter.keep(set())
    assert counter.snapshot() == []
    assert counter.in_flight("a:1") == 0


def test_counts_never_fall_below_zero_and_return_to_zero() -> None:
    rng, counter, open_tokens = random.Random(5), TrafficCounter(Clock(), 30.0), []
    for _ in range(5000):
        act = rng.random()
        if act < 0.5:
            open_tokens.append(counter.started(f"h:{rng.randrange(5)}"))
        elif act < 0.95 and open_tokens:
            counter.finished(open_tokens.pop(rng.randrange(len(open_tokens))))
        else:
            counter.keep({f"h:{n}" for n in range(5) if rng.random() < 0.5})
        assert all(entry.in_flight >= 0 for entry in counter.snapshot())
        assert sum(entry.in_flight for entry in counter.snapshot()) == len(open_tokens)
    for token in open_tokens:
        counter.finished(token)
    assert sum(entry.in_flight for entry in counter.snapshot()) == 0


def test_the_percentile_is_the_nearest_rank_over_the_window() -> None:
    clock = Clock()
    counter = TrafficCounter(clock, 30.0)
    for duration in range(1, 101):
        token = counter.started("a:1")
        token.started_at = clock.now - duration
        counter.finished(token)
    assert only(counter).duration_p99_seconds == 99.0
    clock.now += 31
    assert only(counter).duration_p99_seconds is None, "the window has passed"


def test_only_the_newest_requests_are_kept() -> None:
    clock = Clock()
    counter = TrafficCounter(clock, 30.0)
    for number in range(3 * DURATIONS_KEPT):
        token = counter.started("a:1")
        token.started_at = clock.now - (500.0 if number < DURATIONS_KEPT else 1.0)
        counter.finished(token)
    assert only(counter).duration_p99_seconds == 1.0


def test_a_clock_that_steps_back_makes_no_negative_duration() -> None:
    clock = Clock()
    counter = TrafficCounter(clock, 30.0)
    token = counter.started("a:1")
    clock.now -= 1
    counter.finished(token)
    assert only(counter).duration_p99_seconds == 0.0


def test_the_oldest_request_in_flight_has_its_age() -> None:
    clock = Clock()
    counter = TrafficCounter(clock, 30.0)
    first = counter.started("a:1")
    clock.now += 2
    second = counter.started("a:1")
    clock.now += 1
    assert only(counter).oldest_in_flight_seconds == 3.0
    counter.finished(first)
    assert only(counter).oldest_in_flight_seconds == 1.0
    counter.finished(second)
    assert only(counter).oldest_in_flight_seconds is None


def test_percentile_equals_that_of_sorted_durations() -> None:
    """Whatever is kept between two looks, each look tells what ended in the window."""
    rng, clock = random.Random(3), Clock()
    counter, ended = TrafficCounter(clock, 5.0), []
    for _ in range(600):
        clock.now += rng.random() / 20
        if rng.random() < 0.7:
            token = counter.started("a:1")
            token.started_at = clock.now - rng.expovariate(1.0)
            counter.finished(token)
            ended.append((clock.now, clock.now - token.started_at))
        inside = sorted(seconds for at, seconds in ended[-DURATIONS_KEPT:] if at >= clock.now - 5.0)
        wanted = inside[ceil(0.99 * len(inside)) - 1] if inside else None
        assert not ended or only(counter).duration_p99_seconds == wanted
