"""Every source joined: what a load says, how old it is, and what it costs."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings
from fleet.store import Traffic
from testing.signals import Load, Signal, loads_of, table_of
from xds_server.access_log.finished import Finished
from xds_server.signals.computed import REFRESH_SECONDS
from xds_server.signals.join import SignalJoiner, Sources
from xds_server.signals.passive.retry_blame import BLAME_ALL_RETRIES

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


def fleet(*addresses: str) -> Membership:
    return Membership((Pool("p", tuple(Endpoint(address, "p") for address in addresses)),))


class World:
    """A joiner whose sources are plain attributes."""

    def __init__(self, *addresses: str, **settings: Any) -> None:
        self.membership = fleet(*(addresses or (A, B, C)))
        self.pages: dict[str, Load] = {}
        self.workers: dict[str, dict[str, Traffic]] = {}
        self.listening = True
        self.gpus: dict[str, Load] = {}
        self.not_ready: set[str] = set()
        self.context_tokens: dict[str, int] = {}
        self.registry = CollectorRegistry()
        self.now = 1000.0
        self.weights: dict[str, int] = {}
        self.joiner = SignalJoiner(
            SignalSettings(**settings),
            BLAME_ALL_RETRIES,
            Sources(
                lambda: table_of(list(self.pages), self.pages),
                lambda: self.workers,
                lambda: self.listening,
                lambda membership, now: table_of(list(self.gpus), self.gpus),
                lambda: self.not_ready,
                lambda: self.context_tokens,
            ),
            self.registry,
        )
        self.joiner.join(self.membership, self.now)

    def page(self, address: str, **values: float) -> None:
        self.pages[address] = Load(
            **{name: Signal(float(v), self.now, "scrape") for name, v in values.items()}
        )

    def traffic(
        self, worker: str, address: str, in_flight: int, finished: int = 0, p99: float | None = None
    ) -> None:
        entry = Traffic(address, in_flight, in_flight + finished, finished, p99)
        self.workers[worker] = {**self.workers.get(worker, {}), address: entry}

    def served(self, address: str, status: int = 200, first: float | None = 0.2, **fields: Any) -> None:
        values = {
            "picked": "",
            "cluster": "p",
            "request_id": "",
            "started_at": 0.0,
            "duration_seconds": 1.0,
            "flags": (),
            "attempts": 1,
            "metadata": {},
            **fields,
        }
        self.joiner.take(
            Finished(address=address, status=status, first_byte_seconds=first, **values), self.now
        )

    def loads(self, later: float = 0.25) -> dict[str, Load]:
        self.now += later
        return loads_of(self.joiner.join(self.membership, self.now, self.weights))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def test_sources_are_joined_with_their_own_ages() -> None:
    """The page's signals as they are, the others from the tick in which they came."""
    world = World()
    world.page(A, memory_used_ratio=0.5, queue_depth=3, latency_p99_seconds=1.5)
    paged_at = world.now
    world.gpus[A] = Load(gpu_temperature_celsius=Signal(70.0, 990.0, "nvml"))
    world.served(A)
    world.traffic("w1", A, 2, p99=1.0)
    world.traffic("w2", A, 3, p99=4.0)
    load = world.loads()[A]
    assert load.memory_used_ratio == Signal(0.5, paged_at, "scrape")
    assert load.gpu_temperature_celsius == Signal(70.0, 990.0, "nvml")
    assert load.in_flight == Signal(5.0, world.now, "traffic")
    assert load.picked_duration_p99_seconds == Signal(4.0, world.now, "traffic")
    assert load.first_byte_p99_seconds is not None
    assert load.first_byte_p99_seconds.value == pytest.approx(0.2, rel=0.05)
    assert load.error_ratio == Signal(0.0, world.now, "access_log")
    assert load.trust_ratio == Signal(1.0, world.now, "access_log")
    assert load.stalled == Signal(0.0, world.now, "traffic")
    assert load.requests_per_second is not None


def test_context_lengths_are_joined() -> None:
    world = World(A, B)
    world.context_tokens = {A: 8192, C: 4096}
    loads = world.loads()
    assert loads[A].context_tokens == Signal(8192.0, world.now, "probe")
    assert loads[B].context_tokens is None


def test_unknown_is_none() -> None:
    """Without a page, workers and Envoys nothing is known, and nothing is 0."""
    world = World()
    world.listening = False
    assert set(world.loads().values()) == {Load()}
    assert len(world.joiner.join(fleet(), world.now)) == 0


