"""Who is ready: a pure state machine on time that is given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds_server.endpoints.gate import Verdict
from xds_server.endpoints.readiness import (
    BEGUN_LATER_SECONDS,
    GOOD_ANSWERS,
    NO_CONNECTIONS,
    SETTLED_SECONDS,
    Readiness,
)

A, B = "10.0.0.1:80", "10.0.0.2:80"
NOW = 100.0


def proven() -> Readiness:
    """A has passed a probe once."""
    readiness = Readiness()
    readiness.passed(A)
    return readiness


def test_one_in_doubt_is_served_until_its_probe_says_no_and_again_when_it_passes() -> None:
    readiness = proven()
    assert readiness.doubt(A, NOW)
    assert (readiness.in_doubt(), readiness.not_ready()) == ({A}, frozenset())
    assert readiness.heard(A, Verdict.NOT_READY, NOW)
    assert readiness.not_ready() == {A}
    assert not readiness.heard(A, Verdict.NOT_READY, NOW)
    assert not readiness.heard(A, Verdict.UNKNOWN, NOW)
    assert readiness.heard(A, Verdict.READY, NOW)
    assert (readiness.in_doubt(), readiness.not_ready()) == (frozenset(), frozenset())


@pytest.mark.parametrize("verdict", [Verdict.READY, Verdict.SILENT])
def test_a_probe_that_passes_ends_a_doubt_and_the_next_one_comes_later(verdict: Verdict) -> None:
    """Else an engine that fails some requests were probed with each of them."""
    readiness = proven()
    readiness.doubt(A, NOW)
    assert not readiness.heard(A, verdict, NOW), "nobody has noticed"
    assert not readiness.doubt(A, NOW + SETTLED_SECONDS / 2)
    assert readiness.doubt(A, NOW + SETTLED_SECONDS)


def test_a_refused_connection_is_a_no_at_once() -> None:
    readiness = proven()
    assert readiness.doubt(A, NOW, refused=True)
    assert readiness.not_ready() == {A}
    assert not readiness.doubt(A, NOW, refused=True)
    readiness.heard(A, Verdict.READY, NOW)
    assert readiness.doubt(A, NOW, refused=True), "however soon"


def test_where_no_probe_has_passed_yet_a_refused_connection_is_a_doubt() -> None:
    """The engine may not support the probe, and would never get in again."""
    readiness = Readiness()
    assert readiness.doubt(A, NOW, refused=True)
    assert readiness.not_ready() == frozenset()
    assert not readiness.heard(A, Verdict.UNKNOWN, NOW)
    assert readiness.in_doubt() == frozenset()


def test_no_connection_counts_twice_in_a_row() -> None:
    readiness = proven()
    readiness.doubt(A, NOW)
    assert NO_CONNECTIONS == 2
    assert not readiness.heard(A, Verdict.NO_CONNECTION, NOW)
    assert readiness.heard(A, Verdict.NO_CONNECTION, NOW)
    assert readiness.not_ready() == {A}


def test_one_that_answers_clients_although_its_probe_says_no_is_ready_and_its_probe_is_not_believed() -> None:
    readiness = proven()
    readiness.doubt(A, NOW)
    readiness.heard(A, Verdict.NOT_READY, NOW)
    later = NOW + BEGUN_LATER_SECONDS + 10
    assert not any(readiness.answered(A, 10.1, later) for _ in range(9)), "begun before the verdict"
    assert [readiness.answered(A, 9.0, later) for _ in range(GOOD_ANSWERS)] == [False, False, True]
    assert readiness.not_ready() == frozenset()
    readiness.doubt(A, later + 10, refused=True)
    assert not readiness.heard(A, Verdict.NOT_READY, later + 10)
    assert (readiness.in_doubt(), readiness.not_ready()) == (frozenset(), frozenset())
    readiness.doubt(A, later + 20)
    readiness.heard(A, Verdict.READY, later + 20)
    assert readiness.doubt(A, later + 30, refused=True)
    assert readiness.not_ready() == {A}, "it has passed, so it is believed again"


def test_those_who_are_gone_are_forgotten() -> None:
    readiness = proven()
    readiness.doubt(A, NOW, refused=True)
    readiness.doubt(B, NOW)
    readiness.keep({B})
    assert (readiness.in_doubt(), readiness.not_ready()) == ({B}, frozenset())
    readiness.doubt(A, NOW, refused=True)
    assert readiness.not_ready() == frozenset(), "a newcomer has passed nothing"


EVENTS = st.lists(
    st.one_of(st.sampled_from(list(Verdict)), st.sampled_from(["doubt", "refused", "answered"])), max_size=60
)


@given(EVENTS)
def test_whoever_is_not_ready_is_probed_and_a_probe_that_passes_always_lets_it_in(events: list) -> None:
    readiness, now = Readiness(), NOW
    for event in [*events, Verdict.READY]:
        now += 0.3
        if isinstance(event, Verdict):
            readiness.heard(A, event, now)
        elif event == "answered":
            readiness.answered(A, 0.1, now)
        else:
            readiness.doubt(A, now, refused=event == "refused")
        assert readiness.not_ready() <= readiness.in_doubt()
    assert readiness.not_ready() == frozenset()
