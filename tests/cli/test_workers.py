"""A parent of workers: its restarts, its signals, and its leftovers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fleet.service.admin import Query
from fleet.settings import parse_settings
from warmroute.cli.ext_proc import placed
from warmroute.cli.main import main
from warmroute.cli.worker_admin import WorkerAdmins
from warmroute.cli.workers import FIRST_SECONDS, MOST_SECONDS, SETTLED_SECONDS, Backoff
from warmroute.demo.processes import Child, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SETTINGS = """
pools: [{name: chat, endpoints: [{address: "127.0.0.1:1"}]}]
listeners: [{name: llm, address: "127.0.0.1:10000", pool: chat}]
"""


def test_a_worker_that_fails_at_its_start_waits_longer_each_time() -> None:
    backoff = Backoff()
    pauses = [backoff.ended(0.5, in_order=False) for _ in range(10)]
    assert pauses[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert pauses[-1] == MOST_SECONDS
    assert backoff.fails_always


@pytest.mark.parametrize(("lived", "in_order"), [(SETTLED_SECONDS, False), (0.5, True)])
def test_a_settled_or_stopped_worker_restarts_at_once(lived: float, in_order: bool) -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.ended(0.5, in_order=False)
    assert backoff.ended(lived, in_order=in_order) == 0.0
    assert not backoff.fails_always


def test_each_worker_has_addresses_of_its_own() -> None:
    settings = parse_settings(
        SETTINGS + "ext_proc: {workers: 3}\nadmin: {ext_proc_address: '127.0.0.1:9001'}"
    )
    own = [placed(settings, number)(settings) for number in range(3)]
    assert [entry.ext_proc.address.rpartition("/")[2] for entry in own] == [
        "ext_proc.sock",
        "ext_proc.sock.1",
        "ext_proc.sock.2",
    ]
    assert [entry.admin.ext_proc_address for entry in own] == [
        f"127.0.0.1:{port}" for port in (9002, 9003, 9004)
    ]


def test_a_changed_address_is_not_taken_for_a_workers_own() -> None:
    """So that the watch sees that it waits for the next start."""
    started = parse_settings(SETTINGS + "ext_proc: {workers: 2, address: '127.0.0.1:7000'}")
    changed = parse_settings(SETTINGS + "ext_proc: {workers: 2, address: '127.0.0.1:7100'}")
    place = placed(started, 1)
    assert place(started).ext_proc.address == "127.0.0.1:7001"
    assert place(changed).ext_proc.address == "127.0.0.1:7100"


def test_without_an_admin_server_workers_have_none() -> None:
    settings = parse_settings(SETTINGS + "ext_proc: {workers: 2}\nadmin: {ext_proc_address: ''}")
    assert placed(settings, 1)(settings).admin.ext_proc_address == ""


def test_one_process_serves_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "warmroute.yaml"
    file.write_text(SETTINGS + "ext_proc: {workers: 2}\n")
    assert main(["serve", str(file)]) == 2
    assert "ext_proc.workers" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "65", "x", "-1"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(count: str) -> None:
    with pytest.raises(SystemExit):
        main(["ext-proc", "none.yaml", "--workers", count])


class Admin:
    """A worker's admin server, as far as its parent asks it."""

    def __init__(self) -> None:
        self.ready = True
        self.picks: list[dict[str, Any]] = []
        self.requests: list[tuple[dict[str, str], str]] = []
        self.address = ""

    async def readyz(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503)

    async def decisions(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.query), request.headers.get("authorization", "")))
        kv_events = [{"endpoint": endpoint}] if (endpoint := request.query.get("endpoint")) else []
        return web.json_response({"picks": self.picks, "kv_events": kv_events})


@pytest.fixture
async def two() -> AsyncIterator[list[Admin]]:
    admins, runners = [Admin(), Admin()], []
    for admin in admins:
        application = web.Application()
        application.router.add_get("/readyz", admin.readyz)
        application.router.add_get("/api/v1/decisions", admin.decisions)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        admin.address = f"127.0.0.1:{runner.addresses[0][1]}"
        runners.append(runner)
    yield admins
    for runner in runners:
        await runner.cleanup()


