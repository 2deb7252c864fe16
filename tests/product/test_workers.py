"""Several ext_proc workers behind the real Envoy: any may roll, die or freeze, and no request fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from fleet.names import EXT_PROC_CLUSTER
from testing.stream_server import running_server, url_of
from tests.product.conftest import LIMIT_SECONDS, until
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.load import LoadRun
from warmroute.simulator.workload import Span, WorkloadSettings, workload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warmroute.demo.stats import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORKERS = 3
RATE = 25.0
MOST_UNNOTICED_SECONDS = 6.0
"""Two checks that fail take under one; the rest is for a busy host."""


@contextlib.asynccontextmanager
async def deployment(url: str = "") -> AsyncIterator[Cluster]:
    overrides = {
        # Of a host that stalls, a request should wait for its pick in the place of going by weights.
        "ext_proc": {"workers": WORKERS, "shared": {"url": url}, "message_timeout_seconds": 2.0},
        "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.4},
        "limits": {"drain_seconds": 3.0},
    }
    async with running_cluster(
        ClusterSettings("apart", 2, EngineSettings(speed_up=5.0), overrides)
    ) as cluster:
        await until(lambda: healthy(cluster))
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    """The last test leaves it in ruins."""
    async with deployment() as made:
        yield made


async def told(cluster: Cluster, address: str, path: str) -> Any:
    """What a page says, once it answers."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while (held := await cluster.get_json(address, path)) is None:
            await asyncio.sleep(0.05)
    return held


async def workers(cluster: Cluster) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await told(cluster, cluster.ext_proc_admin_address, "/api/v1/workers"))[
        "workers"
    ]
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
    load = LoadRun(cluster.address, cluster.settings.engine.model, timeout_seconds=LIMIT_SECONDS)
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


async def test_shared_index_warms_all_workers_and_a_new_one(tmp_path: Path) -> None:
    async with running_server(tmp_path), deployment(url_of(tmp_path)) as cluster:
        turns = workload(
            WorkloadSettings(duration_seconds=1.0, rate_per_second=1.0, tenants=1, turns=Span(1, 1))
        )

        async def picked() -> bool:
            (outcome,) = await LoadRun(cluster.address, cluster.settings.engine.model).run(turns[:1])
            assert outcome.failure is None
            return outcome.picked is not None

        await until(picked)
        counts: list[int] = []

        async def all_warm() -> bool:
            counts[:] = [await held(cluster, entry["admin"]) for entry in await workers(cluster)]
            return min(counts) > 0 and len(set(counts)) == 1

        await until(all_warm)
        before = (await workers(cluster))[0]
        os.kill(before["pid"], signal.SIGKILL)
        await until(lambda: renewed(cluster, 0, before["pid"]))
        assert await held(cluster, before["admin"]) == counts[0]


async def test_workers_share_evenly_and_roll_without_a_failure(cluster: Cluster) -> None:
    restarts = [entry["restarts"] for entry in await workers(cluster)]
    async with under_load(cluster) as outcomes:

        async def even() -> bool:
            before, count = await asked(cluster), len(outcomes)
            await until(lambda: answered(outcomes, count + 60))
            more = [after - held for after, held in zip(await asked(cluster), before, strict=True)]
            return [part / sum(more) for part in more] == [pytest.approx(1 / WORKERS, abs=0.1)] * WORKERS

        await until(even)
        for number in range(WORKERS):
            pid = (await workers(cluster))[number]["pid"]
            os.kill(pid, signal.SIGTERM)
            await until(lambda number=number, pid=pid: renewed(cluster, number, pid))  # type: ignore[misc]
            await until(lambda: healthy(cluster))
    assert failures(outcomes) == set()
    assert [entry["restarts"] for entry in await workers(cluster)] == [count + 1 for count in restarts]
    picked = sum(outcome.picked is not None for outcome in outcomes)
    assert picked > 0.8 * len(outcomes)


async def test_killed_worker_returns_and_a_frozen_one_delays_few(
    cluster: Cluster,
) -> None:
    async with under_load(cluster) as outcomes:
        killed, frozen, _ = await workers(cluster)
        os.kill(killed["pid"], signal.SIGKILL)
        await until(lambda: renewed(cluster, 0, killed["pid"]))
        assert (await workers(cluster))[0]["restarts"] == killed["restarts"] + 1
        await until(lambda: healthy(cluster))
        before = (await asked(cluster))[1]
        os.kill(frozen["pid"], signal.SIGSTOP)
        try:

            async def noticed_by_envoy() -> bool:
                return not await healthy(cluster, 1)

            await until(noticed_by_envoy)
            # Envoy's worker hears of it a moment after its main thread.
            count = len(outcomes)
            await until(lambda: answered(outcomes, count + 10))
            noticed, count = (await asked(cluster))[1], len(outcomes)
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
    assert noticed - before < MOST_UNNOTICED_SECONDS * RATE / WORKERS


async def test_workers_end_with_their_parent_however_it_ends(cluster: Cluster) -> None:
    pids = [entry["pid"] for entry in await workers(cluster)]
    cluster.children["ext-proc"].kill()
    await until(lambda: gone(pids))
    # Their addresses are free again.
    cluster.start("ext-proc", list(cluster.children["ext-proc"].argv))
    await until(lambda: healthy(cluster))
    pids = [entry["pid"] for entry in await workers(cluster)]
    parent = cluster.children["ext-proc"]
    parent.signal(signal.SIGTERM)
    await parent.wait_for_end(LIMIT_SECONDS)
    assert await gone(pids)


async def held(cluster: Cluster, admin: str) -> int:
    """Blocks in a worker's index."""
    pools = await told(cluster, admin, "/api/v1/picks")
    return sum(entry["index_blocks"] for pool in pools.values() for entry in pool.values())


async def renewed(cluster: Cluster, number: int, pid: int) -> bool:
    """Whether another process than this one is the worker, and ready."""
    entry = (await workers(cluster))[number]
    return bool(entry["ready"]) and entry["pid"] not in (None, pid)


async def answered(outcomes: list[Outcome], count: int) -> bool:
    return len(outcomes) >= count


async def gone(pids: list[int]) -> bool:
    return not any(exists(pid) for pid in pids)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
