"""What follows from an SLA: always within it or refused, and each number with its reason."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.errors import SettingsError
from fleet.settings import PoolSettings, SlaSettings, parse_settings
from fleet.settings.probes import ImpossibleError
from fleet.settings.sla_policy import (
    UNLIMITED_REQUESTS,
    attempts_for,
    back_offs,
    consecutive_errors,
    derive,
    error_percent,
    most_requests,
    retry_percent,
)
from fleet.sla_numbers import numbers

SLA: dict[str, Any] = {
    "first_token_p95_seconds": 0.8,
    "tolerated_error_ratio": 0.15,
    "base_round_trip_seconds": 0.02,
}
RATIOS = st.floats(0, 0.5)


def pool(endpoints: int = 3, connect_timeout_seconds: float | None = None, **sla: Any) -> PoolSettings:
    made: PoolSettings = PoolSettings.model_validate_json(
        json.dumps(
            {
                "name": "p",
                "endpoints": [{"address": f"10.0.0.{i + 1}:8000"} for i in range(endpoints)],
                "sla": {**SLA, **sla},
                **({"connect_timeout_seconds": connect_timeout_seconds} if connect_timeout_seconds else {}),
            }
        )
    )
    return made


def settings(pools: list[dict[str, Any]], **more: Any) -> str:
    listeners = [
        {"name": f"l{i}", "address": f"127.0.0.1:{10_000 + i}", "pool": entry["name"]}
        for i, entry in enumerate(pools)
    ]
    return yaml.safe_dump({"pools": pools, "listeners": listeners, **more})


def test_without_an_sla_nothing_is_derived() -> None:
    assert derive(PoolSettings(name="p")) is None


@pytest.mark.parametrize(
    ("sla", "streaming", "expected"),
    [
        # attempts, connect, answer, pauses
        ({}, False, (2, 80, 520, (100,))),
        ({"repeats": "keyed"}, False, (2, 80, 520, (100,))),
        ({"repeats": "keyed"}, True, (2, 80, 260, (100,))),
        ({"tolerated_error_ratio": 0.3, "first_token_p95_seconds": 2.0}, False, (3, 80, 1440, (100, 200))),
        ({"tolerated_error_ratio": 0}, False, (2, 80, 520, (100,))),
        ({"attempts": 1}, False, (1, 80, 700, ())),
        ({"attempts": 1, "repeats": "keyed"}, True, (1, 80, 700, ())),
        ({"base_round_trip_seconds": 0.001}, False, (2, 50, 599, (100,))),
        ({"attempts": 4, "first_token_p95_seconds": 3}, False, (4, 80, 1960, (100, 200, 400))),
        ({"attempts": 5, "first_token_p95_seconds": 3}, False, (5, 80, 1480, (100, 200, 400, 400))),
    ],
)
def test_times(sla: dict[str, Any], streaming: bool, expected: tuple[Any, ...]) -> None:
    derived = derive(pool(**sla), streaming_keys=streaming)
    assert derived is not None
    assert (derived.attempts, derived.connect_ms, derived.answer_ms, derived.back_offs_ms) == expected
    assert derived.worst_ms <= derived.within_ms


@pytest.mark.parametrize("seconds", [0.03, 0.08, 0.3])
def test_set_connect_timeout_counts_in_each_attempt(seconds: float) -> None:
    """Shorter or longer than the plan, it is Envoy's limit, so the sum contains it."""
    pool_settings = pool(connect_timeout_seconds=seconds)
    derived = derive(pool_settings)
    assert derived is not None
    assert derived.connect_bounded
    assert derived.connect_ms == 1000 * seconds
    assert derived.answer_ms == 680 - 2 * derived.connect_ms


def test_planned_connect_time_is_no_limit() -> None:
    """A limit that follows from round trips would fail late handshakes that Envoy's own serves."""
    pool_settings = pool()
    derived = derive(pool_settings)
    assert derived is not None
    assert (derived.connect_bounded, derived.connect_ms) == (False, 80)
    assert pool_settings.connect_timeout_seconds == 5.0
    text = settings([{"name": "p", "endpoints": [{"address": "10.0.0.1:8000"}], "sla": SLA}])
    parsed = parse_settings(text)
    by_name = {number.name: number for number in numbers(parsed.pools[0], parsed)}
    assert by_name["left to connect"].value == "80 ms"
    assert by_name["connect_timeout"].value == "5 s"
    assert "longer than planned" in by_name["worst case"].why


