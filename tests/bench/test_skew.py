"""The replay of skews finds what is planted, and would count what is not."""

from __future__ import annotations

import pytest

from bench import skew
from xds_server.skew.detectors import DETECTORS


@pytest.mark.parametrize("whole_pool", [False, True])
@pytest.mark.parametrize("kind", DETECTORS)
def test_planted_skew_is_reported_once_in_time_and_ends(kind: str, whole_pool: bool) -> None:
    planted = skew.plant(kind, whole_pool=whole_pool, seed=7)
    assert planted.detected_periods is not None
    assert planted.detected_periods <= 4
    assert planted.over_periods is not None
    assert (planted.events, planted.elsewhere) == (1, 0)


def test_only_an_uneven_fleet_raises_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    assert skew.false_alarms((2, 3), 300, 7) == 0
    monkeypatch.setattr(skew, "HEALTHY", {**skew.HEALTHY, "latency_p99_seconds": 2.0})
    assert skew.false_alarms((2, 3), 300, 7) == 7  # five endpoints and two pools


def test_a_miss_is_a_target_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(skew.PLANTS, "long_tail", lambda _, __: None)
    monkeypatch.setattr(skew, "cost", lambda *_: {})
    _, targets = skew.measure(0.02, 1, 7)
    assert {entry.name for entry in targets if not entry.met} == {
        "long_tail_found",
        "long_tail_found_periods_most",
    }
