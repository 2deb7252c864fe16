"""Workers share through a real Valkey server; without it nothing is lost but warmth."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from ext_proc.shared.batch import Addition, encode
from ext_proc.shared.index import SharedIndex, SharedMetrics
from ext_proc.shared.redis_client import address_of
from ext_proc.shared.stream import RedisStream
from fleet.errors import SettingsError
from fleet.settings.shared import SharedSettings
from testing.stream_server import running_server, start_server, url_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from warmroute.demo.processes import Child

BLOCKS = list(range(1000, 1020))


class Worker:
    """A worker's shared index, and the additions of others."""

    def __init__(self, name: str, settings: SharedSettings, block_bytes: int = 256) -> None:
        self.taken: list[tuple[str, list[int]]] = []
        self.registry = CollectorRegistry()
        self.index = SharedIndex(
            settings,
            name,
            lambda: block_bytes,
            self._take,
            SharedMetrics.on(self.registry),
            prompt_blocks=lambda: 2048,
        )
        # Otherwise half a timeout, for which the end of a patient worker would wait.
        self.index._stream._block_milliseconds = 50

    def _take(self, address: str, blocks: Sequence[int]) -> None:
        self.taken.append((address, list(blocks)))

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    @property
    def errors(self) -> float:
        return sum(
            sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "warmroute_shared_errors_total"
        )


async def eventually(reached: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.01)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Child]:
    async with running_server(tmp_path) as child:
        yield child


def shared(directory: Path, **fields: Any) -> SharedSettings:
    given = {"flush_seconds": 0.01, "timeout_seconds": 60.0, "url": SecretStr(url_of(directory)), **fields}
    return SharedSettings(**given)


@pytest.fixture
async def run() -> AsyncIterator[Callable[[Worker], Worker]]:
    started: list[Worker] = []

    def start(worker: Worker) -> Worker:
        worker.index.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        await worker.index.stop()


