"""Who is spoken to in HTTP/2: what moves an engine away from it and back, and after which pauses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.settings import Http2Settings
from xds_server.http2.standing import UNREACHED_SECONDS, Http2Standings, Seen

SETTINGS = Http2Settings(errors=3, window_seconds=60.0, pause_seconds=10.0, most_pause_seconds=35.0)
A = "10.0.0.1:1"


def standings(*, trusted: bool = True, askable: bool = True, good: bool | None = True) -> Http2Standings:
    """One engine of one pool that has answered our first question, unless `good` is None."""
    made = Http2Standings(SETTINGS)
    made.follow([(A, "p", trusted, askable)])
    if good is not None:
        assert made.due(0.0) == [A]
        made.answered(A, good=good, now=0.0)
    return made


def breach(made: Http2Standings, now: float, count: int = 3, seen: Seen = Seen.BROKEN) -> bool:
    return [made.heard(A, seen, now) for _ in range(count)][-1]


def test_a_new_engine_is_asked_once_until_it_answers() -> None:
    made = standings(good=None)
    assert made.due(0.0) == [A]
    assert made.due(100.0) == []
    made.answered(A, good=None, now=100.0)
    assert made.due(100.0) == []
    assert made.due(100.0 + UNREACHED_SECONDS) == [A]


def test_until_it_answers_its_pool_goes_by_what_the_protocol_trusts() -> None:
    assert standings(trusted=True, good=None).moved() == frozenset()
    assert standings(trusted=False, good=None).moved() == {"p"}
    assert standings(trusted=False, good=True).moved() == frozenset()
    assert standings(trusted=True, good=False).moved() == {"p"}


def test_one_engine_moves_its_pool_and_no_other() -> None:
    made = Http2Standings(SETTINGS)
    made.follow([(A, "p", True, True), ("b:1", "p", True, True), ("c:1", "q", True, True)])
    assert breach(made, 1.0)
    assert made.moved() == {"p"}


def test_breaches_count_only_within_the_window() -> None:
    made = standings()
    assert not breach(made, 1.0, 2)
    assert not breach(made, 61.5, 2)
    assert breach(made, 62.0, 1)


def test_an_answer_forgives_what_may_be_the_engines_own_and_no_protocol_error() -> None:
    made = standings()
    breach(made, 1.0, 2, Seen.CUT)
    made.heard(A, Seen.ANSWERED, 1.0)
    assert not breach(made, 1.0, 2, Seen.CUT)
    assert breach(made, 1.0, 1, Seen.CUT)
    made = standings()
    breach(made, 1.0, 2, Seen.BROKEN)
    made.heard(A, Seen.ANSWERED, 1.0)
    assert breach(made, 1.0, 1, Seen.BROKEN)


def test_it_is_tried_again_after_pauses_that_double_up_to_the_longest() -> None:
    made, now = standings(), 1.0
    breach(made, now)
    for pause in (10.0, 20.0, 35.0, 35.0):
        assert made.due(now + pause - 0.1) == []
        now += pause
        assert made.due(now) == [A]
        assert not made.answered(A, good=False, now=now)
        assert made.moved() == {"p"}


def test_a_good_answer_brings_it_back_and_a_quick_relapse_needs_one_breach() -> None:
    made = standings()
    breach(made, 1.0)
    assert made.due(11.0) == [A]
    assert made.answered(A, good=True, now=11.0)
    assert made.moved() == frozenset()
    assert breach(made, 12.0, 1)
    assert made.due(31.0) == []
    assert made.due(32.0) == [A]


def test_who_was_well_for_longer_than_its_pause_begins_anew() -> None:
    made = standings()
    breach(made, 1.0)
    made.due(11.0)
    made.answered(A, good=True, now=11.0)
    assert not breach(made, 22.0, 1)
    assert breach(made, 22.0, 2)
    assert made.due(32.0) == [A]


def test_engines_that_cannot_be_asked_are_tried_with_requests() -> None:
    made = standings(askable=False, good=None)
    assert made.due(0.0) == []
    assert made.moved() == frozenset()
    breach(made, 1.0)
    assert made.moved() == {"p"}
    assert made.due(11.0) == []
    assert made.moved() == frozenset()
    assert breach(made, 11.5, 1)


def test_what_is_known_stays_with_the_engine_and_goes_with_it() -> None:
    made = standings()
    breach(made, 1.0)
    made.follow([(A, "p", True, True), ("b:1", "p", True, True)])
    assert made.moved() == {"p"}
    made.follow([("b:1", "p", True, True)])
    assert made.moved() == frozenset()
    made.answered(A, good=False, now=2.0)
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
def test_whatever_happens_a_bad_engine_is_tried_again_in_time(events: list, askable: bool) -> None:
    """Nothing leaves it bad for ever: a question is open, or one is due within the longest pause."""
    made, now, asked = standings(askable=askable, good=None), 0.0, False
    for wait, event, _ in events:
        now += wait
        if isinstance(event, Seen):
            made.heard(A, event, now)
        elif event == "due":
            asked = bool(made.due(now)) or asked
        elif asked:
            asked = False
            made.answered(A, good={"good": True, "bad": False, "unreached": None}[event], now=now)
        for _, at in made.bad():
            assert asked or (at is not None and at <= now + SETTINGS.most_pause_seconds)
