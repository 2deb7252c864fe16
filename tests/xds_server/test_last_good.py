"""The last good state: what it brings back, what is refused, and how it is written."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import stat
import threading
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fleet.endpoint import Membership, Pool
from fleet.settings import EndpointSettings, Settings, parse_settings
from fleet.settings.membership import endpoint_of
from xds_server.envoy.build import build_snapshot
from xds_server.state.last_good import (
    LastGood,
    RefusedError,
    decode,
    encode,
    read,
    state_path,
    write,
)
from xds_server.state.saver import Saver

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "[2001:db8::3]:80"


def settings(*static: str, file: str = "/x", more: str = "", xds: str = "{}") -> Settings:
    listed = ", ".join(f"{{address: '{address}'}}" for address in static)
    return parse_settings(
        f"pools: [{{name: p, models: [m], endpoints: [{listed}], discovery: [{{file: {{path: {file}}}}}]}},"
        f"{{name: empty}}]\nlisteners: [{{name: l, address: '127.0.0.1:1', pool: p}}]\nxds: {xds}\n{more}"
    )


def state(current: Settings, **weights: int) -> LastGood:
    pool = current.pools[0]
    place = {"region": "r", "zone": "z", "sub_zone": ""}
    endpoints = tuple(
        endpoint_of(pool, EndpointSettings.model_validate({"address": address, "locality": place}))
        for address in (A, B, C)
    )
    return LastGood(
        Membership((Pool("p", endpoints), Pool("empty"))),
        {A: 17, B: 2000, C: 983} | weights,
        frozenset([B]),
        frozenset([A]),
        1_800_000_000.0,
    )


def refusal(content: bytes, current: Settings) -> str:
    with pytest.raises(RefusedError) as caught:
        decode(content, current)
    return caught.value.reason


def test_it_rebuilds_the_same_snapshot() -> None:
    current = settings(A)
    saved = state(current)
    back = decode(encode(saved, current), current)
    assert back == saved
    assert back.saved_at == saved.saved_at
    built = [build_snapshot(current, s.membership, s.weights, s.unhealthy) for s in (saved, back)]
    assert built[0].versions == built[1].versions


def test_gpus_and_fault_domains_come_back() -> None:
    current = settings()
    listed = {
        "address": A,
        "node": "gpu-7",
        "gpus": ["0", "GPU-1/3"],
        "gpu_metrics_url": "http://gpu-7:9400/metrics",
        "fault_domains": ["rack-2"],
    }
    entries = (
        EndpointSettings.model_validate_json(msgspec.json.encode(listed)),
        EndpointSettings(address=B),
    )
    endpoints = tuple(endpoint_of(current.pools[0], entry) for entry in entries)
    saved = LastGood(Membership((Pool("p", endpoints), Pool("empty"))), {}, frozenset(), frozenset())
    back = decode(encode(saved, current), current).membership.endpoints
    assert back == endpoints
    assert back[0].fault_domains == ("gpu-7", "rack-2")
    assert (back[1].node, back[1].fault_domains) == ("10.0.0.2", ("10.0.0.2",))


def test_older_format_is_read_and_written() -> None:
    current = settings(A)
    content = encode(state(current), current)
    for name in (b'"node"', b'"gpus"', b'"gpu_metrics_url"', b'"fault_domains"'):
        assert name not in content
    assert decode(content, current).membership.endpoints[1].node == "10.0.0.2"


def test_static_endpoints_are_not_restored() -> None:
    current = settings(A)
    back = decode(encode(state(current), current), settings())
    assert [e.address for e in back.discovered.endpoints] == [B, C]


def test_pool_without_sources_gets_no_file_endpoint() -> None:
    """Whoever can write the file would send the pool's traffic anywhere, checksum and all."""
    current = settings(A)
    stranger = endpoint_of(current.pools[1], EndpointSettings(address="10.6.6.6:80"))
    saved = state(current)
    forged = replace(
        saved,
        membership=Membership((saved.membership.pools[0], Pool("empty", (stranger,)))),
        weights={**saved.weights, stranger.address: 10_000},
        unhealthy=saved.unhealthy | {stranger.address},
    )
    assert decode(encode(forged, current), current) == saved


def test_pool_without_sources_keeps_its_weights() -> None:
    listed = f"[{{name: p, endpoints: [{{address: '{A}'}}, {{address: '{B}'}}]}}]"
    current = parse_settings(
        f"pools: {listed}\nlisteners: [{{name: l, address: '127.0.0.1:1', pool: p}}]", environ={}
    )
    mine = tuple(endpoint_of(current.pools[0], entry) for entry in current.pools[0].endpoints)
    saved = LastGood(Membership((Pool("p", mine),)), {A: 1, B: 2}, frozenset([B]), frozenset())
    back = decode(encode(saved, current), current)
    assert back.weights == {A: 1, B: 2}
    assert back.unhealthy == {B}
    assert [e for pool in back.discovered.pools for e in pool.endpoints] == []


def test_only_other_sources_refuse_the_state() -> None:
    current = settings(A)
    content = encode(state(current), current)
    assert decode(content, settings(A, more="signals: {stale_after_seconds: 60}"))
    assert refusal(content, settings(A, file="/y")) == "settings"


