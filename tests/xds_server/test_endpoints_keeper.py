"""Sources, probes and time together: the membership as the services see it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import PoolSettings, Settings, parse_settings
from xds_server.endpoints.factory import ReportedSource, SourceFactory
from xds_server.endpoints.gate import ProbeResult
from xds_server.endpoints.keeper import EndpointKeeper
from xds_server.endpoints.source import SourceMetrics, TroubleReport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from fleet.settings import DiscoverySettings
    from xds_server.endpoints.source import OnEndpoints

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
NO_PROBE = "{probe: none, slow_start_seconds: 10, slow_start_from: 0.5, drain_seconds: 5}"


def settings(
    *static: str,
    discovery: str = "[]",
    joining: str = NO_PROBE,
    pool: str = "p",
    models: str = "[]",
    more: str = "",
) -> Settings:
    endpoints = ", ".join(f"{{address: '{address}'}}" for address in static)
    return parse_settings(
        f"pools: [{{name: {pool}, models: {models}, endpoints: [{endpoints}], discovery: {discovery},"
        f" joining: {joining}}}]\n"
        f"listeners: [{{name: l, address: '127.0.0.1:1', pool: {pool}}}]\n{more}"
    )


FILE = "[{file: {path: /x}}]"
TWO_FILES = "[{file: {path: /x}}, {file: {path: /y}}]"


class Scripted:
    """A source whose endpoints a test sets."""

    def __init__(self, pool: PoolSettings) -> None:
        self.name, self.pool, self.models = "scripted", pool.name, pool.models
        self.report: Callable[..., None] | None = None
        self.fault: Exception | None = None
        self.runs = 0

    async def run(self, on_endpoints: OnEndpoints) -> None:
        self.runs += 1
        if self.fault is not None:
            raise self.fault
        self.report = lambda *addresses: on_endpoints(
            tuple(Endpoint(address, self.pool, self.models) for address in addresses)
        )
        await asyncio.Event().wait()


class Kept:
    """A keeper on a clock that a test sets; file sources are scripted, by path."""

    def __init__(self, initial: Settings, last_good: Membership | None = None) -> None:
        self.now = 1000.0
        self.sources: dict[str, Scripted] = {}
        self.registry = CollectorRegistry()
        self.changes = 0
        self.fault: Exception | None = None
        self.keeper = EndpointKeeper(initial, self.registry, lambda: self.now, factory=self._make)
        if last_good is not None:
            self.keeper.restore(last_good)
        self.keeper.on_change = self._changed

    def _changed(self) -> None:
        self.changes += 1

    def _make(
        self, pool: PoolSettings, entry: DiscoverySettings | None, metrics: SourceMetrics
    ) -> ReportedSource:
        if entry is None or entry.file is None:
            return SourceFactory()(pool, entry, metrics)
        source = self.sources[entry.file.path] = Scripted(pool)
        source.fault = self.fault
        return ReportedSource(source, TroubleReport("scripted", "file", metrics))

    async def start(self) -> None:
        await self.keeper.start()
        await self.turn()

    async def turn(self) -> None:
        """Let tasks that are ready run."""
        for _ in range(5):
            await asyncio.sleep(0)

    def report(self, path: str, *addresses: str) -> None:
        report = self.sources[path].report
        assert report is not None
        report(*addresses)

    @property
    def listed(self) -> list[str]:
        return [endpoint.address for endpoint in self.keeper.membership().endpoints]

    @property
    def ramp(self) -> Mapping[str, float]:
        return self.keeper.ramp(self.now)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"warmroute_{name}", labels)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)


@pytest.fixture
async def keep() -> AsyncIterator[Callable[..., Any]]:
    made: list[Kept] = []

    async def start(initial: Settings, **more: Any) -> Kept:
        made.append(Kept(initial, **more))
        await made[-1].start()
        return made[-1]

    yield start
    for kept in made:
        await kept.keeper.close()


Keep: TypeAlias = "Callable[..., Any]"


async def test_static_endpoints_are_served_after_first_sync(keep: Keep) -> None:
    kept = await keep(settings(A, B))
    assert await kept.keeper.first_sync(60)
    assert kept.listed == [A, B]
    assert kept.ramp == {}
    assert kept.keeper.membership() is kept.keeper.membership()
    assert kept.metric("endpoints", state="admitted") == 2


async def test_first_sync_waits_for_every_source(keep: Keep) -> None:
    kept = await keep(settings(discovery=TWO_FILES))
    kept.report("/x", A)
    assert not await kept.keeper.first_sync(0.02)
    kept.report("/y", B)
    assert await kept.keeper.first_sync(60)
    assert kept.listed == [A, B]
    assert kept.ramp == {}, "the first endpoints of a source were served before us"


async def test_unknown_is_not_empty(keep: Keep) -> None:
    kept = await keep(settings(discovery=FILE))
    assert kept.keeper.unknown_pools() == {"p"}
    kept.report("/x")
    assert kept.keeper.unknown_pools() == frozenset()
    assert kept.keeper.membership() == Membership((Pool("p"),))


async def test_membership_changes_once_per_join_and_leave(keep: Keep) -> None:
    kept = await keep(settings(A, discovery=FILE))
    kept.report("/x", B)
    before, changes = kept.keeper.membership(), kept.changes
    kept.report("/x", B)
    assert kept.keeper.membership() is before
    assert kept.changes == changes
    kept.report("/x", B, C)
    assert kept.changes == changes + 1
    assert kept.listed == [A, B, C]
    assert kept.ramp == {C: pytest.approx(0.5)}
    kept.now += 5
    assert kept.ramp == {C: pytest.approx(0.75)}
    kept.report("/x", C)
    assert (kept.keeper.leaving(), sorted(kept.listed)) == ({B}, [A, B, C])
    kept.now += 5
    assert (kept.listed, kept.keeper.leaving(), kept.ramp) == ([A, C], frozenset(), {})


async def test_duplicates_go_to_the_source_listed_first(keep: Keep) -> None:
    kept = await keep(settings(A, discovery=TWO_FILES))
    kept.report("/y", B, A)
    kept.report("/x", B)
    assert kept.listed == [A, B]
    assert kept.metric("endpoint_duplicates") == 2


async def test_endpoints_over_the_limit_are_left_out(keep: Keep) -> None:
    kept = await keep(settings(A, discovery=FILE, more="limits: {endpoints: 2}\n"))
    kept.report("/x", B, C)
    assert kept.listed == [A, B]
    assert kept.metric("endpoints_over_limit") == 1


async def test_last_good_state_is_served_until_first_results(keep: Keep) -> None:
    good = Membership((Pool("p", (Endpoint(B, "p"), Endpoint(C, "p"))), Pool("gone", (Endpoint(A, "gone"),))))
    joining = "{probe: models, probe_interval_seconds: 3600, drain_seconds: 5}"
    kept = await keep(settings(discovery=FILE, joining=joining), last_good=good)
    assert kept.listed == [B, C]
    assert kept.keeper.unknown_pools() == frozenset()
    assert kept.ramp == {}
    kept.report("/x", B)
    assert kept.keeper.leaving() == {C}
    kept.now += 5
    assert kept.listed == [B]


@contextlib.asynccontextmanager
async def two_names(paths: list[str]) -> AsyncIterator[str]:
    """An engine with two names of its model; `paths` gets those of its requests."""

    async def models(request: web.BaseRequest) -> web.StreamResponse:
        paths.append(request.path)
        return web.json_response({"data": [{"id": "m", "max_model_len": 8192}, {"id": "n"}]})

    runner = web.ServerRunner(web.Server(models), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


async def test_restored_endpoint_shows_its_list_by_one_probe(keep: Keep) -> None:
    paths: list[str] = []
    async with two_names(paths) as address:
        good = Membership((Pool("p", (Endpoint(address, "p", ("m", "n")),)),))
        made = settings(discovery=FILE, joining="{probe_interval_seconds: 0.01}", models="[m, n]")
        kept = await keep(made, last_good=good)
        assert kept.listed == [address]
        await kept.until(lambda: kept.keeper.context_tokens() == {address: 8192})
        await kept.until(lambda: kept.keeper.membership().endpoints[0].own_names == ("m", "n"))
        kept.report("/x", address)
        await asyncio.sleep(0.05)
        assert paths.count("/v1/models") == 1


async def test_other_models_in_the_settings_are_looked_up_by_one_probe(keep: Keep) -> None:
    paths: list[str] = []
    async with two_names(paths) as address:
        joining = "{probe_interval_seconds: 0.01}"
        kept = await keep(settings(address, joining=joining, models="[m]"))
        await kept.until(lambda: kept.keeper.context_tokens() == {address: 8192})
        assert kept.keeper.membership().endpoints[0].own_names == ()
        kept.keeper.reconfigure(settings(address, joining=joining, models="[m, n]"))
        await kept.until(lambda: kept.keeper.membership().endpoints[0].own_names == ("m", "n"))
        await asyncio.sleep(0.05)
        assert paths.count("/v1/models") == 2


async def test_unchanged_source_keeps_running(keep: Keep) -> None:
    kept = await keep(settings(A, discovery=FILE))
    kept.report("/x", B)
    source, before = kept.sources["/x"], kept.keeper.membership()
    kept.keeper.reconfigure(settings(A, discovery=TWO_FILES, more="xds: {tick_seconds: 0.5}\n"))
    await kept.turn()
    assert kept.sources["/x"] is source
    assert source.runs == 1
    assert kept.keeper.membership() is before
    kept.report("/y", C)
    assert kept.listed == [A, B, C]
    assert kept.ramp == {C: pytest.approx(0.5)}, "endpoints of a new source are new"


async def test_static_endpoints_that_change_join_and_drain(keep: Keep) -> None:
    kept = await keep(settings(A, B))
    kept.keeper.reconfigure(settings(A, C))
    await kept.turn()
    assert (sorted(kept.listed), kept.keeper.leaving()) == ([A, B, C], {B})


async def test_changed_defaults_of_a_pool_take_nobody_out(keep: Keep) -> None:
    kept = await keep(settings(A, discovery=FILE))
    kept.report("/x", B)
    initial = settings(A, discovery=FILE)
    pool = initial.pools[0].model_copy(update={"models": ("m",)})
    kept.keeper.reconfigure(initial.model_copy(update={"pools": (pool,)}))
    await kept.turn()
    assert (kept.listed, kept.keeper.leaving()) == ([A, B], frozenset())
    assert kept.keeper.membership().by_address[A].models == ("m",)


async def test_replaced_source_keeps_its_endpoints_at_first(keep: Keep) -> None:
    kept = await keep(settings(discovery=FILE))
    kept.report("/x", A, B)
    kept.keeper.reconfigure(settings(discovery="[{file: {path: /y}}]"))
    await kept.turn()
    assert (kept.listed, kept.keeper.leaving()) == ([A, B], frozenset())
    kept.report("/x", C)
    assert kept.listed == [A, B], "a source that is gone has no say"
    kept.report("/y", B)
    assert kept.keeper.leaving() == {A}


async def test_removed_pool_is_gone_at_once(keep: Keep) -> None:
    kept = await keep(settings(A))
    kept.keeper.reconfigure(settings(B, pool="q"))
    await kept.turn()
    assert [pool.name for pool in kept.keeper.membership().pools] == ["q"]
    assert kept.listed == [B]


async def test_faulty_source_is_counted_and_restarted(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("xds_server.endpoints.keeper.RESTART_SECONDS", 0.01)
    kept = Kept(settings(A, discovery=FILE))
    kept.fault = RuntimeError("a fault")
    await kept.start()
    await kept.until(lambda: kept.sources["/x"].runs >= 1)
    kept.sources["/x"].fault = None
    await kept.until(lambda: kept.sources["/x"].report is not None)
    kept.report("/x", B)
    assert kept.listed == [A, B]
    assert (kept.metric("endpoint_source_errors_total", source="file") or 0) >= 1
    await kept.keeper.close()


async def test_closing_leaves_no_task_behind(keep: Keep) -> None:
    before = asyncio.all_tasks()
    kept = Kept(settings(A, discovery=FILE, joining="{probe: health}"))
    await kept.start()
    assert asyncio.all_tasks() > before
    await kept.keeper.close()
    assert asyncio.all_tasks() == before


async def test_loading_engine_is_admitted_by_its_probe(keep: Keep) -> None:
    status = {"code": 200}

    async def late(request: web.BaseRequest) -> web.StreamResponse:
        return await _models(request) if status["code"] == 200 else web.Response(status=status["code"])

    runners = [web.ServerRunner(web.Server(answer), shutdown_timeout=0.1) for answer in (_models, late)]
    addresses = []
    for runner in runners:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        addresses.append("{}:{}".format(*runner.addresses[0]))
    first, second = addresses
    kept = await keep(settings(first, discovery=FILE, joining="{probe_interval_seconds: 0.01}"))
    try:
        kept.report("/x")
        assert await kept.keeper.first_sync(60)
        assert kept.listed == [first]
        status["code"] = 503
        kept.report("/x", second)
        await asyncio.sleep(0.05)
        assert kept.listed == [first]
        assert kept.metric("endpoints", state="probing") == 1
        changes = kept.changes
        status["code"] = 200
        await kept.until(lambda: kept.changes > changes)
        assert kept.listed == [first, second]
        assert kept.ramp == {second: pytest.approx(0.1)}
    finally:
        for runner in runners:
            await runner.cleanup()


async def test_probe_failure_shows_only_while_it_keeps_out(keep: Keep) -> None:
    """A doubted engine whose probe is not answered is served, and nothing is to be said of it."""
    statuses: dict[str, int | None] = {"code": 200}

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if statuses["code"] is None:
            await asyncio.sleep(60)
        return await _models(request) if statuses["code"] == 200 else web.Response(status=503)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = "{}:{}".format(*runner.addresses[0])
    joining = "{probe_interval_seconds: 0.01, probe_timeout_seconds: 0.2}"
    kept = await keep(settings(address, joining=joining))

    def shown() -> str | None:
        (listed,) = kept.keeper.listed()
        return listed.not_ready

    try:
        assert await kept.keeper.first_sync(60)
        statuses["code"] = None
        kept.keeper.suspect(address, refused=False)
        prober = kept.keeper._prober
        assert prober is not None
        await kept.until(lambda: bool(prober.refusals))
        assert (shown(), kept.keeper.not_ready()) == (None, frozenset())
        statuses["code"] = 503
        await kept.until(lambda: kept.keeper.not_ready() == {address})
        await kept.until(lambda: "503" in (shown() or ""))
    finally:
        await runner.cleanup()


async def test_waiting_endpoint_serves_while_admitted_are_unfit(
    keep: Keep,
) -> None:
    joining = "{probe: models, probe_interval_seconds: 3600}"
    last_good = Membership((Pool("p", (Endpoint(A, "p"),)),))
    kept = await keep(settings(discovery=FILE, joining=joining), last_good=last_good)
    kept.report("/x", A)
    kept.report("/x", A, B)
    assert kept.listed == [A]
    kept.keeper.judge(frozenset({A}))
    assert kept.listed == [A, B]
    kept.keeper._on_probe(B, ProbeResult.NOT_READY)
    assert kept.keeper.not_ready() == {B}
    kept.keeper.judge(frozenset({B}))
    assert kept.listed == [A]


async def _models(request: web.BaseRequest) -> web.StreamResponse:
    return web.json_response({"data": [{"id": "m"}]})
