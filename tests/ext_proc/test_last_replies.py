"""A worker that stops gives a client that reads late its last replies, over both transports."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import pytest
from hpack import Decoder
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from ext_proc.server import SERVICE
from fleet.lane import frames as h2
from fleet.store import FleetStore
from tests.ext_proc.fake_envoy import DUPLEX, body_message, headers_message, with_mode
from tests.ext_proc.transports import TRANSPORTS
from tests.ext_proc.worlds import chat, pool_of, settings_with, view_of
from tests.fleet.lane_client import REQUEST, block, data, prefixed

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

LATE_SECONDS: Final = 0.4
"""More than a connection that nobody waits for has."""


class LateReader:
    """A call whose client takes no reply before it grants the stream a window."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._decoder = Decoder()
        path = (":path", f"/{SERVICE}/Process")
        headers = block(*((name, value) if name != ":path" else path for name, value in REQUEST))
        writer.write(h2.PREFACE + h2.settings({h2.INITIAL_WINDOW_SIZE: 0}))
        writer.write(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, headers))

    def send(self, *messages: pb.ProcessingRequest) -> None:
        for message in messages:
            payload = prefixed(message.SerializeToString())
            for at in range(0, len(payload), 16_384):
                self.writer.write(data(1, payload[at : at + 16_384]))

    def grant(self, size: int) -> None:
        self.writer.write(h2.window_update(0, size) + h2.window_update(1, size))

    async def outcome(self) -> tuple[int, bytes]:
        """Read to the end; return the bytes of all replies, and the status."""
        size, status = 0, b"none"
        with contextlib.suppress(asyncio.IncompleteReadError):
            while status == b"none":
                head, flags, _ = h2.HEAD.unpack(await self._reader.readexactly(9))
                payload = await self._reader.readexactly(head >> 8)
                if head & 0xFF == h2.DATA:
                    size += len(payload)
                elif head & 0xFF == h2.HEADERS:
                    status = dict(self._decoder.decode(payload, raw=True)).get(b"grpc-status", status)
                elif head & 0xFF == h2.PING and not flags & h2.ACK:
                    self.writer.write(h2.frame(h2.PING, h2.ACK, 0, payload))
        self.writer.close()
        return size, status


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_stop_waits_for_last_replies(tmp_path: Path, transport: str) -> None:
    """Envoy has handed the body over, so without its echo the request fails."""
    path, store = f"{tmp_path}/s", FleetStore()
    carried = {"address": f"unix:{path}", "transport": transport}
    settings = settings_with(ext_proc=carried, limits={"drain_seconds": 0.01})
    registry = CollectorRegistry()
    server = ExtProcServer(settings, store, registry, TracerProvider(), follow=False)
    store.publish(view_of(pool_of()))
    await server.start()
    client, body = LateReader(*await asyncio.open_unix_connection(path)), chat("a" * 50_000)
    client.send(with_mode(headers_message(), DUPLEX), body_message(body, end_of_stream=True))
    async with asyncio.timeout(60):
        while not registry.get_sample_value("warmroute_picks_total", {"reason": "cold"}):
            await asyncio.sleep(0.005)
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(LATE_SECONDS)
        client.grant(1 << 20)
        size, status = await client.outcome()
        await stopping
    assert size > len(body)
    assert status == b"0"
