"""Several ext_proc workers behind the real Envoy: any may roll, die or freeze, and no request fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.cluster import Cluster, ClusterSettings, EngineSettings, running_cluster
from bench.load import LoadRun
from bench.stream_server import running_server, url_of
from fleet.names import EXT_PROC_CLUSTER
from simulator.workload import Span, WorkloadSettings, workload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bench.stats import Outcome

WORKERS = 3
RATE = 25.0


@contextlib.asynccontextmanager
async def deployment(url: str = "") -> AsyncIterator[Cluster]:
    overrides = {
        "ext_proc": {"workers": WORKERS, "shared": {"url": url}},
        "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.4},
        "limits": {"drain_seconds": 3.0},
    }
    async with running_cluster(
        ClusterSettings("apart", 2, EngineSettings(speed_up=5.0), overrides)
    ) as cluster:
        await until(lambda: healthy(cluster))
        yield cluster


async def until(reached: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not await reached():
            await asyncio.sleep(0.05)


async def workers(cluster: Cluster) -> list[dict[str, Any]]:
    told = await cluster.get_json(cluster.ext_proc_admin_address, "/api/v1/workers")
    listed: list[dict[str, Any]] = told["workers"] if told else []
    return listed


async def healthy(cluster: Cluster, *numbers: int) -> bool:
    """Whether Envoy holds these workers for healthy; none named: all."""
    assert cluster.envoy is not None
    hosts = (await cluster.envoy.clusters()).get(EXT_PROC_CLUSTER, {})
    states = [not hosts[path]["health_status"].get("failed_active_health_check") for path in sorted(hosts)]
    return len(states) == WORKERS and all(states[number] for number in numbers or range(WORKERS))


async def asked(cluster: Cluster) -> list[int]:
    """How many requests Envoy has asked each worker about."""
    assert cluster.envoy is not None
    hosts = (await cluster.envoy.clusters())[EXT_PROC_CLUSTER]
    return [
        next(int(stat.get("value", 0)) for stat in hosts[path]["stats"] if stat["name"] == "rq_total")
        for path in sorted(hosts)
    ]


@contextlib.asynccontextmanager
async def under_load(cluster: Cluster) -> AsyncIterator[list[Outcome]]:
    """Send a steady load; the outcomes are complete when the context has ended."""
    turns = workload(
        WorkloadSettings(
            duration_seconds=120.0,
            rate_per_second=RATE,
            tenants=6,
            system_prompt_tokens=Span(200, 400),
            turns=Span(1, 3),
            max_tokens=Span(10, 30),
        )
    )
    load = LoadRun(cluster.address, cluster.settings.engine.model, timeout_seconds=30.0)
    sending = asyncio.create_task(load.run(turns))
    try:
        yield load.outcomes
        load.stop()
        await sending
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def failures(outcomes: list[Outcome]) -> set[str]:
    return {outcome.failure for outcome in outcomes if outcome.failure is not None}


async def test_every_worker_gets_its_share_and_rolling_them_loses_no_request() -> None:
    async with deployment() as cluster:
        async with under_load(cluster) as outcomes:
            await until(lambda: answered(outcomes, 60))
            counts = await asked(cluster)
            assert [count / sum(counts) for count in counts] == [
                pytest.approx(1 / WORKERS, abs=0.1)
            ] * WORKERS
            for number in range(WORKERS):
                before = (await workers(cluster))[number]
                os.kill(before["pid"], signal.SIGTERM)

                async def renewed(number: int = number, pid: int = before["pid"]) -> bool:
                    told = (await workers(cluster))[number]
                    return bool(told["ready"]) and told["pid"] not in (None, pid)

                await until(renewed)
                await until(lambda: healthy(cluster))
        assert failures(outcomes) == set()
        assert [entry["restarts"] for entry in await workers(cluster)] == [1] * WORKERS
        picked = sum(outcome.picked is not None for outcome in outcomes)
        assert picked > 0.8 * len(outcomes)


async def test_a_killed_worker_is_back_and_a_frozen_one_costs_few_requests_a_timeout() -> None:
    async with deployment() as cluster:
        async with under_load(cluster) as outcomes:
            killed, frozen, _ = await workers(cluster)
            os.kill(killed["pid"], signal.SIGKILL)

            async def restarted() -> bool:
                told = (await workers(cluster))[0]
                return bool(told["ready"]) and told["restarts"] == 1

            await until(restarted)
            await until(lambda: healthy(cluster))
            before = (await asked(cluster))[1]
            os.kill(frozen["pid"], signal.SIGSTOP)
            try:

                async def noticed_by_envoy() -> bool:
                    return not await healthy(cluster, 1)

                await until(noticed_by_envoy)
                noticed = (await asked(cluster))[1]
                count = len(outcomes)
                await until(lambda: answered(outcomes, count + 60))
                # It goes on with the others, and nobody waits any more for the one that is frozen.
                assert (await asked(cluster))[1] == noticed
                later = [outcome for outcome in outcomes[count:] if outcome.failure is None]
                assert sum(outcome.picked is not None for outcome in later) > 0.8 * len(later)
            finally:
                os.kill(frozen["pid"], signal.SIGCONT)
            await until(lambda: healthy(cluster))
        assert failures(outcomes) == set()
        # Those that waited, each for one timeout: what comes to one worker until two checks have failed.
        assert noticed - before < 3 * RATE / WORKERS


async def test_workers_end_with_their_parent_however_it_ends() -> None:
    async with deployment() as cluster:
        pids = [entry["pid"] for entry in await workers(cluster)]
        cluster.children["ext-proc"].kill()
        await until(lambda: gone(pids))
        # Their addresses are free again.
        cluster.start("ext-proc", list(cluster.children["ext-proc"].argv))
        await until(lambda: healthy(cluster))
        pids = [entry["pid"] for entry in await workers(cluster)]
        parent = cluster.children["ext-proc"]
        parent.signal(signal.SIGTERM)
        await parent.wait_for_end(20.0)
        assert await gone(pids)


async def test_with_a_shared_index_one_prompt_warms_every_worker_and_one_that_is_new(tmp_path: Path) -> None:
    async with running_server(tmp_path), deployment(url_of(tmp_path)) as cluster:
        turns = workload(
            WorkloadSettings(duration_seconds=1.0, rate_per_second=1.0, tenants=1, turns=Span(1, 1))
        )
        outcomes = await LoadRun(cluster.address, cluster.settings.engine.model).run(turns[:1])
        assert failures(outcomes) == set()
        counts: list[int] = []

        async def all_warm() -> bool:
            counts[:] = [await held(cluster, entry["admin"]) for entry in await workers(cluster)]
            return min(counts) > 0

        await until(all_warm)
        assert len(set(counts)) == 1
        before = (await workers(cluster))[0]
        os.kill(before["pid"], signal.SIGKILL)

        async def renewed() -> bool:
            told = (await workers(cluster))[0]
            return bool(told["ready"]) and told["pid"] not in (None, before["pid"])

        await until(renewed)
        assert await held(cluster, before["admin"]) == counts[0]


async def held(cluster: Cluster, admin: str) -> int:
    """Blocks in a worker's index."""
    told = await cluster.get_json(admin, "/api/v1/picks") or {}
    return sum(entry["index_blocks"] for pool in told.values() for entry in pool.values())


async def answered(outcomes: list[Outcome], count: int) -> bool:
    return len(outcomes) >= count


async def gone(pids: list[int]) -> bool:
    return not any(exists(pid) for pid in pids)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