@given(
    st.floats(0.001, 600),
    RATIOS,
    st.floats(0, 10),
    st.integers(1, 8) | st.none(),
    st.floats(0.001, 2),
    st.floats(0.001, 20),
    st.booleans(),
)
def test_attempts_and_pauses_never_exceed_the_sla(
    first_token: float,
    ratio: float,
    round_trip: float,
    attempts: int | None,
    base: float,
    most: float,
    hedged: bool,
) -> None:
    """The sum always fits into the SLA without the base round trip, or the SLA is refused."""
    assume(base <= most)
    pool_settings = pool(
        first_token_p95_seconds=first_token,
        tolerated_error_ratio=ratio,
        base_round_trip_seconds=round_trip,
        attempts=attempts,
        back_off_seconds=base,
        most_back_off_seconds=most,
        repeats="keyed",
    )
    try:
        derived = derive(pool_settings, streaming_keys=hedged)
    except ImpossibleError:
        return
    assert derived is not None
    answers = derived.attempts if derived.hedged else 1
    total = derived.attempts * derived.connect_ms + sum(derived.back_offs_ms) + answers * derived.answer_ms
    assert total == derived.worst_ms
    assert total / 1000 <= first_token - round_trip + 1e-6
    assert derived.connect_ms >= 1
    assert derived.answer_ms >= 1
    assert derived.answer_ms / 1000 >= min(round_trip, first_token) - 1e-6


@given(st.floats(0.01, 10), st.floats(0.01, 10), RATIOS, RATIOS, st.booleans())
def test_more_time_and_fewer_errors_leave_more_for_each_answer(
    shorter: float, longer: float, less: float, more: float, hedged: bool
) -> None:
    shorter, longer = sorted((shorter, longer))
    less, more = sorted((less, more))

    def answer(seconds: float, ratio: float) -> int:
        pool_settings = pool(first_token_p95_seconds=seconds, tolerated_error_ratio=ratio, repeats="keyed")
        try:
            derived = derive(pool_settings, streaming_keys=hedged)
        except ImpossibleError:
            return 0
        return 0 if derived is None else derived.answer_ms

    assert answer(shorter, less) <= answer(longer, less)
    assert answer(longer, more) <= answer(longer, less)


@given(RATIOS)
def test_all_attempts_fail_in_at_most_5_percent(ratio: float) -> None:
    attempts = attempts_for(ratio)
    assert attempts >= 2
    assert ratio**attempts <= 0.05
    assert attempts == 2 or ratio ** (attempts - 1) > 0.05


@given(st.integers(1, 8), st.integers(1, 60_000), st.integers(1, 60_000))
def test_pauses_double_up_to_the_most(attempts: int, base: int, most: int) -> None:
    pauses = back_offs(attempts, base, most)
    assert len(pauses) == attempts - 1
    assert all(pause <= most for pause in pauses)
    assert all(later in (2 * earlier, most) for earlier, later in pairwise(pauses))


@given(RATIOS, RATIOS)
def test_ejection_stands_above_the_tolerance_and_grows_with_it(less: float, more: float) -> None:
    less, more = sorted((less, more))
    assert error_percent(less) >= 100 * less + 10 - 1e-6
    assert error_percent(less) <= error_percent(more) <= 100
    assert 5 <= consecutive_errors(less) <= consecutive_errors(more) <= 20
    # An engine at the tolerance has such a run less than once in a million requests.
    assert more ** consecutive_errors(more) <= 1.000001e-6 or consecutive_errors(more) == 5


@given(RATIOS, st.none() | st.integers(0, 1000))
def test_retry_budget_covers_tolerated_errors(ratio: float, endpoints: int | None) -> None:
    percent = retry_percent(ratio, endpoints)
    assert 20 <= percent <= 100
    assert percent >= 100 * ratio / (1 - ratio) - 1e-6 or percent == 100
    if endpoints is not None and endpoints >= 2:
        assert percent >= 100 / endpoints - 1e-6
    else:
        assert percent >= 50


def test_circuit_breakers_never_stand_below_envoys_own() -> None:
    assert most_requests(None, 8) == UNLIMITED_REQUESTS
    assert most_requests(1, 1) == 1024
    assert most_requests(256, 8) == 3072


