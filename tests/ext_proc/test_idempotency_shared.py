"""Workers that share keys in flight through a real Valkey server; without it requests go through."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from bench.abuse import idempotency as hostile
from ext_proc.idempotency.shared import SharedClaims
from fleet.errors import SettingsError
from fleet.settings import IdempotencySettings
from testing.stream_server import running_server, url_of
from warmroute.demo.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from warmroute.demo.processes import Child


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Child]:
    async with running_server(tmp_path) as child:
        yield child


class Worker:
    """One worker's flights, and how often the store did not answer.

    It is more patient than settings allow: a stall of the host is no fault of the store.
    """

    def __init__(self, directory: Path, name: str, *, patience_seconds: float = 60.0, **fields: Any) -> None:
        given = {"url": SecretStr(url_of(directory)), **fields}
        settings = IdempotencySettings(**given).model_copy(update={"timeout_seconds": patience_seconds})
        self.faults = 0
        self.now = 0.0
        self.flights = SharedClaims(settings, name, self._fault, clock=lambda: self.now)

    def _fault(self) -> None:
        self.faults += 1


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def make(name: str, **fields: Any) -> Worker:
        made.append(Worker(tmp_path, name, **fields))
        return made[-1]

    yield make
    for held in made:
        await held.flights.close()


async def freed(worker: Worker, key: str, token: int) -> None:
    async with asyncio.timeout(60):
        while not await worker.flights.claim(key, token):
            await asyncio.sleep(0.01)


async def test_one_request_of_all_workers_has_a_key(server: Child, worker: Callable[..., Worker]) -> None:
    one, other = worker("one"), worker("other")
    assert await one.flights.claim("k", 1) is True
    assert await other.flights.claim("k", 1) is False
    assert await other.flights.claim("other", 2) is True
    one.flights.release("k", 1)
    await freed(other, "k", 3)
    assert one.faults == other.faults == 0


async def test_of_many_at_once_one_wins(server: Child, worker: Callable[..., Worker]) -> None:
    workers = [worker(str(i)) for i in range(4)]
    told = await asyncio.gather(*(held.flights.claim("k", t) for t in range(1, 21) for held in workers))
    assert sum(map(bool, told)) == 1


async def test_nobody_gives_back_what_is_anothers(server: Child, worker: Callable[..., Worker]) -> None:
    """An old owner whose key has expired must not free the new one's."""
    one, other = worker("one", expiry_seconds=0.05), worker("other")
    assert await one.flights.claim("k", 1)
    one.now = 1.0
    await freed(other, "k", 7)
    one.flights.release("k", 1)
    await one.flights.close()
    assert await worker("third").flights.claim("k", 1) is False


async def test_lease_is_renewed_and_ends_with_worker(
    server: Child, worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a lease only falls, but for its renewal."""
    monkeypatch.setattr("ext_proc.idempotency.shared._LEASE_SECONDS", 60.0)
    monkeypatch.setattr("ext_proc.idempotency.shared._RENEWALS", 1200)
    one, other = worker("one"), worker("other")
    assert await one.flights.claim("k", 1)
    (key,) = await other.flights._client.keys("*")
    async with asyncio.timeout(60):
        for _ in range(3):
            before, left = 60_001, 60_000
            while left <= before:
                before, left = left, await other.flights._client.pttl(key)
                await asyncio.sleep(0.01)
            assert await other.flights.claim("k", 2) is False
    # As when it is killed: nobody gives the key back, and nobody renews it.
    one.flights._lease_ms = 200
    async with asyncio.timeout(60):
        while await other.flights._client.pttl(key) > 200:
            await asyncio.sleep(0.01)
    await one.flights.close()
    await freed(other, "k", 3)


async def test_a_request_that_never_ends_is_given_up(
    server: Child, worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ext_proc.idempotency.shared._LEASE_SECONDS", 0.3)
    one, other = worker("one"), worker("other")
    assert await one.flights.claim("k", 1)
    one.now = 601.0
    await freed(other, "k", 2)


async def test_a_server_that_is_away_lets_requests_through_at_once(
    worker: Callable[..., Worker], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log, without what the URL hides; and not every request asks again."""
    url = SecretStr(f"unix://:secret@{tmp_path}/nothing.sock")
    held = worker("one", url=url)
    with caplog.at_level(logging.WARNING):
        assert [await held.flights.claim("k", token) for token in range(1, 6)] == [None] * 5
    assert held.faults == 1
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text
    held.now = 1.0
    assert await held.flights.claim("k", 6) is None
    assert held.faults == 2
    held.flights.release("k", 6)


async def test_frozen_server_costs_at_most_the_timeout(server: Child, worker: Callable[..., Worker]) -> None:
    assert await worker("other").flights.claim("k", 1) is True
    held = worker("one", patience_seconds=0.1)
    server.signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            assert await held.flights.claim("k", 2) is None
    finally:
        server.signal(signal.SIGCONT)
    held.now = 10.0
    async with asyncio.timeout(60):
        while (told := await held.flights.claim("k", 3)) is None:
            held.now += 10.0
            await asyncio.sleep(0.01)
    assert told is False


@pytest.mark.parametrize("kind", hostile.KINDS)
async def test_hostile_server_lets_requests_through(worker: Callable[..., Worker], kind: str) -> None:
    """No answer says that a key is in flight, nor ends the worker, nor keeps it beyond its patience."""
    address = f"127.0.0.1:{free_ports(1)}"
    serving = asyncio.create_task(hostile.attack(address, kind, seconds=60.0))
    client = worker("one", url=SecretStr(f"redis://{address}"), patience_seconds=0.1)
    for number in range(5):
        await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            assert await client.flights.claim(f"{number}", number) is not False
        client.now += 10.0
    serving.cancel()
    await asyncio.wait([serving])


def test_without_the_extra_the_settings_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(SettingsError, match=r"ext_proc\.idempotency\.url needs the extra `redis`"):
        Worker(tmp_path, "one")