def test_other_version_is_refused_unread() -> None:
    current = settings(A)
    header, _, _ = encode(state(current), current).partition(b"\n")
    assert refusal(header.replace(b" 1 ", b" 2 ") + b"\nwhatever", current) == "version"


def test_no_damage_goes_unnoticed() -> None:
    current = settings(A)
    content = encode(state(current), current)
    rng = random.Random(7)
    for _ in range(300):
        at = rng.randrange(len(content))
        damaged = bytearray(content)
        damaged[at] ^= 1 << rng.randrange(8)
        assert refusal(bytes(damaged), current) in {"damaged", "version"}
    for length in (0, 1, 40, len(content) // 2, len(content) - 1):
        assert refusal(content[:length], current) == "damaged"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"weight":17', b'"weight":0'),
        (b'"weight":17', b'"weight":10001'),
        (b'"10.0.0.1:80"', b'"example.org:80"'),
        (b'"name":"p"', b'"name":"q"'),
        (b'"engine":"auto"', b'"engine":"x"'),
        (b'"pools":[', b'"pools":7,"x":['),
    ],
)
def test_invalid_content_with_right_checksum_is_refused(old: bytes, new: bytes) -> None:
    current = settings(A)
    header, _, body = encode(state(current), current).partition(b"\n")
    assert old in body
    body = body.replace(old, new)
    forged = b" ".join([*header.split(b" ")[:2], sha256(body).hexdigest().encode()]) + b"\n" + body
    assert refusal(forged, current) == "damaged"


def test_it_lies_beside_the_socket_where_there_is_one() -> None:
    assert state_path(settings()) == Path("/run/warmroute/xds.sock.last-good")
    assert state_path(settings(xds="{address: '127.0.0.1:9'}")) is None
    assert state_path(settings(xds="{state_path: ''}")) is None
    assert state_path(settings(xds="{address: '127.0.0.1:9', state_path: /var/lib/w}")) == Path("/var/lib/w")


def test_failed_write_keeps_the_old_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current, path = settings(A), tmp_path / "new" / "state"
    write(path, state(current), current)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, replace(state(current), unhealthy=frozenset()), current)
    assert read(path, current) == state(current)


class Disk:
    """A saver on a folder."""

    def __init__(self, path: Path, save_seconds: float = 0.0) -> None:
        self.registry = CollectorRegistry()
        self.saver = Saver(self.registry, lambda: 1.0, save_seconds)
        self.settings = settings(A, xds=f"{{state_path: {path}}}")
        self.path = path

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"warmroute_last_good_{name}_total", labels)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)


async def test_newest_state_is_written_also_at_stop(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "state", save_seconds=3600)
    assert await disk.saver.load(disk.settings) is None
    disk.saver.start()
    disk.saver.offer(state(disk.settings), disk.settings)
    await disk.until(disk.path.exists)
    first = disk.path.stat().st_ino
    for weight in (1, 2, 3):
        disk.saver.offer(state(disk.settings, **{A: weight}), disk.settings)
    await asyncio.sleep(0.05)
    assert disk.path.stat().st_ino == first, "not before the time is over"
    await disk.saver.close()
    back = await disk.saver.load(disk.settings)
    assert back is not None
    assert back.weights[A] == 3


async def test_unchanged_state_is_not_written_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "state")
    write(disk.path, state(disk.settings), disk.settings)
    before = disk.path.stat().st_ino
    assert await disk.saver.load(disk.settings) == state(disk.settings)
    disk.saver.start()
    disk.saver.offer(state(disk.settings), disk.settings)
    await disk.saver.close()
    assert disk.path.stat().st_ino == before


async def test_refused_file_is_logged_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(tmp_path / "state")
    disk.path.write_bytes(b"something else")
    assert await disk.saver.load(disk.settings) is None
    assert disk.metric("refused", reason="damaged") == 1
    assert len(caplog.records) == 1
    folder = Disk(tmp_path)
    assert await folder.saver.load(folder.settings) is None
    assert folder.metric("refused", reason="unreadable") == 1


async def test_start_does_not_wait_for_a_hanging_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path / "state")
    os.mkfifo(disk.path)
    async with asyncio.timeout(60):
        assert await disk.saver.load(disk.settings) is None
    assert disk.metric("refused", reason="damaged") == 1
    free = threading.Event()
    monkeypatch.setattr("xds_server.state.saver.read", lambda *_: free.wait(600))
    saver = Saver(CollectorRegistry(), load_seconds=0.05)
    try:
        async with asyncio.timeout(60):
            assert await saver.load(disk.settings) is None
    finally:
        free.set()


async def test_failing_disk_is_counted_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    disk = Disk(blocked / "state")
    disk.saver.start()
    disk.saver.offer(state(disk.settings), disk.settings)
    await disk.until(lambda: (disk.metric("write_errors") or 0) >= 3)
    assert len(caplog.records) == 1
    blocked.unlink()
    await disk.until(disk.path.exists)
    await disk.saver.close()