@pytest.mark.parametrize(
    ("change", "place", "reason"),
    [
        ({"sla": {"first_token_p95_seconds": 0.2}}, "sla.first_token_p95_seconds", "at least 0.3,"),
        ({"sla": {"base_round_trip_seconds": 0.9}}, "sla.first_token_p95_seconds", "allowed: at least"),
        ({"sla": {"engine_first_token_seconds": 0.6}}, "sla.first_token_p95_seconds", "at least 0.88,"),
        ({"sla": {"tolerated_error_ratio": 0.5}}, "sla.first_token_p95_seconds", "5 attempts"),
        (
            {"connect_timeout_seconds": 5.0},
            "sla.first_token_p95_seconds",
            "a shorter back_off_seconds or connect",
        ),
        (
            {"sla": {"back_off_seconds": 0.7, "most_back_off_seconds": 0.7}},
            "sla.first_token_p95_seconds",
            "0.9",
        ),
        ({"sla": {"back_off_seconds": 0.7}}, "sla", "most_back_off_seconds at least back_off_seconds"),
        ({"sla": {"tolerated_error_ratio": 0.6}}, "sla.tolerated_error_ratio", "0.5"),
        ({"sla": {"repeats": "keyed"}}, "sla.repeats", "ext_proc.idempotency.enabled"),
        ({"retries": 2}, "retries", "this or an sla"),
        ({"retry_on": "5xx"}, "retry_on", "this or an sla"),
        (
            {"sla": {"requests_per_endpoint": 8}, "discovery": [{"file": {"path": "/x"}}]},
            "sla.requests_per_endpoint",
            "counted",
        ),
        ({"health_check": {"timeout_seconds": 0.8}}, "health_check.timeout_seconds", "more than the 0.8 s"),
        (
            {"health_check": {"timeout_seconds": 1.0, "measured_p99_seconds": 2.0}},
            "health_check.timeout_seconds",
            "engines that work",
        ),
    ],
)
def test_impossible_sla_is_refused_with_path_and_reason(
    change: dict[str, Any], place: str, reason: str
) -> None:
    document = {"name": "p", "endpoints": [{"address": "10.0.0.1:8000"}], **change}
    document["sla"] = {**SLA, **change.get("sla", {})}
    with pytest.raises(SettingsError) as caught:
        parse_settings(settings([document]))
    (problem,) = caught.value.problems
    assert f": pools[0].{place}: " in problem
    assert reason in problem


@given(st.floats(0.001, 5), RATIOS, st.floats(0, 1), st.floats(0.01, 2) | st.none(), st.booleans())
def test_limit_that_a_refusal_names_suffices(
    first_token: float, ratio: float, round_trip: float, engine: float | None, hedged: bool
) -> None:
    def with_first_token(seconds: float) -> PoolSettings:
        return pool(
            first_token_p95_seconds=seconds,
            tolerated_error_ratio=ratio,
            base_round_trip_seconds=round_trip,
            engine_first_token_seconds=engine,
            repeats="keyed",
        )

    try:
        derive(with_first_token(first_token), streaming_keys=hedged)
    except ImpossibleError as error:
        enough = float(str(error).partition("at least ")[2].partition(",")[0])
        assert enough > first_token
        assert derive(with_first_token(enough + 0.002), streaming_keys=hedged) is not None


def test_each_number_says_why() -> None:
    text = settings(
        [
            {"name": "none"},
            {
                "name": "all",
                "endpoints": [{"address": "10.0.0.1:8000"}],
                "sla": {**SLA, "repeats": "keyed", "requests_per_endpoint": 64},
                "health_check": {},
            },
        ],
        ext_proc={"idempotency": {"enabled": True, "streaming": True}},
    )
    parsed = parse_settings(text)
    assert numbers(parsed.pools[0], parsed) == ()
    by_name = {number.name: number for number in numbers(parsed.pools[1], parsed)}
    assert by_name["retry_policy.per_try_timeout"].value == "260 ms"
    assert by_name["worst case"].value == "780 ms"
    assert by_name["health_checks.timeout"].value == "8 s"
    assert all(number.value and number.why for number in by_name.values())


def test_defaults_are_those_of_the_class() -> None:
    assert SlaSettings.model_fields["repeats"].default == "unsent"
