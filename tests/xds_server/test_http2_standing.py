"""Who is spoken to in HTTP/2: what moves an engine away from it and back, and after which pauses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.settings import Http2Settings
from xds_server.http2.standing import UNREACHED_SECONDS, Http2Standings, Seen
from xds_server.http2.ways import Ways

SETTINGS = Http2Settings(errors=3, window_seconds=60.0, pause_seconds=10.0, most_pause_seconds=35.0)
A = "10.0.0.1:1"


def standings(
    *, trusted: bool = True, askable: bool = True, good: bool | None = True, http1: bool | None = True
) -> Http2Standings:
    """One engine of one pool that has answered our first question, unless `good` is None."""
    made = Http2Standings(SETTINGS)
    made.follow([(A, "p", trusted, askable)])
    if good is not None:
        assert asked(made, 0.0) == [A]
        made.answered(A, good=good, http1=http1, now=0.0)
    return made


def asked(made: Http2Standings, now: float) -> list[str]:
    """Who is asked for HTTP/2 at this moment."""
    return [question.address for question in made.due(now) if question.http2]


def moved(made: Http2Standings) -> frozenset[str]:
    return made.ways().moved


def breach(made: Http2Standings, now: float, count: int = 3, seen: Seen = Seen.BROKEN) -> bool:
    return [made.heard(A, seen, now) for _ in range(count)][-1]


def test_a_new_engine_is_asked_once_until_it_answers() -> None:
    made = standings(good=None)
    assert asked(made, 0.0) == [A]
    assert asked(made, 100.0) == []
    made.answered(A, good=None, http1=None, now=100.0)
    assert asked(made, 100.0) == []
    assert asked(made, 100.0 + UNREACHED_SECONDS) == [A]


def test_until_it_answers_its_pool_goes_by_what_the_protocol_trusts() -> None:
    assert standings(trusted=True, good=None).ways().moved == frozenset()
    assert standings(trusted=False, good=None).ways().moved == {"p"}
    assert standings(trusted=False, good=True).ways().moved == frozenset()
    assert standings(trusted=True, good=False).ways().moved == {"p"}


def test_one_engine_moves_its_pool_and_no_other() -> None:
    made = Http2Standings(SETTINGS)
    made.follow([(A, "p", True, True), ("b:1", "p", True, True), ("c:1", "q", True, True)])
    for address in asked(made, 0.0):
        made.answered(address, good=True, http1=True, now=0.0)
    assert breach(made, 1.0)
    assert moved(made) == {"p"}


def test_breaches_count_only_within_the_window() -> None:
    made = standings()
    assert not breach(made, 1.0, 2)
    assert not breach(made, 61.5, 2)
    assert breach(made, 62.0, 1)


def test_an_answer_forgives_what_may_be_the_engines_own_and_no_protocol_error() -> None:
    made = standings(askable=False, good=None)
    breach(made, 1.0, 2, Seen.CUT)
    made.heard(A, Seen.ANSWERED, 1.0)
    assert not breach(made, 1.0, 2, Seen.CUT)
    assert breach(made, 1.0, 1, Seen.CUT)
    made = standings()
    breach(made, 1.0, 2, Seen.BROKEN)
    made.heard(A, Seen.ANSWERED, 1.0)
    assert breach(made, 1.0, 1, Seen.BROKEN)


def test_before_cuts_make_an_engine_bad_it_is_asked() -> None:
    """A crash cuts many requests: who is dead is not bad, whatever is cut; who is alive and cuts more is."""
    made = standings()
    assert not breach(made, 1.0, 3, Seen.CUT)
    assert asked(made, 1.0) == [A]
    made.answered(A, good=None, http1=None, now=1.0)
    assert not breach(made, 1.5, 30, Seen.CUT)
    assert moved(made) == frozenset()
    assert asked(made, 1.0 + UNREACHED_SECONDS) == [A]
    made.answered(A, good=True, http1=True, now=4.0)
    assert not breach(made, 5.0, 2, Seen.CUT)
    assert breach(made, 5.0, 1, Seen.CUT)
    made = standings()
    breach(made, 1.0, 3, Seen.CUT)
    assert asked(made, 1.0) == [A]
    assert made.answered(A, good=False, http1=True, now=1.0)
    assert moved(made) == {"p"}


def test_an_answer_to_a_client_ends_what_cuts_have_begun() -> None:
    made = standings()
    breach(made, 1.0, 3, Seen.CUT)
    asked(made, 1.0)
    made.answered(A, good=True, http1=True, now=1.0)
    made.heard(A, Seen.ANSWERED, 2.0)
    assert not breach(made, 3.0, 3, Seen.CUT)


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("other", [False, None])
def test_nobody_is_moved_to_what_one_of_its_pool_may_not_speak(other: bool | None, trusted: bool) -> None:
    made = Http2Standings(SETTINGS)
    made.follow([(A, "p", trusted, True), ("b:1", "p", trusted, True)])
    asked(made, 0.0)
    made.answered(A, good=True, http1=True, now=0.0)
    made.answered("b:1", good=True, http1=other, now=0.0)
    breach(made, 1.0)
    this: frozenset[str] = frozenset({"p"})
    assert made.ways() == Ways(held=this, upgrades=frozenset() if other is False else this)
    asked(made, 5.0)
    made.answered("b:1", good=True, http1=True, now=5.0)
    assert moved(made) == {"p"}
    made.heard_http1("b:1", 6.0)
    assert [question.address for question in made.due(6.0)] == ["b:1"]
    made.answered("b:1", good=None, http1=None, now=6.0)
    assert moved(made) == {"p"}, "what was known stays while it cannot be reached"
    made.due(9.0)
    made.answered("b:1", good=None, http1=False, now=9.0)
    assert moved(made) == frozenset()


def test_who_does_not_speak_http1_is_asked_again_after_pauses_that_double() -> None:
    """And only for that: a bad engine has its own pauses."""
    made = standings(good=False, http1=False)
    at = 0.0
    for pause in (2.0, 4.0):
        assert made.due(at + pause - 0.1) == []
        at += pause
        assert made.due(at) == [(A, "p", False)]
        made.answered(A, good=None, http1=False, now=at)
    assert made.due(10.0) == [(A, "p", True)], "both at once when its pause is over"


def test_it_is_tried_again_after_pauses_that_double_up_to_the_longest() -> None:
    made, now = standings(), 1.0
    breach(made, now)
    for pause in (10.0, 20.0, 35.0, 35.0):
        assert asked(made, now + pause - 0.1) == []
        now += pause
        assert asked(made, now) == [A]
        assert not made.answered(A, good=False, http1=True, now=now)
        assert moved(made) == {"p"}


def test_a_good_answer_brings_it_back_and_a_quick_relapse_needs_one_breach() -> None:
    made = standings()
    breach(made, 1.0)
    assert asked(made, 11.0) == [A]
    assert made.answered(A, good=True, http1=True, now=11.0)
    assert moved(made) == frozenset()
    assert breach(made, 12.0, 1)
    assert asked(made, 31.0) == []
    assert asked(made, 32.0) == [A]


def test_who_was_well_for_longer_than_its_pause_begins_anew() -> None:
    made = standings()
    breach(made, 1.0)
    asked(made, 11.0)
    made.answered(A, good=True, http1=True, now=11.0)
    assert not breach(made, 22.0, 1)
    assert breach(made, 22.0, 2)
    assert asked(made, 32.0) == [A]


def test_engines_that_cannot_be_asked_are_tried_with_requests() -> None:
    made = standings(askable=False, good=None)
    assert made.due(0.0) == [(A, "p", False)], "for HTTP/1.1, before anybody is moved to it"
    made.answered(A, good=None, http1=True, now=0.0)
    assert moved(made) == frozenset()
    breach(made, 1.0)
    assert moved(made) == {"p"}
    assert asked(made, 11.0) == []
    assert moved(made) == frozenset()
    assert breach(made, 11.5, 1)


def test_what_is_known_stays_with_the_engine_and_goes_with_it() -> None:
    made = standings()
    breach(made, 1.0)
    made.follow([(A, "p", True, True), ("b:1", "p", True, True)])
    assert asked(made, 1.0) == ["b:1"]
    made.answered("b:1", good=True, http1=True, now=1.0)
    assert moved(made) == {"p"}
    made.follow([("b:1", "p", True, True)])
    assert moved(made) == frozenset()
    made.answered(A, good=False, http1=False, now=2.0)
    assert not made.heard(A, Seen.BROKEN, 2.0)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 30), st.sampled_from([*Seen, "good", "bad", "unreached", "due"]), st.booleans()
        ),
        max_size=60,
    ),
    st.booleans(),
)
def test_whatever_happens_a_bad_engine_is_tried_again_in_time(events: list[Any], askable: bool) -> None:
    """Nothing leaves it bad for ever: a question is open, or one is due within the longest pause."""
    made, now, open_ = standings(askable=askable, good=None), 0.0, False
    for wait, event, _ in events:
        now += wait
        if isinstance(event, Seen):
            made.heard(A, event, now)
        elif event == "due":
            open_ = bool(made.due(now)) or open_
        elif open_:
            open_ = False
            known = {"good": True, "bad": False, "unreached": None}[event]
            made.answered(A, good=known if askable else None, http1=known, now=now)
        for _, at in made.bad():
            assert open_ or (at is not None and at <= now + SETTINGS.most_pause_seconds)
