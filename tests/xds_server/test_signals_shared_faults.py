"""Whose fault a failed request is, and which good answers are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.xds_server.test_signals_refusals import A, B, C, answer
from xds_server.signals.passive.shared_faults import MOST_CASES, WINDOW_SECONDS, SharedFaults
from xds_server.signals.passive.unproductive import MANY, PATIENCE_SECONDS, Unproductive

if TYPE_CHECKING:
    from xds_server.access_log.finished import Finished

NOBODY: frozenset[str] = frozenset()
SAME = {"request": "a1", "prefix": "p1"}


def fault(address: str, metadata: dict[str, str] | None = None, **fields: Any) -> Finished:
    return answer(address, fields.pop("status", 500), metadata=metadata or SAME, **fields)


def test_request_that_fails_at_each_engine_is_nobodys_fault() -> None:
    shared = SharedFaults()
    assert shared.record(fault(A), 0.0) == NOBODY, "no evidence yet"
    assert shared.record(fault(A), 1.0) == NOBODY, "it is A's alone"
    assert shared.record(fault(B), 2.0) == {B}
    assert shared.record(fault(A), 3.0) == {A}


@pytest.mark.parametrize("status", [200, 400])
def test_good_answer_is_evidence_against_engines_that_fail(status: int) -> None:
    shared = SharedFaults()
    for address in (A, B):
        shared.record(fault(address), 0.0)
    shared.record(answer(C, status, metadata=SAME), 1.0)
    assert shared.record(fault(A), 2.0) == NOBODY
    assert shared.record(fault(B), 3.0) == NOBODY
    shared.record(fault(A), 1.5 + WINDOW_SECONDS)
    assert shared.record(fault(B), 1.5 + WINDOW_SECONDS) == {B}, "answers of old are no evidence"


@pytest.mark.parametrize(("field", "other"), [("request", "prefix"), ("prefix", "request")])
def test_either_digest_is_enough(field: str, other: str) -> None:
    """Repetitions of one request among good ones, and all requests of one application."""
    shared = SharedFaults()
    shared.record(fault(A, {field: "x", other: "1"}), 0.0)
    shared.record(answer(C, metadata={field: "y", other: "2"}), 0.0)
    assert shared.record(fault(B, {field: "x", other: "2"}), 1.0) == {B}


@pytest.mark.parametrize(
    "fields", [{"flags": ("UC",)}, {"first_byte_seconds": None}, {"flags": ("DC",)}, {"metadata": {"k": "v"}}]
)
def test_lost_connections_and_missing_digests_excuse_nobody(fields: dict[str, Any]) -> None:
    shared = SharedFaults()
    shared.record(fault(A, **fields), 0.0)
    assert shared.record(fault(B, **fields), 0.0) == NOBODY


def test_both_attempts_of_a_request_are_evidence() -> None:
    assert SharedFaults().record(fault(B, status=503, picked=A, attempts=2), 0.0) == {A, B}


def test_cases_are_bounded() -> None:
    shared = SharedFaults()
    for number in range(3 * MOST_CASES):
        shared.record(fault(A, {"request": str(number)}), 0.0)
    assert len(shared._cases) == MOST_CASES


class Fleet:
    """Two engines of one pool, and a third one of another."""

    def __init__(self) -> None:
        self.rows = Unproductive()
        self.rows.remap_rows(np.full(3, -1))
        self.now = 0.0
        self.progress = np.ones(3)

    def seconds(self, count: int, answers: tuple[int, int, int], work: tuple[float, ...]) -> list[bool]:
        for _ in range(count):
            self.now += 1.0
            self.progress = self.progress + np.array(work)
            result = self.rows.step(np.array(answers), self.progress, np.array([0, 0, 1]), self.now)
        return [bool(each) for each in result]


def test_answers_without_work_are_unproductive() -> None:
    fleet = Fleet()
    assert fleet.seconds(int(PATIENCE_SECONDS), (MANY, 1, 1), (0, 1, 0)) == [False] * 3
    assert fleet.seconds(2, (MANY, 1, 1), (0, 1, 0)) == [True, False, False]
    assert fleet.seconds(1, (MANY, 1, 1), (1, 1, 0)) == [False] * 3


@pytest.mark.parametrize(
    ("answers", "work"),
    [((MANY, 1, 1), (0, 0, 1)), ((0, 1, 0), (0, 1, 0)), ((MANY, 0, 0), (0, np.nan, 0))],
    ids=["no counter of the pool moves", "no answers", "no work of a peer is known"],
)
def test_without_evidence_no_engine_is_unproductive(
    answers: tuple[int, int, int], work: tuple[float, ...]
) -> None:
    assert Fleet().seconds(4 * int(PATIENCE_SECONDS), answers, work) == [False] * 3
