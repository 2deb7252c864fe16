"""Which endpoints are ready: a pure state machine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.endpoint import Endpoint
from xds_server.endpoints.gate import ProbeResult
from xds_server.endpoints.readiness import GOOD_ANSWERS, SETTLED_SECONDS, Readiness
from xds_server.signals.passive.reach import BEGUN_LATER_SECONDS

A, B = "10.0.0.1:80", "10.0.0.2:80"
NOW = 100.0


def proven() -> Readiness:
    """A has passed a probe once."""
    readiness = Readiness()
    readiness.passed(A)
    return readiness


def test_suspect_is_served_until_its_probe_fails() -> None:
    readiness = proven()
    assert readiness.suspect(A, NOW)
    assert (readiness.suspects(), readiness.not_ready()) == ({A}, frozenset())
    assert readiness.record(A, ProbeResult.NOT_READY, NOW)
    assert readiness.not_ready() == {A}
    assert not readiness.record(A, ProbeResult.NOT_READY, NOW)
    assert not readiness.record(A, ProbeResult.UNKNOWN, NOW)
    assert readiness.record(A, ProbeResult.READY, NOW)
    assert (readiness.suspects(), readiness.not_ready()) == (frozenset(), frozenset())


@pytest.mark.parametrize("result", [ProbeResult.READY, ProbeResult.SILENT])
def test_passing_probe_ends_a_suspicion(result: ProbeResult) -> None:
    """Else an engine that fails some requests were probed with each of them."""
    readiness = proven()
    readiness.suspect(A, NOW)
    assert not readiness.record(A, result, NOW), "nobody has noticed"
    assert not readiness.suspect(A, NOW + SETTLED_SECONDS / 2)
    assert readiness.suspect(A, NOW + SETTLED_SECONDS)


def test_refused_connection_is_not_ready_at_once() -> None:
    readiness = proven()
    assert readiness.suspect(A, NOW, refused=True)
    assert readiness.not_ready() == {A}
    assert not readiness.suspect(A, NOW, refused=True)
    readiness.record(A, ProbeResult.READY, NOW)
    assert readiness.suspect(A, NOW, refused=True), "however soon"


def test_refusal_before_any_passed_probe_is_a_suspicion() -> None:
    """The engine may not support the probe, and would never get in again."""
    readiness = Readiness()
    assert readiness.suspect(A, NOW, refused=True)
    assert readiness.not_ready() == frozenset()
    assert not readiness.record(A, ProbeResult.UNKNOWN, NOW)
    assert readiness.suspects() == frozenset()


def test_probe_without_connection_proves_nothing() -> None:
    """However often: nor does it throw one out again that answers clients although its probe said no."""
    readiness = proven()
    readiness.suspect(A, NOW)
    assert not any(readiness.record(A, ProbeResult.NO_CONNECTION, NOW + second) for second in range(60))
    assert readiness.not_ready() == frozenset()
    assert readiness.record(A, ProbeResult.NOT_READY, NOW + 60)
    was_ready = []
    for second in range(61, 200):
        now = NOW + second
        readiness.suspect(A, now)
        if A in readiness.suspects():
            readiness.record(A, ProbeResult.NO_CONNECTION, now)
        for _ in range(GOOD_ANSWERS):
            readiness.answered(A, 0.1, now)
        was_ready.append(A not in readiness.not_ready())
    assert was_ready == sorted(was_ready), "once let in again it stays"
    assert was_ready[-1]


def test_answer_of_unknown_duration_proves_nothing() -> None:
    """It may have begun before the result."""
    readiness = proven()
    readiness.suspect(A, NOW)
    readiness.record(A, ProbeResult.NOT_READY, NOW)
    assert not any(readiness.answered(A, None, NOW + 60) for _ in range(9))
    assert readiness.not_ready() == {A}


def test_good_answers_disregard_a_failing_probe() -> None:
    readiness = proven()
    readiness.suspect(A, NOW)
    readiness.record(A, ProbeResult.NOT_READY, NOW)
    later = NOW + BEGUN_LATER_SECONDS + 10
    assert not any(readiness.answered(A, 10.1, later) for _ in range(9)), "begun before the result"
    assert [readiness.answered(A, 9.0, later) for _ in range(GOOD_ANSWERS)] == [False, False, True]
    assert readiness.not_ready() == frozenset()
    readiness.suspect(A, later + 10, refused=True)
    assert not readiness.record(A, ProbeResult.NOT_READY, later + 10)
    assert readiness.not_ready() == frozenset()
    assert readiness.suspects() == {A}, "it goes on being probed"
    readiness.record(A, ProbeResult.READY, later + 20)
    assert readiness.suspects() == frozenset()
    assert readiness.suspect(A, later + 30, refused=True)
    assert readiness.not_ready() == {A}, "it has passed, so it is believed again"


def pool(*addresses: str, name: str = "p") -> list[Endpoint]:
    return [Endpoint(address, pool=name) for address in addresses]


def test_failure_counts_while_another_probe_passes() -> None:
    readiness = proven()
    readiness.suspect(A, NOW, refused=True)
    assert readiness.kept_out(pool(A, B)) == {A}
    assert readiness.kept_out([*pool(A), *pool(B, name="other")]) == frozenset()
    readiness.suspect(B, NOW)
    assert readiness.kept_out(pool(A, B)) == {A}, "a doubt is no no"
    readiness.record(B, ProbeResult.NOT_READY, NOW)
    assert readiness.kept_out(pool(A, B)) == frozenset()


def test_disregarded_probe_does_not_attract_all_requests() -> None:
    readiness = proven()
    for address in (A, B):
        readiness.suspect(address, NOW)
        readiness.record(address, ProbeResult.NOT_READY, NOW)
    later = NOW + BEGUN_LATER_SECONDS + 1
    for _ in range(GOOD_ANSWERS):
        readiness.answered(A, 0.1, later)
    assert readiness.not_ready() == {B}
    assert readiness.kept_out(pool(A, B)) == frozenset()
    readiness.record(A, ProbeResult.READY, later)
    assert readiness.kept_out(pool(A, B)) == {B}


def test_those_who_are_gone_are_forgotten() -> None:
    readiness = proven()
    readiness.suspect(A, NOW, refused=True)
    readiness.suspect(B, NOW)
    readiness.keep({B})
    assert (readiness.suspects(), readiness.not_ready()) == ({B}, frozenset())
    readiness.suspect(A, NOW, refused=True)
    assert readiness.not_ready() == frozenset(), "a newcomer has passed nothing"


EVENTS = st.lists(
    st.one_of(st.sampled_from(list(ProbeResult)), st.sampled_from(["doubt", "refused", "answered"])),
    max_size=60,
)


@given(EVENTS)
def test_not_ready_endpoints_are_probed_until_they_pass(events: list[Any]) -> None:
    readiness, now = Readiness(), NOW
    for event in [*events, ProbeResult.READY]:
        now += 0.3
        if isinstance(event, ProbeResult):
            readiness.record(A, event, now)
        elif event == "answered":
            readiness.answered(A, 0.1, now)
        else:
            readiness.suspect(A, now, refused=event == "refused")
        assert readiness.not_ready() <= readiness.suspects()
    assert readiness.not_ready() == frozenset()
