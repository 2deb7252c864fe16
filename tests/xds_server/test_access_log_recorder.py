"""Recorded requests are what `warmroute replay` reads, without text, within their bytes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from xxhash import xxh3_64_intdigest

from ext_proc.prompt.blocks import block_hashes, identity_of, runs_of
from fleet.names import METADATA_BLOCKS
from fleet.recorded_prompt import encode, run_blocks
from fleet.settings import parse_settings
from warmroute.replay.trace import read_trace
from xds_server.access_log.finished import Finished
from xds_server.access_log.recorder import MOST_PENDING_BYTES, RequestRecorder

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.settings import Settings

IDENTITY = identity_of("m")
REQUEST = Finished(
    address="10.0.0.1:80",
    picked="10.0.0.1:80",
    cluster="chat",
    request_id="r-1",
    started_at=1_764_500_000.5,
    first_byte_seconds=0.25,
    duration_seconds=2.25,
    status=200,
    flags=(),
    attempts=1,
    metadata={},
    request_bytes=20_000,
    response_bytes=2500,
)


def settings_for(directory: Path | str, **recording: Any) -> Settings:
    pools = [
        {"name": name, "endpoints": [{"address": f"10.0.0.{number}:80"}]}
        for number, name in enumerate(("chat", "chat-2"), 1)
    ]
    listeners = [{"name": "l", "address": "127.0.0.1:1", "pool": "chat"}]
    written = {
        "pools": pools,
        "listeners": listeners,
        "recording": {"directory": str(directory), **recording},
    }
    return parse_settings(json.dumps(written))


def prompted(text: bytes, **fields: Any) -> Finished:
    blocks = block_hashes(text, identity=IDENTITY, block_bytes=256, max_blocks=2048)
    metadata = {METADATA_BLOCKS: encode(len(text), runs_of(blocks, run_blocks(256)))}
    return replace(REQUEST, metadata=metadata, **fields)


class Recording:
    """A recorder and its folder."""

    def __init__(self, directory: Path, **recording: Any) -> None:
        self.directory, self.registry = directory, CollectorRegistry()
        self.now = 1_764_500_000.0
        settings = settings_for(directory, **recording)
        self.recorder = RequestRecorder(settings, self.registry, lambda: self.now)

    async def write(self, *requests: Finished) -> list[Path]:
        for request in requests:
            self.recorder.note(request)
        await self.recorder.close()
        return sorted(self.directory.glob("*"))

    def metric(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"warmroute_recorded_{name}_total")


async def test_file_is_a_trace(tmp_path: Path) -> None:
    first, second = b"a" * 6000, b"a" * 4096 + b"b" * 4096
    (path,) = await Recording(tmp_path).write(
        prompted(second, started_at=REQUEST.started_at + 10.0, session=5),
        prompted(first, session=5),
        replace(REQUEST, started_at=REQUEST.started_at + 1.0, first_byte_seconds=2.24),
    )
    trace = read_trace(path)
    one, unread, two = trace.requests
    assert trace.block_tokens == 512
    assert (one.prompt_tokens, two.prompt_tokens, unread.prompt_tokens) == (1500, 2048, 5000)
    assert [len(request.blocks) for request in trace.requests] == [2, 0, 4]
    assert one.blocks == two.blocks[:2]
    assert one.at == 0.0
    assert two.after == 0, "a session's request waits for the answer before"
    assert two.gap == pytest.approx(10.0 - 2.25)
    assert one.output_tokens == 10, "of a stream each event is a token"
    assert unread.output_tokens == (2500 - 350) // 4, "otherwise four bytes of text"


async def test_file_confirms_no_guess_of_a_prompt(tmp_path: Path) -> None:
    secret = b"a very secret prompt " * 200
    recording = Recording(tmp_path)
    (path,) = await recording.write(prompted(secret, session=xxh3_64_intdigest(b"s-1")))
    blocks = block_hashes(secret, identity=IDENTITY, block_bytes=256, max_blocks=2048)
    content = path.read_text()
    assert "secret" not in content
    assert "10.0.0.1" not in content
    line = json.loads(content.splitlines()[1])
    assert not {block & (1 << 48) - 1 for block in blocks} & set(line["blocks"])
    assert not {block >> 16 for block in blocks} & set(line["blocks"])
    assert path.stat().st_mode & 0o777 == 0o600
    recording.now += 60.0
    recording.recorder.reconfigure(settings_for(tmp_path))
    *_, other = await recording.write(prompted(secret))
    assert json.loads(other.read_text().splitlines()[1])["blocks"] != line["blocks"], "each file has its salt"


@pytest.mark.parametrize(
    "request_",
    [
        replace(REQUEST, cluster="other"),
        replace(REQUEST, address=""),
        replace(REQUEST, request_bytes=0),
        replace(REQUEST, status=101),
    ],
)
async def test_other_requests_are_not_recorded(tmp_path: Path, request_: Finished) -> None:
    assert await Recording(tmp_path).write(request_) == []


async def test_nothing_is_recorded_without_a_folder() -> None:
    recorder = RequestRecorder(settings_for(""), CollectorRegistry())
    recorder.note(REQUEST)
    await recorder.close()


async def test_refused_requests_are_no_work(tmp_path: Path) -> None:
    (path,) = await Recording(tmp_path).write(replace(REQUEST, status=429), REQUEST)
    assert len(read_trace(path).requests) == 1


async def test_unreadable_prompt_costs_only_its_prefixes(tmp_path: Path) -> None:
    (path,) = await Recording(tmp_path).write(replace(REQUEST, metadata={METADATA_BLOCKS: "1:?"}))
    assert read_trace(path).requests[0].blocks == ()


async def test_body_beyond_the_limit_counts_whole(tmp_path: Path) -> None:
    """ext_proc reads its leading part only."""
    (path,) = await Recording(tmp_path).write(prompted(b"a" * 4096, request_bytes=4_000_000))
    assert read_trace(path).requests[0].prompt_tokens == 1_000_000


async def test_files_of_a_pool_stay_within_their_bytes(tmp_path: Path) -> None:
    recording = Recording(tmp_path, pool_bytes=65_536)
    (tmp_path / "chat-notes.txt").write_text("mine")
    for _ in range(12):
        for _ in range(150):
            recording.now += 0.01
            recording.recorder.note(prompted(b"a" * 8192))
        await recording.write(replace(REQUEST, cluster="chat-2"))
    names = sorted(path.name for path in await recording.write())
    chat = [tmp_path / name for name in names if name.startswith("chat-20")]
    assert 2 <= len(chat) <= 5
    assert sum(path.stat().st_size for path in chat) <= 65_536 + 65_536 // 4
    assert all(len(read_trace(path).requests) > 10 for path in chat), "each begins as a trace"
    assert (tmp_path / "chat-notes.txt").exists()
    assert [name for name in names if name.startswith("chat-2-")], "another pool's files are its own"


async def test_full_disk_costs_lines_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    recording = Recording(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            recording.recorder.note(REQUEST)
            await recording.recorder.close()
    assert recording.metric("lost") == 2
    assert [record.message.partition(":")[0] for record in caplog.records] == ["requests are not recorded"]


async def test_file_is_a_trace_once_the_disk_has_room(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("")
    recording = Recording(tmp_path / "folder")
    recording.recorder.note(REQUEST)
    await recording.recorder.close()
    (tmp_path / "folder").unlink()
    (path,) = await recording.write(REQUEST, REQUEST)
    assert len(read_trace(path).requests) == 2
    assert (recording.metric("lost"), recording.metric("requests")) == (1, 2)


async def test_lines_that_wait_for_the_disk_have_a_limit(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    request = prompted(b"a" * 400_000)
    for _ in range(MOST_PENDING_BYTES // 1000):
        recording.recorder.note(request)
    assert recording.metric("lost")
    (path,) = await recording.write()
    assert path.stat().st_size < MOST_PENDING_BYTES + 10_000


async def test_long_body_leaves_a_readable_file(tmp_path: Path) -> None:
    """Of images, for example."""
    (path,) = await Recording(tmp_path).write(replace(REQUEST, request_bytes=12_000_000), REQUEST)
    assert len(read_trace(path).requests) == 2


@pytest.mark.parametrize(
    "absurd",
    [{"started_at": -5.0}, {"started_at": 9e18}, {"duration_seconds": 1e9}, {"first_byte_seconds": 1e9}],
)
async def test_absurd_times_leave_a_readable_file(tmp_path: Path, absurd: dict[str, Any]) -> None:
    recording = Recording(tmp_path)
    (path,) = await recording.write(replace(REQUEST, **absurd), REQUEST)
    assert len(read_trace(path).requests) == 1
    assert recording.metric("lost") == 1


async def test_folder_that_returns_has_readable_files(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r")
    (path,) = await recording.write(REQUEST)
    path.rename(tmp_path / "moved")
    path.parent.rmdir()
    path.parent.write_text("no folder")
    assert await recording.write(REQUEST) == []
    assert recording.metric("lost") == 1
    path.parent.unlink()
    (path,) = await recording.write(REQUEST)
    assert len(read_trace(path).requests) == 1
    assert len(read_trace(tmp_path / "moved").requests) == 1


async def test_disk_that_was_full_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    (path,) = await recording.write(REQUEST)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        await recording.write(REQUEST)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert recording.metric("lost") == 1
    await recording.write(REQUEST)
    assert len(read_trace(path).requests) == 2


async def test_stop_during_a_slow_write_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xds_server.access_log.recorder.FLUSH_SECONDS", 0.0)
    begun, go_on, real_fstat = threading.Event(), threading.Event(), os.fstat

    def slow_once(descriptor: int) -> os.stat_result:
        result = real_fstat(descriptor)
        if not begun.is_set():
            begun.set()
            go_on.wait(10.0)
        return result

    monkeypatch.setattr("xds_server.access_log.recorder.os.fstat", slow_once)
    recording = Recording(tmp_path)
    recording.recorder.note(REQUEST)
    await asyncio.to_thread(begun.wait, 10.0)
    recording.recorder.note(REQUEST)
    asyncio.get_running_loop().call_later(0.2, go_on.set)
    (path,) = await recording.write(REQUEST)
    assert len(read_trace(path).requests) == 3
