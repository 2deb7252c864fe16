"""The table of faults, its document, and how long each counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.gpu.fault_table import (
    CUDA_CODES,
    CUDA_ERRORS,
    CUDA_NAMES,
    CUDA_RULES,
    STATE_RULES,
    XID_RULES,
    XIDS,
    FaultClass,
)
from fleet.gpu.faults import MAX_REMEMBERED, FaultEvent, FaultLog, classify, cuda_code, health
from fleet.settings.weights import FaultSettings

SETTINGS = FaultSettings(transient_seconds=30, isolated_seconds=300)
DOCUMENT = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()


def rows(heading: str) -> list[tuple[str, str, str]]:
    section = DOCUMENT[DOCUMENT.index(f"## {heading}\n") :].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| `(\w+)` \| (.+) \|$", section, flags=re.MULTILINE)
    assert rows
    return [(codes, name, meaning) for codes, name, meaning in rows]


def test_the_document_holds_exactly_the_table() -> None:
    xids = [(", ".join(map(str, r.codes)), r.fault_class.name.lower(), r.meaning) for r in XID_RULES]
    assert rows("XID codes") == xids
    cuda = [
        (", ".join(f"`{CUDA_NAMES[c]}` ({c})" for c in r.codes), r.fault_class.name.lower(), r.meaning)
        for r in CUDA_RULES
    ]
    assert rows("CUDA errors") == cuda
    states = [
        (f"`{name}`", fault_class.name.lower(), text) for name, (fault_class, text) in STATE_RULES.items()
    ]
    assert rows("States of a GPU") == states


def test_each_code_stands_in_one_row_and_has_a_name() -> None:
    for rules, table in ((XID_RULES, XIDS), (CUDA_RULES, CUDA_ERRORS)):
        assert sum(len(rule.codes) for rule in rules) == len(table)
    assert set(CUDA_ERRORS) == set(CUDA_NAMES)
    assert len(CUDA_CODES) == len(CUDA_NAMES)


@pytest.mark.parametrize(
    ("kind", "code", "score"),
    [
        ("cuda", "cudaErrorLaunchTimeout", 0.9),
        ("cuda", "702", 0.9),
        ("cuda", "cudaErrorLaunchOutOfResources", 0.9),
        ("cuda", "cudaErrorMemoryAllocation", 0.4),
        ("cuda", "cudaErrorInvalidConfiguration", 0.4),
        ("cuda", "cudaErrorInsufficientDriver", 0.0),
        ("cuda", "cudaErrorECCUncorrectable", 0.0),
        ("cuda", "cudaSuccess", 1.0),
        ("xid", "31", 0.9),
        ("xid", "63", 1.0),
        ("xid", "94", 0.4),
        ("xid", "48", 0.0),
        ("xid", "79", 0.0),
        ("xid", "119", 0.0),
        ("state", "row_remap_failed", 0.0),
        ("state", "row_remap_pending", 0.9),
        ("state", "lost", 0.0),
        ("xid", "100000", 0.4),
        ("cuda", "cudaErrorOfTomorrow", 0.4),
        ("state", "recovery_of_tomorrow", 0.4),
    ],
)
def test_codes_have_the_vendors_class(kind: str, code: str, score: float) -> None:
    assert classify(kind, code).value == score  # type: ignore[arg-type]


def test_each_class_counts_as_long_as_it_is_set_to() -> None:
    transient, isolated, drained = (FaultEvent("xid", code, 100.0) for code in ("31", "94", "79"))
    assert [health([transient], at, SETTINGS).score for at in (100, 129.9, 130)] == [0.9, 0.9, 1.0]
    assert [health([isolated], at, SETTINGS).score for at in (100, 399.9, 400)] == [0.4, 0.4, 1.0]
    assert health([drained], 1e9, SETTINGS).score == 0.0


def test_the_worst_fault_that_still_counts_is_the_cause() -> None:
    events = [FaultEvent("xid", "31", 350.0), FaultEvent("xid", "94", 100.0), FaultEvent("xid", "63", 350.0)]
    now = health(events, 360.0, SETTINGS)
    assert (now.score, now.cause, now.until) == (0.4, events[1], 380.0)
    later = health(events, 400.0, SETTINGS)
    assert (later.score, later.cause, later.until) == (1.0, None, None)
    assert health(events[:1], 360.0, SETTINGS).until == 380.0


@pytest.mark.untraced
@given(
    st.lists(st.tuples(st.sampled_from(["13", "94", "79", "63", "7"]), st.floats(0, 1000))),
    st.floats(0, 2000),
)
def test_score_changes_by_itself_only_at_until(faults: list[tuple[str, float]], now: float) -> None:
    events = [FaultEvent("xid", code, at) for code, at in faults]
    rated = health(events, now, SETTINGS)
    until = now + 1e6 if rated.until is None else rated.until
    assert until > now
    assert health(events, (now + until) / 2, SETTINGS).score == rated.score
    if rated.score == FaultClass.FINE.value:
        assert rated.cause is None


def test_a_log_counts_dates_and_forgets() -> None:
    log = FaultLog()
    log.note("xid", "31", 1.0)
    log.note("xid", "79", 2.0)
    log.note("xid", "31", 3.0)
    assert log.events() == (FaultEvent("xid", "79", 2.0, 1), FaultEvent("xid", "31", 3.0, 2))
    for code in range(1000, 1000 + 2 * MAX_REMEMBERED):
        log.note("xid", str(code), 4.0)
    assert len(log.events()) == MAX_REMEMBERED
    log.clear()
    assert log.events() == ()


def test_cuda_errors_go_by_name_and_by_number() -> None:
    assert (cuda_code("cudaErrorMemoryAllocation"), cuda_code("2")) == (2, 2)
    assert [cuda_code(text) for text in ("", "CUDA out of memory", "²", "-1", "9" * 40)] == [None] * 5