async def test_worker_receives_only_additions_of_others(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    first, second = run(Worker("a", shared(tmp_path))), run(Worker("b", shared(tmp_path)))
    await eventually(lambda: second.count("warmroute_shared_connected") == 1)
    await eventually(lambda: first.count("warmroute_shared_connected") == 1)
    first.index.publish("10.0.0.1:8000", BLOCKS)
    await eventually(lambda: second.taken == [("10.0.0.1:8000", BLOCKS)])
    await eventually(lambda: first.count("warmroute_shared_lag_seconds") > 0)
    assert first.taken == []
    assert first.count("warmroute_shared_blocks_total", direction="sent") == len(BLOCKS)
    assert second.count("warmroute_shared_blocks_total", direction="taken") == len(BLOCKS)


async def test_new_worker_reads_tail_in_order_of_use(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    first = run(Worker("a", shared(tmp_path)))
    for number in range(5):
        first.index.publish(f"e{number}:1", [number, number + 100])
        await eventually(
            lambda n=number: first.count("warmroute_shared_blocks_total", direction="sent") == 2 * n + 2
        )  # type: ignore[misc]
    late = Worker("b", shared(tmp_path))
    await late.index.warm_up()
    assert [address for address, _ in late.taken] == [f"e{number}:1" for number in range(5)]
    run(late)
    first.index.publish("new:1", BLOCKS)
    await eventually(lambda: ("new:1", BLOCKS) in late.taken)
    assert len(late.taken) == 6


async def test_newest_entries_of_long_tail_count(server: Child, tmp_path: Path) -> None:
    stream = RedisStream(shared(tmp_path))
    for number in range(600):
        await stream.add(b"a", encode([Addition(f"e{number}:1", [2, 3, 4, 5])], 256), 0.0)
    await stream.close()
    late = Worker("b", shared(tmp_path, tail_blocks=40))
    await late.index.warm_up()
    assert [address for address, _ in late.taken] == [f"e{number}:1" for number in range(590, 600)]
    assert late.count("warmroute_shared_lost_blocks_total", reason="late") > 0
    await late.index.stop()


async def test_stream_has_limit(server: Child, tmp_path: Path) -> None:
    stream = RedisStream(shared(tmp_path, max_length=100))
    for _ in range(600):
        await stream.add(b"a", b"", 0.0)
    assert len(await stream.newest(1000)) < 300
    await stream.close()


async def test_oldest_entries_over_the_rate_are_counted(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    reader = Worker("b", shared(tmp_path, blocks_per_second=100))
    stream = RedisStream(shared(tmp_path))
    await stream.add(b"a", encode([Addition("old:1", list(range(60)))], 256), 0.0)
    await reader.index.warm_up()
    # What comes in while it does not read is a backlog.
    for number in range(10):
        await stream.add(b"a", encode([Addition(f"e{number}:1", list(range(60)))], 256), 0.0)
    await stream.close()
    run(reader)
    await eventually(lambda: reader.count("warmroute_shared_lost_blocks_total", reason="late") >= 400)
    addresses = [address for address, _ in reader.taken]
    assert addresses[:2] == ["old:1", "e8:1"]


async def test_killed_server_costs_only_warmth(
    tmp_path: Path, run: Callable[[Worker], Worker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = start_server(tmp_path)
    try:
        first, second = run(Worker("a", shared(tmp_path))), run(Worker("b", shared(tmp_path)))
        await eventually(lambda: second.count("warmroute_shared_connected") == 1)
        server.kill()
        await eventually(lambda: second.count("warmroute_shared_connected") == 0)
        first.index.publish("10.0.0.1:8000", BLOCKS)
        await eventually(lambda: first.errors >= 2)
        server = start_server(tmp_path)
        await eventually(lambda: second.taken == [("10.0.0.1:8000", BLOCKS)])
    finally:
        server.kill()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    # One for each worker and outage, whatever the number of tries.
    assert 2 <= len(warnings) <= 6


async def test_frozen_server_delays_nothing(server: Child, tmp_path: Path) -> None:
    worker = Worker("a", shared(tmp_path, timeout_seconds=0.2))
    server.signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            await worker.index.warm_up()
            worker.index.start()
            worker.index.publish("10.0.0.1:8000", BLOCKS)
            await eventually(lambda: worker.errors >= 1)
            await worker.index.stop()
    finally:
        server.signal(signal.SIGCONT)


async def test_pending_blocks_have_limit(tmp_path: Path) -> None:
    worker = Worker("a", shared(tmp_path, pending_blocks=64))
    worker.index.start()
    for _ in range(10):
        worker.index.publish("10.0.0.1:8000", BLOCKS)
    await eventually(lambda: worker.count("warmroute_shared_lost_blocks_total", reason="pending") == 140)
    await worker.index.stop()


async def test_foreign_entries_are_counted_and_skipped(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    reader = run(Worker("b", shared(tmp_path)))
    await eventually(lambda: reader.count("warmroute_shared_connected") == 1)
    stream = RedisStream(shared(tmp_path))
    for data in (b"", b"\xc1", msgspec.msgpack.encode([9, 256, [], []]), encode([Addition("a:1", [2])], 512)):
        await stream.add(b"a", data, 0.0)
    await stream.add(b"a", encode([Addition("good:1", BLOCKS)], 256), 0.0)
    await stream.close()
    await eventually(lambda: reader.taken == [("good:1", BLOCKS)])
    assert reader.count("warmroute_shared_errors_total", kind="BatchError") == 4


async def test_empty_server_with_earlier_clock_is_read(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    settings = shared(tmp_path)
    reader, writer = run(Worker("b", settings)), run(Worker("a", settings))
    await eventually(lambda: reader.count("warmroute_shared_connected") == 1)
    client = RedisStream(settings)._client
    # No batch: it is counted once it has been read, and where it stood is where the reader is.
    await client.xadd(settings.stream, {b"d": b"no batch"}, id=f"{2**45}-0")
    await eventually(lambda: reader.errors == 1)
    await client.delete(settings.stream)
    writer.index.publish("10.0.0.1:8000", BLOCKS)
    await eventually(lambda: reader.taken == [("10.0.0.1:8000", BLOCKS)])
    await client.aclose()


async def test_empty_additions_cost_rate(server: Child, tmp_path: Path) -> None:
    """Reading it takes time, too."""
    stream = RedisStream(shared(tmp_path))
    for _ in range(20):
        await stream.add(b"a", encode([Addition("e:1", [])] * 50, 256), 0.0)
    await stream.close()
    late = Worker("b", shared(tmp_path, tail_blocks=100))
    await late.index.warm_up()
    assert len(late.taken) == 100
    await late.index.stop()


async def test_key_of_other_type_is_an_error(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    settings = shared(tmp_path)
    client = RedisStream(settings)._client
    await client.set(settings.stream, "text")
    worker = run(Worker("a", settings))
    await eventually(lambda: worker.errors >= 1)
    await client.delete(settings.stream)
    await eventually(lambda: worker.count("warmroute_shared_connected") == 1)
    await client.aclose()


async def test_password_and_prompt_stay_secret(
    tmp_path: Path, run: Callable[[Worker], Worker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_server(tmp_path, "--requirepass", "open-sesame"):
        wrong = run(Worker("a", shared(tmp_path, url=SecretStr(f"{url_of(tmp_path)}?password=wrong-secret"))))
        await eventually(lambda: wrong.errors >= 1)
        right = run(Worker("b", shared(tmp_path, url=SecretStr(f"{url_of(tmp_path)}?password=open-sesame"))))
        await eventually(lambda: right.count("warmroute_shared_connected") == 1)
    assert "secret" not in caplog.text
    assert "sesame" not in caplog.text
    assert str(tmp_path) in caplog.text


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://user:word@store:6380/3?x=y", "store:6380"),
        ("rediss://:word@store", "store:6379"),
        ("unix:///run/valkey.sock?password=word", "unix:/run/valkey.sock"),
    ],
)
def test_server_address_without_secrets(url: str, place: str) -> None:
    assert address_of(url) == place


def test_settings_without_extra_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(SettingsError, match="extra `redis`"):
        RedisStream(SharedSettings(url=SecretStr("redis://store:6379")))
