"""A hostile client of the lane: floods of frames on several connections, as fast as the server takes them."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final

from bench.abuse.ext_proc_messages import METHOD
from bench.abuse.sending import send
from fleet.settings.address import split_host_port
from testing.lane_client import ACK, PREFACE, SETTINGS, frame, settings
from testing.lane_floods import floods

if TYPE_CHECKING:
    from bench.abuse.sending import Sent

KINDS: Final = tuple(floods())
_CONNECTIONS: Final = 8
_BATCH: Final = 20
_READ_BYTES: Final = 65_536


async def attack(address: str, kind: str, *, most_bytes: int = 256 << 20, seconds: float = 10.0) -> int:
    """Send one of `KINDS`; a connection that the server ends is followed by another one."""

    async def connect(sent: Sent) -> None:
        flood = floods(METHOD)[kind]
        reader, writer = await asyncio.open_connection(*split_host_port(address))
        reading = asyncio.create_task(_read(reader))
        try:
            writer.write(PREFACE + settings(*flood.first) + frame(SETTINGS, ACK) + flood.opening)
            await writer.drain()
            await asyncio.sleep(0)
            while not sent.full and not reading.done():
                batch = b"".join(itertools.islice(flood.frames, _BATCH))
                writer.write(batch)
                sent.add(batch)
                await writer.drain()
                await asyncio.sleep(0)
        finally:
            reading.cancel()
            writer.transport.abort()

    return await send(connect, connections=_CONNECTIONS, most_bytes=most_bytes, seconds=seconds)


async def _read(reader: asyncio.StreamReader) -> None:
    while await reader.read(_READ_BYTES):
        pass
