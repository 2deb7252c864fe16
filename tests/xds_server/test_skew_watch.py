"""Skew begins and ends as the rules say, is told once, and what is unknown is never skew."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, SkewSettings
from fleet.signals import SIGNALS as NAMES
from testing.signals import Load, Signal, table_of
from xds_server.skew.detectors import DETECTORS
from xds_server.skew.watch import MOST_LINES, SkewWatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.skew.event import SkewEvent

SIGNALS = SignalSettings(stale_after_seconds=10.0, latency_window_seconds=30.0)
CALM = {
    "latency_p50_seconds": 0.2,
    "latency_p99_seconds": 0.4,
    "running": 40.0,
    "queue_depth": 0.0,
    "batch_limit": 64.0,
    "prompt_tokens_mean": 500.0,
    "prompt_tokens_variance": 1e5,
}
TAIL = {**CALM, "latency_p99_seconds": 0.61}
COLLAPSED = {**CALM, "running": 4.0, "queue_depth": 9.0}
BURST = {**CALM, "prompt_tokens_mean": 3000.0, "prompt_tokens_variance": 6e5}


def pool(name: str = "chat", count: int = 2) -> Pool:
    return Pool(name, tuple(Endpoint(f"10.0.0.{n}:80", name) for n in range(1, count + 1)))


class Fleet:
    """A watch and its clock: each `period` tells every endpoint the same but for those named."""

    def __init__(self, *pools: Pool, **chosen: Any) -> None:
        self.registry = CollectorRegistry()
        self.watch = SkewWatch(SkewSettings(**chosen), SIGNALS, self.registry)
        self.membership = Membership(pools or (pool(),))
        self.now = 1000.0
        self.changes: list[SkewEvent] = []

    def period(self, count: int = 1, rest: Mapping[str, float] = CALM, **named: Mapping[str, float]) -> None:
        """Let periods pass; `named` is by the last number of the address, as `e1`."""
        for _ in range(count):
            loads = {}
            for endpoint in self.membership.endpoints:
                figures = named.get(f"e{endpoint.host.rpartition('.')[2]}", rest)
                loads[endpoint.address] = load(figures, self.now)
            self.changes += self.watch.observe(
                self.membership, table_of(self.membership.addresses, loads), self.now
            )
            self.now += 5.0

    def kinds(self) -> list[tuple[str, str | None]]:
        return [(event.kind, event.address) for event in self.watch.active()]

    def gauge(self, kind: str, name: str = "chat") -> float | None:
        return self.registry.get_sample_value("warmroute_skew_active", {"kind": kind, "pool": name})

    def total(self, kind: str) -> float | None:
        return self.registry.get_sample_value("warmroute_skew_events_total", {"kind": kind})


def load(figures: Mapping[str, float], at: float) -> Load:
    return Load(**{name: Signal(value, at, "test") for name, value in figures.items()})


FIRST = "10.0.0.1:80"


def test_a_long_tail_begins_in_the_third_period_in_a_row() -> None:
    fleet = Fleet()
    fleet.period(5)
    fleet.period(2, e1=TAIL)
    assert fleet.changes == []
    fleet.period(e1=TAIL)
    (event,) = fleet.changes
    assert (event.kind, event.pool, event.address, event.ended_at) == ("long_tail", "chat", FIRST, None)
    assert event.evidence["tail_ratio"] == pytest.approx(3.05)
    assert event.evidence["latency_p99_seconds"] == pytest.approx(0.61)
    assert event.hint


def test_interrupted_tail_is_none() -> None:
    for between in (CALM, {}):
        fleet = Fleet()
        fleet.period(2, e1=TAIL)
        fleet.period(e1=between)
        fleet.period(2, e1=TAIL)
        assert fleet.changes == []


def test_event_ends_after_calm_periods_in_a_row() -> None:
    fleet = Fleet()
    fleet.period(3, e1=TAIL)
    fleet.period(10, e1={**TAIL, "latency_p99_seconds": 0.55})  # 2.75: under 3, over 2.4
    fleet.period(2)
    fleet.period(e1=TAIL)
    fleet.period(2)
    assert fleet.kinds() == [("long_tail", FIRST)]
    fleet.period()
    assert fleet.kinds() == []
    assert [event.ended_at is None for event in fleet.changes] == [True, False]
    (event,) = fleet.watch.events()
    assert event.ended_at == fleet.now - 5.0


def test_swinging_ratio_makes_one_event() -> None:
    fleet = Fleet()
    for _ in range(60):
        fleet.period(3, e1=TAIL)
        fleet.period(2, e1={**TAIL, "latency_p99_seconds": 0.58})
    assert len(fleet.changes) == 1


def test_one_slow_endpoint_is_the_pools_long_tail() -> None:
    """Its own P99 is twice its own P50, so by itself it has none."""
    fleet = Fleet(pool(count=3))
    fleet.period(3, e1={**CALM, "latency_p50_seconds": 4.0, "latency_p99_seconds": 8.0})
    assert fleet.kinds() == [("long_tail", None)]


def test_the_pool_of_one_endpoint_does_not_repeat_it() -> None:
    fleet = Fleet(pool(count=1))
    fleet.period(3, rest=TAIL)
    assert fleet.kinds() == [("long_tail", FIRST)]


def test_a_tail_that_nobody_feels_is_none() -> None:
    """An idle fleet of small answers: the slowest of them is fast, though many times the median."""
    fleet = Fleet()
    fleet.period(12, rest={**CALM, "latency_p50_seconds": 0.015, "latency_p99_seconds": 0.244})
    assert fleet.changes == []
    fleet.period(3, rest=TAIL)
    assert ("long_tail", FIRST) in fleet.kinds()
    fleet.period(3, rest={**TAIL, "latency_p50_seconds": 0.01, "latency_p99_seconds": 0.39})
    assert fleet.kinds() == []


def test_the_first_requests_of_a_server_make_no_tail() -> None:
    """A rate over the seconds since it began is high, though only a handful has come."""
    fleet = Fleet()
    for period in range(1, 13):
        seconds = min(5.0 * period, SIGNALS.latency_window_seconds)
        fleet.period(rest={**TAIL, "requests_per_second": 19 / seconds})
    assert fleet.changes == []
    fleet.period(3, rest={**TAIL, "requests_per_second": 21 / 30})
    assert ("long_tail", FIRST) in fleet.kinds()


def test_few_requests_make_no_tail() -> None:
    fleet = Fleet()
    fleet.period(5, rest={**TAIL, "requests_per_second": 0.2})
    assert fleet.changes == []
    fleet.period(12, rest={**TAIL, "requests_per_second": 5.0})
    assert ("long_tail", FIRST) in fleet.kinds()


@pytest.mark.parametrize("figures", [COLLAPSED, {**COLLAPSED, "queue_depth": 0.0, "in_flight": 13.0}])
def test_small_batches_while_requests_wait_have_collapsed(figures: Mapping[str, float]) -> None:
    fleet = Fleet()
    fleet.period(12)
    fleet.period(2, e1=figures)
    assert fleet.changes == []
    fleet.period(e1=figures)
    assert fleet.kinds() == [("batch_collapse", FIRST)]
    assert fleet.changes[0].evidence["batch_fill_ratio"] == pytest.approx(4 / 64)
    assert fleet.changes[0].evidence["waiting"] == 9.0


@pytest.mark.parametrize(
    ("why", "figures"),
    [
        ("idle", {"running": 0.0, "queue_depth": 0.0, "in_flight": 0.0}),
        ("little to do", {"running": 4.0, "in_flight": 4.0}),
        ("answers come faster than pages", {"running": 0.0, "queue_depth": 0.0, "in_flight": 2.0}),
        ("in flight varies by chance", {"running": 6.0, "queue_depth": 0.0, "in_flight": 11.0}),
        ("one waits now and then", {"running": 12.0, "queue_depth": 1.0}),
        ("the batch is filled", {"running": 20.0, "queue_depth": 30.0}),
        ("nobody knows who waits", {"queue_depth": -1.0, "running": 4.0}),
        ("nobody knows the batch", {"queue_depth": 9.0, "running": -1.0}),
    ],
)
def test_no_batch_has_collapsed(why: str, figures: Mapping[str, float]) -> None:
    fleet = Fleet()
    fleet.period(24, rest={**CALM, **figures})
    assert fleet.changes == [], why


def test_one_waiting_endpoint_is_no_collapsed_pool() -> None:
    fleet = Fleet(pool(count=3))
    fleet.period(6, rest={**CALM, "running": 15.0}, e1={**COLLAPSED, "queue_depth": 60.0})
    assert fleet.kinds() == [("batch_collapse", FIRST)]
    fleet.period(6, rest=COLLAPSED)
    assert ("batch_collapse", None) in fleet.kinds()


def test_batches_that_vary_have_not_collapsed() -> None:
    fleet = Fleet()
    for _ in range(8):
        fleet.period(rest={**COLLAPSED, "running": 1.0})
        fleet.period(rest={**COLLAPSED, "running": 6.0})
    assert fleet.changes == []


def test_without_a_limit_the_largest_batch_of_the_pool_counts() -> None:
    fleet = Fleet()
    unlimited = {name: value for name, value in CALM.items() if name != "batch_limit"}
    fleet.period(4, rest=unlimited)
    fleet.period(3, rest=unlimited, e1={**unlimited, "running": 4.0, "queue_depth": 9.0})
    assert fleet.kinds() == [("batch_collapse", FIRST)]
    assert 35 < fleet.changes[0].evidence["batch_limit"] <= 40


def test_without_a_limit_a_pool_with_little_to_do_has_none() -> None:
    """Its largest batch lately is three: that one engine computes none of them at the moment is chance."""
    fleet = Fleet()
    little = {**CALM, "running": 3.0, "in_flight": 3.0}
    del little["batch_limit"]
    fleet.period(4, rest=little)
    fleet.period(6, rest=little, e1={**little, "running": 0.0, "queue_depth": 1.0})
    assert fleet.changes == []


def test_context_burst_is_relative_to_the_older_half() -> None:
    fleet = Fleet()
    fleet.period(12)
    fleet.period(2, e1=BURST)
    assert fleet.kinds() == [("context_burst", FIRST)]
    evidence = fleet.changes[0].evidence
    assert evidence["variance_growth_ratio"] == pytest.approx(5.0)
    assert evidence["prompt_tokens_variance_before"] == pytest.approx(1e5)
    fleet.period(12, e1=BURST)
    assert fleet.kinds() == []


@pytest.mark.parametrize(
    "figures",
    [
        {"prompt_tokens_mean": 2048.0, "prompt_tokens_variance": 6e5},
        {"prompt_tokens_mean": 3000.0, "prompt_tokens_variance": 5e5},
    ],
)
def test_burst_needs_long_prompts_and_growth(
    figures: Mapping[str, float],
) -> None:
    fleet = Fleet()
    fleet.period(12)
    fleet.period(6, rest={**CALM, **figures})
    assert fleet.changes == []


def test_without_a_past_nothing_can_have_grown() -> None:
    fleet = Fleet()
    fleet.period(5, rest=BURST)
    fleet.period(3, rest={**BURST, "prompt_tokens_variance": 1e8})
    assert fleet.changes == []


@pytest.mark.untraced
@given(st.lists(st.sampled_from([CALM, TAIL, COLLAPSED, BURST, {}]), min_size=30, max_size=60))
@settings(max_examples=25, deadline=None)
def test_events_of_one_kind_and_place_begin_and_end_in_turn(figures: list[Mapping[str, float]]) -> None:
    fleet = Fleet()
    for one in figures:
        fleet.period(e1=one)
    for kind in DETECTORS:
        for address in (FIRST, None):
            turns = [e.ended_at is None for e in fleet.changes if (e.kind, e.address) == (kind, address)]
            assert turns == [number % 2 == 0 for number in range(len(turns))]
            assert ((kind, address) in fleet.kinds()) == (len(turns) % 2 == 1)


@given(st.lists(st.sets(st.sampled_from(list(NAMES))), min_size=20, max_size=20))
@settings(max_examples=25, deadline=None)
def test_what_is_unknown_is_never_skew(lacking: list[set[str]]) -> None:
    """A calm fleet of which now this, now that is not told stays calm."""
    fleet = Fleet()
    for names in lacking:
        fleet.period(e1={name: value for name, value in CALM.items() if name not in names})
    assert fleet.changes == []


def test_stale_signals_are_unknown() -> None:
    fleet = Fleet()
    old = {e.address: load(TAIL, fleet.now - 10.5) for e in fleet.membership.endpoints}
    table = table_of(fleet.membership.addresses, old)
    for _ in range(4):
        fleet.changes += fleet.watch.observe(fleet.membership, table, fleet.now)
        fleet.now += 5
    assert fleet.changes == []


def test_unobserved_event_ends_after_a_window() -> None:
    fleet = Fleet()
    fleet.period(3, e1=TAIL)
    fleet.period(11, e1={})
    assert fleet.kinds() == [("long_tail", FIRST)]
    fleet.period(e1={})
    assert fleet.kinds() == []


def test_events_of_leaving_endpoints_end() -> None:
    fleet = Fleet(pool(count=3), Pool("code", (Endpoint("10.0.1.9:80", "code"),)))
    fleet.period(3, e1=TAIL, e9=TAIL)
    assert len(fleet.watch.active()) == 2
    fleet.membership = Membership((pool(count=3),))
    fleet.period(e1=TAIL)
    assert fleet.kinds() == [("long_tail", FIRST)]
    assert fleet.gauge("long_tail", "code") is None
    assert len(fleet.changes) == 3


def test_a_window_survives_those_who_join() -> None:
    fleet = Fleet()
    fleet.period(12)
    fleet.membership = Membership((pool(count=4),))
    fleet.period(2, e2=BURST)
    assert fleet.kinds() == [("context_burst", "10.0.0.2:80")]


def test_work_is_done_once_a_period() -> None:
    fleet = Fleet()
    for _ in range(100):
        loads = {e.address: load(TAIL, fleet.now) for e in fleet.membership.endpoints}
        fleet.changes += fleet.watch.observe(
            fleet.membership, table_of(fleet.membership.addresses, loads), fleet.now
        )
        fleet.now += 0.1
    assert fleet.changes == []  # 10 s: two periods


def test_periods_that_nobody_observed_break_a_row() -> None:
    fleet = Fleet()
    fleet.period(2, rest=TAIL)
    fleet.now += 300
    fleet.period(2, rest=TAIL)
    assert fleet.changes == []


def test_metrics_count_what_lasts_and_what_began() -> None:
    fleet = Fleet()
    fleet.period()
    assert fleet.gauge("batch_collapse") == 0.0
    assert fleet.total("long_tail") == 0.0
    fleet.period(3, rest=TAIL)
    assert fleet.gauge("long_tail") == 3.0  # both endpoints, and the pool
    assert fleet.total("long_tail") == 3.0
    fleet.period(3)
    assert (fleet.gauge("long_tail"), fleet.total("long_tail")) == (0.0, 3.0)


def test_actions_follow_what_lasts() -> None:
    fleet = Fleet(pool(count=3), trace_sample_ratio=0.2, trace_boost_seconds=60.0)
    fleet.period(12)
    assert fleet.watch.actions.sampling_ratio_floor == 0.0
    slow = {**CALM, "latency_p50_seconds": 4.0, "latency_p99_seconds": 8.0}
    fleet.period(3, e1=slow, e2=COLLAPSED, e3=BURST)
    actions = fleet.watch.actions
    assert actions.sampling_ratio_floor == 0.2
    assert actions.batching_hint == {"10.0.0.2:80"}
    assert "10.0.0.3:80" in actions.warmup_hint
    fleet.period(12, e1=slow)
    assert fleet.watch.actions.sampling_ratio_floor == 0.0, "a tail that stays does not raise costs for ever"
    assert ("long_tail", None) in fleet.kinds()


def test_a_pools_event_hints_at_all_of_its_endpoints() -> None:
    fleet = Fleet()
    fleet.period(12)
    fleet.period(2, rest=BURST)
    assert ("context_burst", None) in fleet.kinds()
    assert fleet.watch.actions.warmup_hint == {FIRST, "10.0.0.2:80"}


def test_log_lines_of_events_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    fleet = Fleet()
    fleet.period(3, e1=TAIL)
    fleet.period(3)
    assert len(caplog.records) == 2
    assert "long_tail begins at 10.0.0.1:80 (pool chat)" in caplog.text
    assert "is over after 15 s" in caplog.text
    caplog.clear()
    large = Fleet(pool(count=200))
    large.period(3, rest=TAIL)
    assert len(caplog.records) == MOST_LINES + 1


def test_the_ring_of_events_is_bounded() -> None:
    fleet = Fleet(recent_events=4)
    for _ in range(6):
        fleet.period(3, e1=TAIL)
        fleet.period(3)
    assert len(fleet.watch.events()) == 4
    begun = [event.began_at for event in fleet.watch.events()]
    assert begun == sorted(begun, reverse=True)


def test_views_are_plain_data() -> None:
    fleet = Fleet()
    assert fleet.watch.diagnosis() == {"observed": False, "pools": [], "endpoints": []}
    fleet.period(3, e1=TAIL)
    fleet.period(3)
    views = {path: json.loads(json.dumps(view())) for path, view in fleet.watch.views().items()}
    view = views["/api/v1/skew"]
    assert view["active"] == []
    assert view["recent"][0]["kind"] == "long_tail"
    assert (view["recent"][0]["began_seconds_ago"], view["recent"][0]["ended_seconds_ago"]) == (15.0, 0.0)
    diagnosis = views["/api/v1/diagnosis"]
    assert [entry["address"] for entry in diagnosis["endpoints"]] == [FIRST, "10.0.0.2:80"]
    assert diagnosis["pools"][0]["endpoints"] == {"unknown": 2}


def test_changed_settings_apply() -> None:
    fleet = Fleet()
    fleet.period(2, rest=TAIL)
    fleet.watch.reconfigure(SkewSettings(tail_ratio=10.0), SIGNALS)
    fleet.period(3, rest=TAIL)
    assert fleet.changes == []
    fleet.watch.reconfigure(SkewSettings(window_seconds=120.0), SIGNALS)
    fleet.period(3, rest=TAIL)
    assert ("long_tail", FIRST) in fleet.kinds()


def test_a_fleet_without_endpoints_is_watched_too() -> None:
    fleet = Fleet(Pool("empty", ()))
    fleet.period(3)
    assert fleet.watch.diagnosis() == {"observed": True, "pools": [], "endpoints": []}


@pytest.mark.parametrize(
    "chosen",
    [
        {"window_seconds": 20.0},
        {"window_seconds": 3600.0},
        {"tail_periods": 0},
        {"tail_ratio": 1.0},
        {"collapse_ratio": 0.0},
        {"release_ratio": 1.1},
        {"calm_periods": 61},
        {"recent_events": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SkewSettings(**chosen)
