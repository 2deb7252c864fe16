"""What routing remembers beside the index, and who may be refused."""

from __future__ import annotations

import numpy as np
import pytest

from ext_proc.director import admission
from ext_proc.director.pools import Restarts
from ext_proc.director.sessions import Sessions
from fleet.settings.picks import AdmissionSettings

NAN = float("nan")


# Sessions.


def test_session_expires_after_silence() -> None:
    sessions = Sessions(entries=10, expiry_seconds=60.0)
    assert sessions.endpoint(1, 0.0) == ""
    sessions.note(1, "a:1", 0.0)
    sessions.note(1, "b:1", 50.0)
    assert sessions.endpoint(1, 110.0) == "b:1"
    assert sessions.endpoint(1, 110.1) == ""
    assert len(sessions) == 0


def test_sessions_are_bounded_and_the_oldest_go_first() -> None:
    sessions = Sessions(entries=3, expiry_seconds=1e9)
    for session in (1, 2, 3, 1, 4):
        sessions.note(session, "a:1", float(session))
    assert [sessions.endpoint(session, 5.0) for session in (1, 2, 3, 4)] == ["a:1", "", "a:1", "a:1"]


def test_expired_sessions_make_room_while_others_come() -> None:
    sessions = Sessions(entries=1000, expiry_seconds=10.0)
    for session in range(500):
        sessions.note(session, "a:1", 0.0)
    for session in range(500, 1000):
        sessions.note(session, "a:1", 20.0)
    assert len(sessions) == 500


def test_a_smaller_limit_is_reached_by_and_by() -> None:
    sessions = Sessions(entries=100, expiry_seconds=1e9)
    for session in range(100):
        sessions.note(session, "a:1", 0.0)
    sessions.entries = 10
    for session in range(100, 200):
        sessions.note(session, "a:1", 0.0)
    assert len(sessions) == 10


# Restarts.


def ticks(*progress: float, reachable: tuple[float, ...] = ()) -> list[bool]:
    """Whether one engine counts as restarted at each tick."""
    restarts = Restarts()
    there = reachable or (1.0,) * len(progress)
    return [
        bool(restarts.update(["a:1"], np.array([total]), np.array([answers])))
        for total, answers in zip(progress, there, strict=True)
    ]


@pytest.mark.parametrize(
    ("progress", "restarted"),
    [
        ((100, 200, 300), (False, False, False)),
        ((1000, 20, 40), (False, True, False)),
        ((1000, NAN, 1100), (False, False, False)),
        ((1000, NAN, NAN, 30), (False, False, False, True)),
        ((1000, 0, 10, 2000), (False, True, False, False)),
        ((1000, 990), (False, False)),
        ((NAN, NAN), (False, False)),
        ((0, 0), (False, False)),
    ],
)
def test_an_engine_whose_counters_fell_has_begun_anew(
    progress: tuple[float, ...], restarted: tuple[bool, ...]
) -> None:
    """What a page lacks for a moment is unknown, and a little less is a series that went."""
    assert ticks(*progress) == list(restarted)


def test_engine_that_was_unreachable_has_restarted() -> None:
    nothing = (NAN,) * 5
    assert ticks(*nothing, reachable=(1, 0, 0, 1, 1)) == [False, False, False, True, False]
    assert ticks(*nothing, reachable=(1, 0, NAN, NAN, 1)) == [False, False, False, False, True]
    assert ticks(*nothing, reachable=(NAN, 1, NAN, 1, 1)) == [False] * 5


def test_an_endpoint_that_left_is_not_compared_with_what_it_was() -> None:
    restarts = Restarts()
    restarts.update(["a:1"], np.array([1000.0]), np.array([1.0]))
    restarts.keep(["b:1"])
    assert restarts.update(["a:1"], np.array([5.0]), np.array([1.0])) == []


# Admission.

LIMITED = AdmissionSettings(most_wait_seconds=2.0, most_queue=10)


def refused(waits: list[float], queues: list[float], settings: AdmissionSettings = LIMITED) -> float | None:
    """After how many seconds to come again; None: not refused."""
    found = admission.refusal(settings, np.array(waits), np.array(queues))
    if found is None:
        return None
    assert found.status == 429
    return found.retry_after_seconds


@pytest.mark.parametrize(
    ("waits", "queues", "after"),
    [
        ([2.1, 9.0], [0, 0], 1.0),
        ([2.0, 9.0], [0, 0], None),
        ([2.1, 1.0], [0, 11], 1.0),
        ([9.5, 30.0], [NAN, NAN], 8.0),
        ([0.0, 0.0], [11, 11], 1.0),
        ([0.0, 0.0], [11, NAN], None),
        ([0.0, 0.0], [10, 11], None),
        ([500.0], [0], 60.0),
        ([], [], None),
    ],
)
def test_only_when_all_are_past_a_limit_is_a_request_refused(
    waits: list[float], queues: list[float], after: float | None
) -> None:
    assert refused(waits, queues) == after


@pytest.mark.parametrize(
    "settings", [AdmissionSettings(), AdmissionSettings(most_queue=5), AdmissionSettings(most_wait_seconds=5)]
)
def test_a_limit_that_is_not_set_limits_nothing(settings: AdmissionSettings) -> None:
    waits = 1e9 if settings.most_wait_seconds is None else 5.0
    queues = 1e9 if settings.most_queue is None else 5.0
    assert refused([waits], [queues], settings) is None
    assert settings.enabled is (settings != AdmissionSettings())


@pytest.mark.parametrize(
    ("header", "tenant", "priority"),
    [
        ("-3", "", -3),
        (" 7 ", "batch", 7),
        ("+2", "", 2),
        ("", "batch", -5),
        ("high", "batch", -5),
        ("--3", "", 0),
        ("1e3", "", 0),
        ("٣", "", 0),
        ("9" * 5000, "batch", -5),
        ("", "nobody", 0),
    ],
)
def test_a_priority_is_the_headers_else_the_tenants_else_0(header: str, tenant: str, priority: int) -> None:
    settings = AdmissionSettings(priority_header="x-priority", tenant_priorities={"batch": -5})
    assert admission.priority(settings, {"x-priority": header}, tenant) == priority


def test_priority_needs_a_configured_header() -> None:
    assert admission.priority(AdmissionSettings(), {"": "9", "x-priority": "9"}, "") == 0
