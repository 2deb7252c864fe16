"""Windows over finished requests: who is blamed, and for how long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleet.settings import SignalSettings
from xds_server.access_log.finished import Finished
from xds_server.signals.passive.retry_blame import BLAME_ALL_RETRIES, RetryBlame
from xds_server.signals.passive.served import ServedWindows
from xds_server.signals.rows import rows_before

A, B = "10.0.0.1:80", "10.0.0.2:80"


def finished(address: str = A, status: int = 200, **fields: Any) -> Finished:
    values = {
        "picked": "",
        "cluster": "p",
        "request_id": "",
        "started_at": 0.0,
        "first_byte_seconds": 0.2,
        "duration_seconds": 1.0,
        "flags": (),
        "attempts": 1,
        "metadata": {},
        **fields,
    }
    return Finished(address=address, status=status, **values)


def make(*addresses: str, now: float = 0.0, retry_blame: RetryBlame = BLAME_ALL_RETRIES) -> ServedWindows:
    windows = ServedWindows(SignalSettings(), retry_blame)
    windows.remap_rows(addresses, rows_before(addresses, {}), now)
    return windows


def test_error_ratio_after_recovery_starts_again() -> None:
    """What was before would cost it requests for as long as the window reaches."""
    windows = make(A, B)
    for address in (A, B):
        for _ in range(9):
            windows.record(finished(address, status=503), 10.0)
    windows.reset_errors(np.array([0]))
    windows.record(finished(A), 12.0)
    windows.record(finished(B), 12.0)
    assert windows.columns(12.0).error_ratio.tolist() == [0.0, 0.9]
    windows.record(finished(A, status=503), 12.6)
    assert windows.columns(13.0).error_ratio.tolist() == [0.5, pytest.approx(0.9)]


def test_failed_attempts_elsewhere_are_no_latency() -> None:
    """It counts from when the request was sent to it; where that is unknown, so is the latency."""
    windows = make(A, B)
    for _ in range(5):
        windows.record(
            finished(A, attempts=2, first_byte_seconds=5.1, duration_seconds=5.3, sent_seconds=5.0), 1.0
        )
        windows.record(finished(B, attempts=2, first_byte_seconds=5.1, duration_seconds=5.3), 1.0)
    columns = windows.columns(1.0)
    assert columns.first_byte_p99_seconds[0] < 0.2
    assert columns.duration_p99_seconds[0] < 0.6
    assert np.isnan(columns.first_byte_p99_seconds[1])
    windows.record(finished(B, first_byte_seconds=3.0, sent_seconds=2.9), 1.0)
    assert windows.columns(1.0).first_byte_p99_seconds[1] > 2.5, "of one attempt, all that passed is its own"


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        (finished(status=200), 0),
        (finished(status=429), 0),
        (finished(status=404), 0),
        (finished(status=500), 1),
        (finished(status=503), 1),
        (finished(status=503, flags=("UF", "URX"), first_byte_seconds=None), 1),
        (finished(status=503, flags=("UC",), first_byte_seconds=None), 1),
        (finished(status=200, flags=("UC",)), 1),
        (finished(status=504, flags=("UT",), first_byte_seconds=None), 1),
        (finished(status=0, flags=("DC",), first_byte_seconds=None), None),
        (finished(status=503, flags=("DC", "UC")), None),
        (finished(status=503, flags=("UO",), first_byte_seconds=None), None),
        (finished(status=500, first_byte_seconds=None), None),
    ],
    ids=lambda value: f"{value.status}{value.flags}" if isinstance(value, Finished) else "",
)
def test_who_is_to_blame(request_: Any, fault: Any) -> None:
    """5xx of the host and broken connections are faults; 4xx, clients that leave and Envoy itself are not."""
    windows = make(A)
    windows.record(request_, 10.0)
    ratio = windows.columns(10.0).error_ratio[0]
    assert np.isnan(ratio) if fault is None else ratio == fault


def test_a_pick_that_was_tried_in_vain_is_blamed() -> None:
    """The log holds the last host only; the pick and the attempts tell of the first."""
    request = finished(B, picked=A, attempts=2)
    windows = make(A, B)
    windows.record(request, 10.0)
    assert windows.columns(10.0).error_ratio.tolist() == [1.0, 0.0]
    windows = make(A, B, retry_blame=RetryBlame(frozenset(["p"])))
    windows.record(request, 10.0)
    assert np.isnan(windows.columns(10.0).error_ratio[0])
    skipped = make(A, B)
    skipped.record(finished(B, picked=A, attempts=1), 10.0)
    assert np.isnan(skipped.columns(10.0).error_ratio[0])


def test_latencies_are_of_good_answers_only() -> None:
    """A failure is quick or slow for its own reasons."""
    windows = make(A, B)
    for _ in range(50):
        windows.record(finished(A, first_byte_seconds=0.2, duration_seconds=2.0), 10.0)
        windows.record(finished(A, status=503, first_byte_seconds=0.001, duration_seconds=0.001), 10.0)
        windows.record(finished(A, status=429, first_byte_seconds=9.0, duration_seconds=9.0), 10.0)
    columns = windows.columns(10.0)
    assert columns.first_byte_p50_seconds[0] == pytest.approx(0.2, rel=0.05)
    assert columns.first_byte_p99_seconds[0] == pytest.approx(0.2, rel=0.05)
    assert columns.duration_p99_seconds[0] == pytest.approx(2.0, rel=0.05)
    assert columns.error_ratio[0] == pytest.approx(1 / 3)
    assert columns.latency_at[0] == 10.0
    assert np.isnan(columns.first_byte_p50_seconds[1])


OPENED: dict[str, Any] = {"status": 101, "first_byte_seconds": 0.001, "established": True}


@pytest.mark.parametrize("flags", [(), ("UC",), ("DC",), ("UR",), ("UT",), ("SI",)], ids=str)
def test_a_websocket_counts_when_it_opens_and_never_by_its_end(flags: Any) -> None:
    """Its length is its client's, its end is nobody's fault and no sign of life either."""
    windows = make(A)
    windows.record(finished(A, first_byte_seconds=0.2, duration_seconds=2.0), 10.0)
    for _ in range(50):
        windows.record(finished(A, duration_seconds=None, **OPENED), 10.0)
    windows.record(finished(A, status=503, flags=("UF",), first_byte_seconds=None), 10.0)
    for _ in range(500):
        ended = finished(A, status=101, flags=flags, first_byte_seconds=0.001, duration_seconds=3600.0)
        assert not ended.faulty
        windows.record(ended, 10.0)
    columns = windows.columns(10.0)
    assert columns.first_byte_p50_seconds[0] == pytest.approx(0.2, rel=0.05)
    assert columns.duration_p99_seconds[0] == pytest.approx(2.0, rel=0.05)
    assert columns.error_ratio[0] == pytest.approx(1 / 52), "of 51 good answers and one refused handshake"
    recent = windows.take()
    assert (recent.ok[0], recent.answered[0], recent.sessionless[0], recent.faults[0]) == (51, 51, 51, 1)


def test_refused_handshake_is_blamed_once_at_most() -> None:
    """When the WebSocket opens elsewhere, and not again when it ends."""
    opened, ended = (
        finished(B, picked=A, attempts=2, handshake=True, **OPENED),
        finished(B, status=101, picked=A, attempts=2, handshake=True, flags=("UC",)),
    )
    for handshakes, faults in ((False, 1), (True, 0)):
        windows = make(A, B, retry_blame=RetryBlame(handshakes=handshakes))
        windows.record(opened, 10.0)
        windows.record(ended, 10.0)
        assert windows.take().faults.tolist() == [faults, 0]


def test_windows_forget() -> None:
    """Errors after their window, latencies and rates after theirs."""
    windows = make(A)
    for tenth in range(100):
        windows.record(finished(status=503 if tenth < 50 else 200), 10.0 + tenth / 10)
    assert windows.columns(20.0).error_ratio[0] < 0.1
    assert windows.columns(20.0).requests_per_second[0] == pytest.approx(5.0, rel=0.1)
    gone = windows.columns(60.0)
    assert np.isnan(gone.error_ratio[0])
    assert np.isnan(gone.first_byte_p99_seconds[0])
    assert gone.requests_per_second[0] == 0


def test_recovered_endpoint_is_fast_within_seconds() -> None:
    """Ten good requests a second outweigh a slow half minute in four seconds."""
    windows = make(A)
    for second in range(30):
        for _ in range(10):
            windows.record(finished(first_byte_seconds=5.0), float(second))
    assert windows.columns(30.0).first_byte_p50_seconds[0] == pytest.approx(5.0, rel=0.05)
    for tenth in range(40):
        windows.record(finished(first_byte_seconds=0.2), 30.0 + tenth / 10)
    assert windows.columns(34.1).first_byte_p99_seconds[0] == pytest.approx(0.2, rel=0.05)


def test_state_is_bounded_by_the_membership() -> None:
    """Strangers leave nothing, leavers are forgotten, stayers keep what they have."""
    windows = make(A, B)
    for _ in range(5000):
        windows.record(finished("10.9.9.9:1", picked="10.9.9.8:1", attempts=2), 10.0)
    assert windows.take().ok.tolist() == [0, 0]
    windows.record(finished(B), 10.0)
    windows.remap_rows((B,), rows_before((B,), {A: 0, B: 1}), 11.0)
    assert windows.take().ok.tolist() == [1]
    assert windows.take().ok.tolist() == [0]
    windows.remap_rows((A, B), rows_before((A, B), {B: 0}), 12.0)
    columns = windows.columns(12.0)
    assert np.isnan(columns.first_byte_p50_seconds[0])
    assert columns.first_byte_p50_seconds[1] == pytest.approx(0.2, rel=0.05)


def test_answers_to_the_end_are_signs_of_life() -> None:
    """An answer of any status counts; a broken or abandoned one does not."""
    windows = make(A)
    for request in (finished(), finished(status=429), finished(status=503), finished(flags=("UC",))):
        windows.record(request, 1.0)
    windows.record(finished(status=0, flags=("DC",)), 1.0)
    windows.record(finished(status=503, flags=("UF",), first_byte_seconds=None), 1.0)
    assert windows.take().answered.tolist() == [3]