async def test_one_ready_worker_is_enough_and_picks_are_joined(two: list[Admin]) -> None:
    two[0].picks = [
        {"at": "2026-01-01T00:00:03", "request": "c"},
        {"at": "2026-01-01T00:00:01", "request": "a"},
    ]
    two[1].picks = [{"at": "2026-01-01T00:00:02", "request": "b"}]
    two[1].ready = False
    admins = WorkerAdmins([*(admin.address for admin in two), "127.0.0.1:1"], None, CollectorRegistry())
    watching = asyncio.create_task(admins.run())
    try:
        async with asyncio.timeout(60.0):
            while admins.ready != [True, False, False]:
                await asyncio.sleep(0.01)
        decisions = await admins.decisions(Query(endpoint="10.0.0.1:80", limit=2))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert [(pick["request"], pick["worker"]) for pick in decisions["picks"]] == [("c", 0), ("b", 1)]
    assert decisions["kv_events"] == [{"endpoint": "10.0.0.1:80", "worker": n} for n in range(2)]
    assert two[0].requests == [({"limit": "2", "endpoint": "10.0.0.1:80"}, "")]


async def test_an_ended_worker_is_not_ready_until_the_next_probe() -> None:
    admins = WorkerAdmins(["127.0.0.1:1", "127.0.0.1:2"], None, CollectorRegistry())
    admins.ready = [True, True]
    admins.forget(1)
    assert admins.ready == [True, False]


async def eventually(reached: Any, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.02)


def parent(tmp_path: Path, workers: int, port: int) -> Child:
    file = tmp_path / "warmroute.yaml"
    file.write_text(
        SETTINGS
        + f"ext_proc: {{address: 'unix:{tmp_path}/p.sock'}}\n"
        + f"control: {{address: 'unix:{tmp_path}/none.sock'}}\n"
        + f"admin: {{ext_proc_address: '127.0.0.1:{port}'}}\n"
        + "limits: {drain_seconds: 0.2}\n"
    )
    argv = [sys.executable, "-m", "warmroute.cli.main", "ext-proc", str(file), "--workers", str(workers)]
    return Child("parent", argv, tmp_path)


async def test_a_parent_forwards_hangups_and_ends_with_its_workers(tmp_path: Path) -> None:
    child = parent(tmp_path, 2, free_ports(3))
    try:
        await eventually(lambda: child.log.read_text().count("fleet.service.admin: admin listens") == 3)
        file = tmp_path / "warmroute.yaml"
        file.write_text(file.read_text() + "nonsense: 1\n")
        child.signal(signal.SIGHUP)
        await eventually(lambda: child.log.read_text().count("is refused") >= 2)
        child.signal(signal.SIGTERM)
        await child.wait_for_end(60.0)
        text = child.log.read_text()
        assert text.count("warmroute.cli.service: ext-proc has stopped") == 2
        assert text.count("has ended with status 0") == 2
        assert "all workers have stopped" in text
    finally:
        child.kill()


async def test_a_parent_whose_workers_all_fail_at_their_start_gives_up(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / ("p.sock" if not number else f"p.sock.{number}")).write_text("no socket")
    child = parent(tmp_path, 2, free_ports(3))
    try:
        await child.wait_for_end(60.0)
        text = child.log.read_text()
        assert "every worker fails at its start" in text
        assert "exists and is not a socket" in text
    finally:
        child.kill()


async def test_a_hanging_worker_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from warmroute.cli.ext_proc import end_with_parent\n"
        "import signal; signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
        "end_with_parent(sys.stdin.fileno(), 0.2)\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"up\n"
        process.stdin.close()
        async with asyncio.timeout(60.0):
            assert await process.stdout.readline() == b"asked\n"
            assert await process.wait() == 1
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
