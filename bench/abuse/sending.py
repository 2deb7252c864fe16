"""The loop of an attack: connect, send, count, and connect again until bytes or time run out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import grpc
import h2.exceptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_PAUSE_SECONDS: Final = 0.01
_OPTIONS: Final = [(f"grpc.max_{direction}_message_length", 60 << 20) for direction in ("send", "receive")]
_REFUSALS: Final = (
    OSError,
    grpc.aio.AioRpcError,
    asyncio.InvalidStateError,
    asyncio.IncompleteReadError,
    h2.exceptions.ProtocolError,
)
"""A server that refuses or ends a connection is no fault of the attack."""


class Sent:
    """The bytes that all connections of an attack have sent."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.bytes = 0

    @property
    def full(self) -> bool:
        """Whether the attack may send no more."""
        return self.bytes >= self._most_bytes

    def add(self, message: bytes) -> None:
        """Count a message."""
        self.bytes += len(message)


async def send(
    connect: Callable[[Sent], Awaitable[object]],
    *,
    connections: int,
    most_bytes: int,
    seconds: float,
    again: bool = True,
) -> int:
    """Run `connect` on several connections at a time; return the bytes sent.

    `again`: each connection that ends is followed by another one.
    """
    sent = Sent(most_bytes)

    async def one() -> None:
        while True:
            with contextlib.suppress(*_REFUSALS):
                await connect(sent)
            if sent.full or not again:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    tasks = [asyncio.create_task(one()) for _ in range(connections)]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return sent.bytes


async def send_calls(
    address: str,
    method: str,
    speak: Callable[[Any, Sent], Awaitable[object]],
    *,
    calls: int,
    **bounds: Any,
) -> int:
    """Open several calls at a time on one channel, and run `speak` on each; return the bytes sent."""
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        stream: Any = channel.stream_stream(method)

        async def one(sent: Sent) -> None:
            call = stream()
            try:
                await speak(call, sent)
            finally:
                call.cancel()

        return await send(one, connections=calls, **bounds)


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, as protobuf writes it."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])
