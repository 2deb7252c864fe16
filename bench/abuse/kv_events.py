"""A hostile engine on a KV-event port: messages without an end, floods of large or tiny ones, silence.

`attack` listens on the address that `pools.kv_events` names.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY: Final = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB"
_MEBI: Final = 1 << 20
_MORE, _LONG = 1, 2


def frame(payload: bytes, *, more: bool = False) -> bytes:
    """Return a frame of a message."""
    return bytes((_LONG | more,)) + len(payload).to_bytes(8, "big") + payload


def message(number: int, payload: bytes) -> bytes:
    """Return a published message, as engines write it."""
    return frame(b"", more=True) + frame(number.to_bytes(8, "big"), more=True) + frame(payload)


def _endless() -> Iterator[bytes]:
    """One message of frames that never end."""
    part = frame(bytes(_MEBI), more=True)
    while True:
        yield part


def _small_frames() -> Iterator[bytes]:
    """The same of frames without a byte."""
    part = b"\x01\x00" * 4096
    while True:
        yield part


def _large() -> Iterator[bytes]:
    """Well-formed messages, nearly as large as is taken and slow to apply."""
    payload = msgspec.msgpack.encode([1.0, [{"type": "AllBlocksCleared"}] * 45_000, 0])
    number = 0
    while True:
        yield message(number, payload)
        number += 1


def _junk() -> Iterator[bytes]:
    """Messages of one empty frame."""
    part = b"\x00\x00" * 4096
    while True:
        yield part


def _pings() -> Iterator[bytes]:
    """Heartbeats whose answers are never read."""
    part = b"\x04\x17\x04PING\0\0" + b"x" * 16
    while True:
        yield part * 400


def _announced() -> Iterator[bytes]:
    """A frame that is announced to be huge."""
    yield bytes((_LONG,)) + (1 << 62).to_bytes(8, "big")
    while True:
        yield bytes(_MEBI)


KINDS: Final = {
    "endless": _endless,
    "small_frames": _small_frames,
    "large": _large,
    "junk": _junk,
    "pings": _pings,
    "announced": _announced,
}


async def attack(address: str, kind: str, *, most_bytes: int = 256 * _MEBI, seconds: float = 10.0) -> int:
    """Serve one of `KINDS` to each client, until `most_bytes` are sent or the time is over."""
    sent = 0
    over, serving = asyncio.Event(), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        try:
            writer.write(_GREETING + _READY)
            # Greeting, handshake and subscription.
            await reader.read(1)
            await asyncio.sleep(0.05)
            if kind != "pings":
                await reader.read(65_536)
            for part in KINDS[kind]():
                writer.write(part)
                sent += len(part)
                await writer.drain()
                if sent >= most_bytes:
                    over.set()
                    break
        except OSError:
            pass  # The client has hung up; it may connect again.
        finally:
            writer.transport.abort()

    host, port = split_host_port(address)
    server = await asyncio.start_server(serve, host, port)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()
    finally:
        server.close()
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)
    return sent
