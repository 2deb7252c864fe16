"""Which engines get requests over HTTP/2: what turns an engine bad and good again, and after which pauses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.settings import Http2Settings
from xds_server.http2.protocol_choice import ProtocolChoice
from xds_server.http2.support import UNREACHED_SECONDS, Http2Tracker, RequestOutcome

SETTINGS = Http2Settings(errors=3, window_seconds=60.0, pause_seconds=10.0, most_pause_seconds=35.0)
A = "10.0.0.1:1"


def tracker_of_one(
    *, trusted: bool = True, can_probe: bool = True, good: bool | None = True, http1: bool | None = True
) -> Http2Tracker:
    """One engine of one pool that has answered its first probe, unless `good` is None."""
    tracker = Http2Tracker(SETTINGS)
    tracker.follow([(A, "p", trusted, can_probe)])
    if good is not None:
        assert http2_probes(tracker, 0.0) == [A]
        tracker.record_probe(A, good=good, http1=http1, now=0.0)
    return tracker


def http2_probes(tracker: Http2Tracker, now: float) -> list[str]:
    """Addresses that are probed for HTTP/2 at this moment."""
    return [probe.address for probe in tracker.start_probes(now) if probe.http2]


def moved_pools(tracker: Http2Tracker) -> frozenset[str]:
    return tracker.choose_protocols().moved


def breach(
    tracker: Http2Tracker, now: float, count: int = 3, outcome: RequestOutcome = RequestOutcome.PROTOCOL_ERROR
) -> bool:
    return [tracker.record(A, outcome, now) for _ in range(count)][-1]


def test_new_engine_has_one_probe_in_flight() -> None:
    tracker = tracker_of_one(good=None)
    assert http2_probes(tracker, 0.0) == [A]
    assert http2_probes(tracker, 100.0) == []
    tracker.record_probe(A, good=None, http1=None, now=100.0)
    assert http2_probes(tracker, 100.0) == []
    assert http2_probes(tracker, 100.0 + UNREACHED_SECONDS) == [A]


def test_trust_decides_before_the_first_probe() -> None:
    assert tracker_of_one(trusted=True, good=None).choose_protocols().moved == frozenset()
    assert tracker_of_one(trusted=False, good=None).choose_protocols().moved == {"p"}
    assert tracker_of_one(trusted=False, good=True).choose_protocols().moved == frozenset()
    assert tracker_of_one(trusted=True, good=False).choose_protocols().moved == {"p"}


def test_one_engine_moves_its_pool_and_no_other() -> None:
    tracker = Http2Tracker(SETTINGS)
    tracker.follow([(A, "p", True, True), ("b:1", "p", True, True), ("c:1", "q", True, True)])
    for address in http2_probes(tracker, 0.0):
        tracker.record_probe(address, good=True, http1=True, now=0.0)
    assert breach(tracker, 1.0)
    assert moved_pools(tracker) == {"p"}


def test_breaches_count_only_within_the_window() -> None:
    tracker = tracker_of_one()
    assert not breach(tracker, 1.0, 2)
    assert not breach(tracker, 61.5, 2)
    assert breach(tracker, 62.0, 1)


def test_answer_clears_cuts_but_no_protocol_error() -> None:
    tracker = tracker_of_one(can_probe=False, good=None)
    breach(tracker, 1.0, 2, RequestOutcome.CUT)
    tracker.record(A, RequestOutcome.ANSWERED, 1.0)
    assert not breach(tracker, 1.0, 2, RequestOutcome.CUT)
    assert breach(tracker, 1.0, 1, RequestOutcome.CUT)
    tracker = tracker_of_one()
    breach(tracker, 1.0, 2, RequestOutcome.PROTOCOL_ERROR)
    tracker.record(A, RequestOutcome.ANSWERED, 1.0)
    assert breach(tracker, 1.0, 1, RequestOutcome.PROTOCOL_ERROR)


def test_cuts_turn_an_engine_bad_only_after_a_probe() -> None:
    """A crash cuts many requests: a dead engine does not turn bad by cuts; one that passes its probe does."""
    tracker = tracker_of_one()
    assert not breach(tracker, 1.0, 3, RequestOutcome.CUT)
    assert http2_probes(tracker, 1.0) == [A]
    tracker.record_probe(A, good=None, http1=None, now=1.0)
    assert not breach(tracker, 1.5, 30, RequestOutcome.CUT)
    assert moved_pools(tracker) == frozenset()
    assert http2_probes(tracker, 1.0 + UNREACHED_SECONDS) == [A]
    tracker.record_probe(A, good=True, http1=True, now=4.0)
    assert not breach(tracker, 5.0, 2, RequestOutcome.CUT)
    assert breach(tracker, 5.0, 1, RequestOutcome.CUT)
    tracker = tracker_of_one()
    breach(tracker, 1.0, 3, RequestOutcome.CUT)
    assert http2_probes(tracker, 1.0) == [A]
    assert tracker.record_probe(A, good=False, http1=True, now=1.0)
    assert moved_pools(tracker) == {"p"}


def test_answer_to_a_client_clears_suspicion() -> None:
    tracker = tracker_of_one()
    breach(tracker, 1.0, 3, RequestOutcome.CUT)
    http2_probes(tracker, 1.0)
    tracker.record_probe(A, good=True, http1=True, now=1.0)
    tracker.record(A, RequestOutcome.ANSWERED, 2.0)
    assert not breach(tracker, 3.0, 3, RequestOutcome.CUT)


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("other", [False, None])
def test_pool_moves_only_if_all_engines_speak_http1(other: bool | None, trusted: bool) -> None:
    tracker = Http2Tracker(SETTINGS)
    tracker.follow([(A, "p", trusted, True), ("b:1", "p", trusted, True)])
    http2_probes(tracker, 0.0)
    tracker.record_probe(A, good=True, http1=True, now=0.0)
    tracker.record_probe("b:1", good=True, http1=other, now=0.0)
    breach(tracker, 1.0)
    this: frozenset[str] = frozenset({"p"})
    assert tracker.choose_protocols() == ProtocolChoice(
        unmovable=this, upgrades=frozenset() if other is False else this
    )
    http2_probes(tracker, 5.0)
    tracker.record_probe("b:1", good=True, http1=True, now=5.0)
    assert moved_pools(tracker) == {"p"}
    tracker.record_http1_failure("b:1", 6.0)
    assert [probe.address for probe in tracker.start_probes(6.0)] == ["b:1"]
    tracker.record_probe("b:1", good=None, http1=None, now=6.0)
    assert moved_pools(tracker) == {"p"}, "the last result stays while it cannot be reached"
    tracker.start_probes(9.0)
    tracker.record_probe("b:1", good=None, http1=False, now=9.0)
    assert moved_pools(tracker) == frozenset()


def test_http1_probes_pause_twice_as_long_each_time() -> None:
    """These probes do not test HTTP/2: a bad engine has its own pauses."""
    tracker = tracker_of_one(good=False, http1=False)
    at = 0.0
    for pause in (2.0, 4.0):
        assert tracker.start_probes(at + pause - 0.1) == []
        at += pause
        assert tracker.start_probes(at) == [(A, "p", False)]
        tracker.record_probe(A, good=None, http1=False, now=at)
    assert tracker.start_probes(10.0) == [(A, "p", True)], "both at once when its pause is over"


def test_http2_probes_back_off_up_to_the_longest_pause() -> None:
    tracker, now = tracker_of_one(), 1.0
    breach(tracker, now)
    for pause in (10.0, 20.0, 35.0, 35.0):
        assert http2_probes(tracker, now + pause - 0.1) == []
        now += pause
        assert http2_probes(tracker, now) == [A]
        assert not tracker.record_probe(A, good=False, http1=True, now=now)
        assert moved_pools(tracker) == {"p"}


def test_quick_relapse_needs_one_breach() -> None:
    tracker = tracker_of_one()
    breach(tracker, 1.0)
    assert http2_probes(tracker, 11.0) == [A]
    assert tracker.record_probe(A, good=True, http1=True, now=11.0)
    assert moved_pools(tracker) == frozenset()
    assert breach(tracker, 12.0, 1)
    assert http2_probes(tracker, 31.0) == []
    assert http2_probes(tracker, 32.0) == [A]


def test_late_relapse_needs_all_breaches() -> None:
    tracker = tracker_of_one()
    breach(tracker, 1.0)
    http2_probes(tracker, 11.0)
    tracker.record_probe(A, good=True, http1=True, now=11.0)
    assert not breach(tracker, 22.0, 1)
    assert breach(tracker, 22.0, 2)
    assert http2_probes(tracker, 32.0) == [A]


def test_engine_without_probes_is_tried_with_requests() -> None:
    tracker = tracker_of_one(can_probe=False, good=None)
    assert tracker.start_probes(0.0) == [(A, "p", False)], "for HTTP/1.1, before anybody is moved to it"
    tracker.record_probe(A, good=None, http1=True, now=0.0)
    assert moved_pools(tracker) == frozenset()
    breach(tracker, 1.0)
    assert moved_pools(tracker) == {"p"}
    assert http2_probes(tracker, 11.0) == []
    assert moved_pools(tracker) == frozenset()
    assert breach(tracker, 11.5, 1)


def test_state_goes_with_its_engine() -> None:
    tracker = tracker_of_one()
    breach(tracker, 1.0)
    tracker.follow([(A, "p", True, True), ("b:1", "p", True, True)])
    assert http2_probes(tracker, 1.0) == ["b:1"]
    tracker.record_probe("b:1", good=True, http1=True, now=1.0)
    assert moved_pools(tracker) == {"p"}
    tracker.follow([("b:1", "p", True, True)])
    assert moved_pools(tracker) == frozenset()
    tracker.record_probe(A, good=False, http1=False, now=2.0)
    assert not tracker.record(A, RequestOutcome.PROTOCOL_ERROR, 2.0)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 30),
            st.sampled_from([*RequestOutcome, "good", "bad", "unreached", "probe"]),
            st.booleans(),
        ),
        max_size=60,
    ),
    st.booleans(),
)
def test_bad_engine_always_has_a_next_probe(events: list[Any], can_probe: bool) -> None:
    """Nothing leaves it bad for ever: a probe is in flight or begins within the longest pause."""
    tracker, now, open_ = tracker_of_one(can_probe=can_probe, good=None), 0.0, False
    for wait, event, _ in events:
        now += wait
        if isinstance(event, RequestOutcome):
            tracker.record(A, event, now)
        elif event == "probe":
            open_ = bool(tracker.start_probes(now)) or open_
        elif open_:
            open_ = False
            answer = {"good": True, "bad": False, "unreached": None}[event]
            tracker.record_probe(A, good=answer if can_probe else None, http1=answer, now=now)
        for _, at in tracker.bad():
            assert open_ or (at is not None and at <= now + SETTINGS.most_pause_seconds)
