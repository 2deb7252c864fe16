"""Time limits of Envoy's probes: never below what a working engine takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.settings import PoolSettings
from fleet.settings.probes import ImpossibleError, Probe, probe


def pool(check: dict[str, Any] | None, first_token: float | None = None) -> PoolSettings:
    sla = {
        "first_token_p95_seconds": first_token,
        "tolerated_error_ratio": 0.15,
        "base_round_trip_seconds": 0.02,
    }
    document = {"name": "p", "health_check": check, "sla": sla if first_token is not None else None}
    made: PoolSettings = PoolSettings.model_validate_json(json.dumps(document))
    return made


def made(check: dict[str, Any], first_token: float | None = None) -> Probe:
    derived = probe(pool(check, first_token))
    assert derived is not None
    return derived


def test_no_probe_without_health_check() -> None:
    assert probe(pool(None, 0.8)) is None


@pytest.mark.parametrize(
    ("check", "first_token", "timeout", "interval"),
    [
        ({}, None, 5.0, 2.5),
        ({}, 0.2, 5.0, 2.5),
        ({}, 0.8, 8.0, 4.0),
        ({"measured_p99_seconds": 1.0}, 0.8, 5.0, 2.5),
        ({"measured_p99_seconds": 4.0}, 0.8, 12.0, 6.0),
        ({"measured_p99_seconds": 4.0, "timeout_seconds": 5.0}, 0.8, 5.0, 2.5),
        ({"interval_seconds": 1.0}, 0.8, 8.0, 1.0),
    ],
)
def test_limits(check: dict[str, Any], first_token: float | None, timeout: float, interval: float) -> None:
    derived = made(check, first_token)
    assert (derived.timeout_seconds, derived.interval_seconds) == (timeout, interval)


@given(st.floats(0.001, 1000), st.integers(2, 10))
def test_measured_time_never_makes_engine_unhealthy(p99: float, failures: int) -> None:
    derived = made({"measured_p99_seconds": p99, "failures": failures})
    assert derived.timeout_seconds >= 3 * p99
    assert derived.timeout_seconds >= 5.0
    assert derived.silence_seconds >= failures * derived.timeout_seconds
    assert derived.refusal_seconds < derived.silence_seconds


def test_one_failure_is_never_enough() -> None:
    with pytest.raises(ValueError, match="failures"):
        pool({"failures": 1})


def test_the_trap_is_refused() -> None:
    """The usual second, where a probe was measured to take longer."""
    with pytest.raises(ImpossibleError, match="engines that work"):
        probe(pool({"timeout_seconds": 1.0, "measured_p99_seconds": 1.0}))


@pytest.mark.parametrize(("most_out", "panic"), [(0.5, 50.0), (0.0, 100.0), (1.0, 0.0), (0.3, 70.0)])
def test_the_cap_is_envoys_panic_threshold(most_out: float, panic: float) -> None:
    assert made({"most_out_ratio": most_out}).panic_percent == panic
