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
from ext_proc.shared.metrics import SharedMetrics
from ext_proc.shared.share import Share
from ext_proc.shared.stream import Stream, place_of
from fleet.errors import SettingsError
from fleet.settings.shared import SharedSettings
from testing.stream_server import running_server, start_server, url_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from warmroute.demo.processes import Child

BLOCKS = list(range(1000, 1020))


class Worker:
    """A share, and what it has taken over."""

    def __init__(self, name: str, settings: SharedSettings, block_bytes: int = 256) -> None:
        self.taken: list[tuple[str, list[int]]] = []
        self.registry = CollectorRegistry()
        self.share = Share(
            settings,
            name,
            lambda: block_bytes,
            self._take,
            SharedMetrics.on(self.registry),
            prompt_blocks=lambda: 2048,
        )
        # Otherwise half a timeout, for which the end of a patient worker would wait.
        self.share._stream._block_milliseconds = 50

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
        worker.share.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        await worker.share.stop()


async def test_one_worker_hears_what_another_sent_where_and_nothing_of_its_own(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    first, second = run(Worker("a", shared(tmp_path))), run(Worker("b", shared(tmp_path)))
    await eventually(lambda: second.count("warmroute_shared_connected") == 1)
    await eventually(lambda: first.count("warmroute_shared_connected") == 1)
    first.share.publish("10.0.0.1:8000", BLOCKS)
    await eventually(lambda: second.taken == [("10.0.0.1:8000", BLOCKS)])
    await eventually(lambda: first.count("warmroute_shared_lag_seconds") > 0)
    assert first.taken == []
    assert first.count("warmroute_shared_blocks_total", direction="sent") == len(BLOCKS)
    assert second.count("warmroute_shared_blocks_total", direction="taken") == len(BLOCKS)


async def test_a_worker_that_starts_reads_the_tail_in_the_order_of_use(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    first = run(Worker("a", shared(tmp_path)))
    for number in range(5):
        first.share.publish(f"e{number}:1", [number, number + 100])
        await eventually(
            lambda n=number: first.count("warmroute_shared_blocks_total", direction="sent") == 2 * n + 2
        )  # type: ignore[misc]
    late = Worker("b", shared(tmp_path))
    await late.share.warm_up()
    assert [address for address, _ in late.taken] == [f"e{number}:1" for number in range(5)]
    run(late)
    first.share.publish("new:1", BLOCKS)
    await eventually(lambda: ("new:1", BLOCKS) in late.taken)
    assert len(late.taken) == 6


async def test_of_a_long_tail_the_newest_count(server: Child, tmp_path: Path) -> None:
    stream = Stream(shared(tmp_path))
    for number in range(600):
        await stream.add(b"a", encode([Addition(f"e{number}:1", [2, 3, 4, 5])], 256), 0.0)
    await stream.close()
    late = Worker("b", shared(tmp_path, tail_blocks=40))
    await late.share.warm_up()
    assert [address for address, _ in late.taken] == [f"e{number}:1" for number in range(590, 600)]
    assert late.count("warmroute_shared_lost_blocks_total", reason="late") > 0
    await late.share.stop()


async def test_the_stream_is_capped(server: Child, tmp_path: Path) -> None:
    stream = Stream(shared(tmp_path, max_length=100))
    for _ in range(600):
        await stream.add(b"a", b"", 0.0)
    assert len(await stream.newest(1000)) < 300
    await stream.close()


async def test_over_the_rate_the_oldest_are_skipped_and_counted(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    reader = Worker("b", shared(tmp_path, blocks_per_second=100))
    stream = Stream(shared(tmp_path))
    await stream.add(b"a", encode([Addition("old:1", list(range(60)))], 256), 0.0)
    await reader.share.warm_up()
    # What comes in while it does not read is a backlog.
    for number in range(10):
        await stream.add(b"a", encode([Addition(f"e{number}:1", list(range(60)))], 256), 0.0)
    await stream.close()
    run(reader)
    await eventually(lambda: reader.count("warmroute_shared_lost_blocks_total", reason="late") >= 400)
    addresses = [address for address, _ in reader.taken]
    assert addresses[:2] == ["old:1", "e8:1"]


async def test_a_killed_server_costs_nothing_but_warmth_and_its_return_is_noticed(
    tmp_path: Path, run: Callable[[Worker], Worker], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = start_server(tmp_path)
    try:
        first, second = run(Worker("a", shared(tmp_path))), run(Worker("b", shared(tmp_path)))
        await eventually(lambda: second.count("warmroute_shared_connected") == 1)
        server.kill()
        await eventually(lambda: second.count("warmroute_shared_connected") == 0)
        first.share.publish("10.0.0.1:8000", BLOCKS)
        await eventually(lambda: first.errors >= 2)
        server = start_server(tmp_path)
        await eventually(lambda: second.taken == [("10.0.0.1:8000", BLOCKS)])
    finally:
        server.kill()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    # One for each worker and outage, whatever the number of tries.
    assert 2 <= len(warnings) <= 6


async def test_a_frozen_server_holds_nobody_up(server: Child, tmp_path: Path) -> None:
    worker = Worker("a", shared(tmp_path, timeout_seconds=0.2))
    server.signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            await worker.share.warm_up()
            worker.share.start()
            worker.share.publish("10.0.0.1:8000", BLOCKS)
            await eventually(lambda: worker.errors >= 1)
            await worker.share.stop()
    finally:
        server.signal(signal.SIGCONT)


async def test_what_is_pending_is_bounded_and_what_falls_out_is_counted(tmp_path: Path) -> None:
    worker = Worker("a", shared(tmp_path, pending_blocks=64))
    worker.share.start()
    for _ in range(10):
        worker.share.publish("10.0.0.1:8000", BLOCKS)
    await eventually(lambda: worker.count("warmroute_shared_lost_blocks_total", reason="pending") == 140)
    await worker.share.stop()


async def test_entries_of_others_kinds_and_block_sizes_are_counted_and_passed_over(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    reader = run(Worker("b", shared(tmp_path)))
    await eventually(lambda: reader.count("warmroute_shared_connected") == 1)
    stream = Stream(shared(tmp_path))
    for data in (b"", b"\xc1", msgspec.msgpack.encode([9, 256, [], []]), encode([Addition("a:1", [2])], 512)):
        await stream.add(b"a", data, 0.0)
    await stream.add(b"a", encode([Addition("good:1", BLOCKS)], 256), 0.0)
    await stream.close()
    await eventually(lambda: reader.taken == [("good:1", BLOCKS)])
    assert reader.count("warmroute_shared_errors_total", kind="BatchError") == 4


async def test_a_server_that_comes_back_empty_with_an_earlier_clock_is_heard(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    settings = shared(tmp_path)
    reader, writer = run(Worker("b", settings)), run(Worker("a", settings))
    await eventually(lambda: reader.count("warmroute_shared_connected") == 1)
    client = Stream(settings)._client
    # No batch: it is counted once it has been read, and where it stood is where the reader is.
    await client.xadd(settings.stream, {b"d": b"no batch"}, id=f"{2**45}-0")
    await eventually(lambda: reader.errors == 1)
    await client.delete(settings.stream)
    writer.share.publish("10.0.0.1:8000", BLOCKS)
    await eventually(lambda: reader.taken == [("10.0.0.1:8000", BLOCKS)])
    await client.aclose()


async def test_a_batch_full_of_nothing_uses_the_rate_up(server: Child, tmp_path: Path) -> None:
    """Reading it takes time, too."""
    stream = Stream(shared(tmp_path))
    for _ in range(20):
        await stream.add(b"a", encode([Addition("e:1", [])] * 50, 256), 0.0)
    await stream.close()
    late = Worker("b", shared(tmp_path, tail_blocks=100))
    await late.share.warm_up()
    assert len(late.taken) == 100
    await late.share.stop()


async def test_a_key_of_another_type_is_trouble_and_not_an_end(
    server: Child, tmp_path: Path, run: Callable[[Worker], Worker]
) -> None:
    settings = shared(tmp_path)
    client = Stream(settings)._client
    await client.set(settings.stream, "text")
    worker = run(Worker("a", settings))
    await eventually(lambda: worker.errors >= 1)
    await client.delete(settings.stream)
    await eventually(lambda: worker.count("warmroute_shared_connected") == 1)
    await client.aclose()


async def test_neither_password_nor_prompt_is_told(
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
def test_a_servers_place_is_told_without_its_secrets(url: str, place: str) -> None:
    assert place_of(url) == place


def test_without_the_extra_the_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(SettingsError, match="extra `redis`"):
        Stream(SharedSettings(url=SecretStr("redis://store:6379")))
