"""Pings that the other side permits, and streams that leave room for control frames."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from fleet.errors import SettingsError
from fleet.service.serving import (
    PERMITTED_PING,
    PING_SECONDS,
    GrpcServer,
    permitted_ping_seconds,
    server_options,
)
from fleet.settings import parse_settings
from fleet.settings.connections import MOST_STREAMS, PERMITTED_PING_SECONDS, ConnectionSettings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.io

_ENVOYS_CONTROL_FRAMES = 1000


def parsed(**connections: Any) -> ConnectionSettings:
    written = {
        "pools": [{"name": "p"}],
        "listeners": [{"name": "l", "address": "127.0.0.1:10000", "pool": "p"}],
        "connections": connections,
    }
    return parse_settings(json.dumps(written)).connections


@pytest.mark.parametrize(
    ("field", "connections"),
    [
        ("ping_seconds", {"ping_seconds": 0.4, "ping_timeout_seconds": 0.1}),
        ("ping_timeout_seconds", {"ping_seconds": 5, "ping_timeout_seconds": 6}),
        ("engine_ping_seconds", {"engine_ping_seconds": 30}),
        ("engine_ping_seconds", {"engine_ping_seconds": 5, "engine_permitted_ping_seconds": 10}),
        ("ext_proc_streams", {"ext_proc_streams": MOST_STREAMS + 1}),
    ],
)
def test_pings_that_peers_punish_are_refused(field: str, connections: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=rf"connections\.{field}: .*allowed: "):
        parsed(**connections)


def test_engines_are_pinged_as_often_as_they_permit() -> None:
    assert parsed().engine_ping_seconds is None, "by default never"
    assert parsed(engine_ping_seconds=300).engine_ping_seconds == 300
    assert parsed(engine_ping_seconds=10, engine_permitted_ping_seconds=10).engine_ping_seconds == 10


def test_our_own_pings_are_permitted_by_our_own_servers() -> None:
    permitted = dict(server_options())["grpc.http2.min_recv_ping_interval_without_data_ms"] / 1000
    assert permitted == PERMITTED_PING_SECONDS
    assert parsed().ping_seconds >= permitted
    assert permitted <= PING_SECONDS


def test_every_stream_may_end_at_once_and_a_ping_still_fits() -> None:
    assert 2 * MOST_STREAMS < _ENVOYS_CONTROL_FRAMES - 50
    assert ConnectionSettings().ext_proc_streams <= MOST_STREAMS
    assert "grpc.max_concurrent_streams" not in dict(server_options()), "not every proxy opens more"


@pytest.mark.parametrize(
    ("metadata", "seconds"),
    [
        (PERMITTED_PING, PERMITTED_PING_SECONDS),
        ((("warmroute-permitted-ping-ms", "60000"),), 60.0),
        ((("warmroute-permitted-ping-ms", "often"), ("x", "1")), None),
        ((("warmroute-permitted-ping-ms", b"1"),), None),
        ((), None),
    ],
)
def test_permitted_ping_is_read_or_none(metadata: Any, seconds: float | None) -> None:
    assert permitted_ping_seconds(metadata) == seconds


async def test_peer_without_ping_answers_is_disconnected(tmp_path: Path) -> None:
    """Half-dead: its connection stands, and nobody is there."""
    connections = ConnectionSettings(ping_seconds=1, ping_timeout_seconds=0.5)
    server = GrpcServer("quiet", f"unix:{tmp_path}/a.sock", connections)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "a.sock")
    # RFC 9113, sections 3.4 and 6.5: preface and empty SETTINGS, and no word after that.
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
    try:
        async with asyncio.timeout(60):
            while await reader.read(4096):
                pass
    finally:
        writer.close()
        await server.stop(0)


def test_little_is_taken_of_streams_that_nobody_reads() -> None:
    """A window that grows with the bandwidth holds megabytes of a message before its stream has a place."""
    assert dict(server_options())["grpc.http2.bdp_probe"] == 0