def test_the_engines_own_latency_wins_while_it_is_fresh() -> None:
    """Else Envoys' first byte stands in, under its own name and age."""
    world = World()
    world.page(A, latency_p50_seconds=3.0, latency_p99_seconds=3.0)
    world.served(A, first=0.2)
    world.served(B, first=0.2)
    loads = world.loads()
    assert loads[A].latency_p99_seconds == Signal(3.0, 1000.0, "scrape")
    assert loads[B].latency_p99_seconds is not None
    assert loads[B].latency_p99_seconds == loads[B].first_byte_p99_seconds
    assert loads[B].latency_p50_seconds == loads[B].first_byte_p50_seconds
    world.now += 15
    world.served(A, first=0.2)
    latency = world.loads()[A].latency_p99_seconds
    assert latency is not None
    assert latency.source == "access_log"


def test_computed_numbers_renew_when_moved_or_after_a_second() -> None:
    """Workers are sent what changes, so a quiet endpoint keeps its times of observation."""
    world = World()
    world.page(A, queue_depth=1)
    world.traffic("w", A, 1)
    world.traffic("w", B, 1)
    before = world.loads()
    assert world.loads() == before
    world.traffic("w", B, 2)
    moved = world.loads()
    assert moved[A] == before[A]
    assert moved[B].in_flight == Signal(2.0, world.now, "traffic")
    later = world.loads(REFRESH_SECONDS)
    assert later[A].in_flight == Signal(1.0, world.now, "traffic")
    assert later[A].queue_depth == before[A].queue_depth


def test_frozen_engine_stalls_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """By gauge, event and one line; then it works again."""
    world = World()
    world.page(A, running=0, queue_depth=0, progress_total=5)
    world.traffic("w", A, 4)
    with caplog.at_level(logging.INFO):
        for number in range(12):
            if number % 4 == 0:
                world.page(A, running=0, queue_depth=0, progress_total=5)
            load = world.loads()[A]
        assert load.stalled is not None
        assert load.stalled.value == 1
        assert world.metric("warmroute_stalled_endpoints") == 1
        world.served(A)
        load = world.loads()[A]
    assert load.stalled is not None
    assert load.stalled.value == 0
    assert world.metric("warmroute_stalled_endpoints") == 0
    assert world.metric("warmroute_endpoint_events_total", event="stalled") == 1
    assert world.metric("warmroute_endpoint_events_total", event="recovered") == 1
    assert len([r for r in caplog.records if A in r.getMessage()]) == 2


@pytest.mark.parametrize(
    ("weights", "picked", "hangs"),
    [({A: 1000, B: 1000, C: 1000}, "", 1), ({B: 1000, C: 1000}, "", None), ({A: 1, B: 1, C: 1}, B, None)],
    ids=["by weight", "of no weight", "picked"],
)
def test_an_engine_that_owes_its_share_hangs_without_any_worker(
    weights: dict[str, int], picked: str, hangs: float | None
) -> None:
    """Its page has fallen silent, and the others answer what goes by weights."""
    world = World()
    world.page(A, running=1, queue_depth=0, progress_total=5)
    world.weights = weights
    for _ in range(12):
        for _ in range(2):
            world.served(B, picked=picked)
            world.served(C, picked=picked)
        load = world.loads()[A]
    assert (load.stalled and load.stalled.value) == hangs


def test_failing_engine_is_distrusted_and_429_is_not() -> None:
    """503 for all against 429 for all, at the same rate."""
    world = World()
    for _ in range(16):
        for _ in range(5):
            world.served(A, 503)
            world.served(B, 429)
        loads = world.loads()
    assert loads[A].trust_ratio is not None
    assert loads[A].trust_ratio.value == 0.02
    assert loads[A].error_ratio is not None
    assert loads[A].error_ratio.value == 1.0
    assert loads[B].trust_ratio == Signal(1.0, loads[B].trust_ratio.observed_at, "access_log")
    assert loads[B].error_ratio is not None
    assert loads[B].error_ratio.value == 0.0
    assert world.metric("warmroute_distrusted_endpoints") == 1
    for _ in range(20):
        world.served(A)
        loads = world.loads()
    assert loads[A].trust_ratio is not None
    assert loads[A].trust_ratio.value == 1.0
    assert world.metric("warmroute_endpoint_events_total", event="trusted") == 1


