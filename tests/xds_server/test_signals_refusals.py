"""Whom refusals speak against: an endpoint that refuses what its peers take, not who gets a bad client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xds_server.access_log.finished import Finished
from xds_server.signals.passive.refusals import (
    FADED_SECONDS,
    MANY_CLIENTS,
    MOST_CASES,
    WINDOW_SECONDS,
    Refusals,
    _Case,
)

A, B, C, D = ENDS = tuple(f"10.0.0.{n}:80" for n in range(4))
TICK = 0.25


def answer(address: str, status: int = 200, prefix: str = "shared", **fields: Any) -> Finished:
    values: dict[str, Any] = {
        "picked": address,
        "cluster": "p",
        "request_id": "",
        "started_at": 0.0,
        "first_byte_seconds": 0.01,
        "duration_seconds": 0.01,
        "flags": (),
        "attempts": 1,
        "metadata": {"prefix": prefix, "prompt": "00000000000000ff"},
        **fields,
    }
    return Finished(address=address, status=status, **values)


class World:
    """Four endpoints of one pool and a clock."""

    def __init__(self) -> None:
        self.refusals = Refusals()
        self.refusals.remap_rows(ENDS, np.full(4, -1))
        self.now = 100.0
        self.good = np.zeros(4, np.int64)
        self.blamed = np.zeros(4, np.int64)

    def take(self, *finished: Finished) -> None:
        for entry in finished:
            self.refusals.record(entry, self.now)
            self.good[ENDS.index(entry.address)] += entry.status < 400

    def tick(self) -> list[int]:
        """Return what speaks against each, in this tick alone."""
        self.now += TICK
        blamed = self.refusals.step(np.zeros(4, np.int64), self.good, self.now)
        self.good = np.zeros(4, np.int64)
        self.blamed += blamed
        listed: list[int] = blamed.tolist()
        return listed


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429])
def test_who_refuses_what_its_peers_answer_is_at_fault(status: int) -> None:
    world = World()
    world.take(answer(A, status), answer(B), answer(C), answer(A, status))
    assert world.tick() == [2, 0, 0, 0]
    assert world.tick() == [0, 0, 0, 0], "each refusal speaks once"


def test_it_may_show_later_when_the_client_tries_again() -> None:
    """Its repeat is answered by another endpoint."""
    world = World()
    world.take(answer(A, 404, "one"))
    assert world.tick() == [0, 0, 0, 0]
    world.take(answer(B, 200, "one"))
    assert world.tick() == [1, 0, 0, 0]


def test_a_client_that_is_refused_by_all_costs_nobody_anything() -> None:
    """Whether its requests are spread or all go to one endpoint, while others are answered."""
    for ends in (ENDS, (A,)):
        world = World()
        for number in range(400):
            world.take(
                answer(ends[number % len(ends)], 400, "its own"), answer(ENDS[number % 4], 200, f"{number}")
            )
            if number % 4 == 0:
                world.tick()
        assert not world.blamed.any()


def test_client_refused_by_all_blames_nobody() -> None:
    """It is refused, by all alike, for what follows the part that it shares with good clients."""
    world = World()
    for number in range(400):
        world.take(answer(ENDS[number % 4], 400), answer(ENDS[number // 4 % 4]))
        world.tick()
    assert not world.blamed.any()


def test_one_that_answers_most_of_it_is_not_at_fault() -> None:
    world = World()
    for _ in range(50):
        world.take(answer(A, 400), answer(A), answer(A), answer(B))
        world.tick()
    assert not world.blamed.any()


def test_who_refuses_many_and_answers_none_is_at_fault() -> None:
    """Of clients that have nothing in common and do not try again."""
    world = World()
    for number in range(4 * MANY_CLIENTS):
        address = ENDS[number % 4]
        world.take(answer(address, 401 if address == A else 200, f"{number}"))
    assert world.tick() == [MANY_CLIENTS, 0, 0, 0]


def test_who_refuses_as_many_as_its_peers_is_not() -> None:
    world = World()
    for number in range(200):
        world.take(answer(ENDS[number % 4], 401 if number % 8 < 4 or number % 4 == 0 else 200, f"{number}"))
    world.tick()
    assert not world.blamed.any()


@pytest.mark.parametrize(
    "fields",
    [{"first_byte_seconds": None}, {"flags": ("DC",)}],
    ids=["Envoy's own answer", "the client left"],
)
def test_only_answers_of_the_endpoint_count(fields: dict[str, Any]) -> None:
    world = World()
    world.take(answer(B), answer(A, 404, **fields), answer(B))
    assert not any(world.tick())


def test_what_is_old_is_no_evidence() -> None:
    world = World()
    world.take(answer(A, 404))
    world.tick()
    world.now += 2 * WINDOW_SECONDS
    world.tick()
    world.take(answer(B))
    assert not any(world.tick())
    assert not world.refusals._cases


def test_what_is_kept_is_bounded() -> None:
    world = World()
    for number in range(3 * MOST_CASES):
        world.take(answer(A, 404, f"{number}"))
    assert len(world.refusals._cases) == MOST_CASES


def test_bad_session_at_an_idle_endpoint_blames_nobody() -> None:
    """It sends what nobody else does, and the endpoint of its session answers nothing else."""
    world = World()
    for number in range(4 * MANY_CLIENTS):
        world.take(answer(A, 400, f"{number}", session=1), answer(B, 200, f"good {number}"))
        world.tick()
    assert not world.blamed.any()


def test_sessions_refused_by_one_endpoint_are_many_clients() -> None:
    world = World()
    for number in range(4 * MANY_CLIENTS):
        address = ENDS[number % 4]
        world.take(answer(address, 401 if address == A else 200, f"{number}", session=number))
    assert world.tick() == [MANY_CLIENTS, 0, 0, 0]


def test_nothing_is_kept_of_gone_or_silent_endpoints() -> None:
    world = World()
    for number in range(100):
        left = f"10.1.0.{number}:80"
        world.refusals.remap_rows((left, A), np.array([-1, 1 if number else -1]))
        world.refusals.record(answer(left, 404), world.now)
        world.refusals.record(answer(A, 404), world.now)
        world.refusals.step(np.zeros(2, np.int64), np.zeros(2, np.int64), world.now)
    world.refusals.record(answer("10.1.0.0:80", 404), world.now)
    (case,) = world.refusals._cases.values()
    assert set(case.by) == set(case.waiting) == set(case.client) == {left, A}
    for _ in range(3):
        world.now += FADED_SECONDS / 2
        world.refusals.record(answer(A, 404), world.now)
    assert set(case.by) == set(case.waiting) == set(case.client) == {A}


def test_step_looks_only_at_cases_with_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else waits: 1,024 leading parts, refused by every endpoint, took 38 ms a tick."""
    world = World()
    for number in range(MOST_CASES):
        world.take(*(answer(address, 404, f"{number}") for address in ENDS))
    world.tick()
    looked: list[_Case] = []

    def against(case: _Case, now: float) -> list[str]:
        looked.append(case)
        return []

    monkeypatch.setattr(_Case, "against", against)
    world.take(answer(A, 404, "0"))
    world.tick()
    assert len(looked) == 1


def test_rows_follow_their_endpoints() -> None:
    world = World()
    world.take(answer(A, 404), answer(B))
    world.refusals.remap_rows((B, A), np.array([-1, 0]))
    blamed = world.refusals.step(np.zeros(2, np.int64), np.zeros(2, np.int64), world.now)
    assert blamed.tolist() == [0, 1]
    world.refusals.remap_rows((), np.zeros(0, np.int64))
    assert not world.refusals.step(np.zeros(0, np.int64), np.zeros(0, np.int64), world.now).size