def test_an_extreme_fades_where_nothing_runs() -> None:
    """And is back in full with the first request there."""
    world = World()
    for address in (A, B, C):
        world.traffic("w", address, int(address != A))

    def tick(seconds: float) -> Load:
        world.now += seconds - 0.25
        for address, queue in ((A, 40), (B, 2), (C, 4)):
            world.page(address, queue_depth=queue)
        return world.loads()[A]

    assert tick(0.25).queue_depth.value == pytest.approx(40, abs=1)
    faded = [tick(5.0).queue_depth for _ in range(12)]
    assert faded[0].value < 40
    assert faded[-1].value == pytest.approx(3.0, abs=1.0)
    assert faded[-1].source == "faded"
    world.traffic("w", A, 1)
    assert tick(0.25).queue_depth == Signal(40.0, world.now - 0.25, "scrape")


def test_signals_that_return_wait() -> None:
    """After a silence longer than stale only reachability counts at first."""
    world = World()
    world.page(A, queue_depth=1, reachable=1, progress_total=3)
    world.loads()
    world.now += 20
    world.page(A, queue_depth=50, reachable=1, progress_total=4)
    load = world.loads()[A]
    assert load.queue_depth is None
    assert load.reachable is not None
    world.now += 2.0
    world.page(A, queue_depth=50, reachable=1, progress_total=4)
    assert world.loads()[A].queue_depth is not None


def test_ready_is_0_before_the_probe_passes_or_unknown() -> None:
    world = World()
    world.not_ready = {A, "10.9.9.9:80"}
    loads = world.loads()
    assert (loads[A].ready, loads[B].ready) == (Signal(0.0, world.now, "probe"), None)
    world.not_ready = set()
    assert world.loads()[A].ready is None


def test_endpoints_come_and_go() -> None:
    """State follows the address; an endpoint that leaves and returns starts again."""
    world = World()
    for _ in range(16):
        for _ in range(5):
            world.served(A, 503)
        world.loads()
    world.membership = fleet(C, A)
    loads = world.loads()
    assert list(loads) == [C, A]
    assert loads[A].trust_ratio.value == 0.02
    world.membership = fleet(C)
    assert list(world.loads()) == [C]
    world.membership = fleet(C, A)
    assert world.loads()[A].trust_ratio.value == 1.0


def test_only_other_windows_start_again() -> None:
    """Trust is kept either way."""
    world = World()
    for _ in range(16):
        for _ in range(5):
            world.served(A, 503)
        world.loads()
    world.joiner.reconfigure(SignalSettings(decay_seconds=3), BLAME_ALL_RETRIES)
    assert world.loads()[A].error_ratio.value == 1.0
    world.joiner.reconfigure(SignalSettings(error_window_seconds=9), BLAME_ALL_RETRIES)
    load = world.loads()[A]
    assert load.error_ratio is None
    assert load.trust_ratio.value == 0.02
    world.served(A)
    assert world.loads()[A].error_ratio.value == 0


def test_only_what_moved_differs() -> None:
    """Of a thousand quiet endpoints one page is new: nothing else is another observation."""
    addresses = [f"10.1.{number // 250}.{number % 250}:80" for number in range(1000)]
    world = World(*addresses)
    for address in addresses:
        world.page(address, queue_depth=1)
    before = world.loads()
    world.page(addresses[7], queue_depth=2)
    after = world.loads()
    assert [address for address in addresses if after[address] != before[address]] == [addresses[7]]


def test_unhealthy_before_a_restart_is_reported_once_at_most(caplog: pytest.LogCaptureFixture) -> None:
    """It hangs on in the load and in the gauge, and the log was written before."""
    world = World()
    world.joiner.restore_stalled({B, "10.0.0.9:80"}, world.now)
    world.membership = fleet(A, B, C, "10.0.0.4:80")
    assert world.loads()[B].stalled is None, "it was followed before it was doubted"
    world = World(A)
    world.joiner.restore_stalled({B}, world.now)
    world.membership = fleet(A, B)
    with caplog.at_level(logging.INFO):
        load = world.loads()[B]
        assert load.stalled is not None
        assert load.stalled.value == 1
        assert world.metric("warmroute_stalled_endpoints") == 1
        assert not caplog.records
        world.served(B)
        world.loads()
    assert "no longer counts as hanging" in caplog.text
    world.now += 60
    world.membership = fleet(A)
    world.loads()
    world.membership = fleet(A, B)
    assert world.loads()[B].stalled is None, "that was long ago"
