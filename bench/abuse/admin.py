"""Connections to an HTTP server of ours that say nothing, or never come to an end.

None of them knows a token. The doors are `admin.address`, `admin.ext_proc_address` and the GPU agent's page.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bench.abuse.sending import send
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.abuse.sending import Sent

_HEAD: Final = b"GET /metrics HTTP/1.1\r\nhost: x\r\n"
_PAGE: Final = b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
_FIELDS: Final = b"".join(b"x-%d: " % number + b"y" * 4096 + b"\r\n" for number in range(40))
_POST: Final = (
    b"POST /api/v1/update_weights HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: 1000000\r\n\r\n{"
)
KINDS: Final[dict[str, tuple[bytes, Callable[[int], bytes]]]] = {
    "silent": (b"", lambda _: b""),
    "half_head": (_HEAD, lambda _: b""),
    "drip": (_HEAD, lambda number: b"x-%d: y\r\n" % (number % 50) if number < 100 else b""),
    "endless_head": (_HEAD, lambda number: b"x-%d: " % number + b"y" * 4096 + b"\r\n"),
    "half_body": (_POST, lambda _: b""),
    "unread": (_HEAD + b"\r\n", lambda _: _HEAD + b"\r\n"),
    "pages": (_PAGE, lambda _: _PAGE),
    "behind": (b"", lambda _: _PAGE + _HEAD + _FIELDS),
}
"""What a connection begins with, and what follows bit by bit."""


async def attack(
    address: str,
    kind: str,
    *,
    connections: int = 1150,
    most_bytes: int = 64 << 20,
    seconds: float = 10.0,
    pause_seconds: float = 0.05,
) -> int:
    """Keep connections of one of `KINDS` open, as many as the server accepts."""
    host, port = split_host_port(address)
    first, follow = KINDS[kind]

    async def connect(sent: Sent) -> None:
        number = 0
        _, writer = await asyncio.open_connection(host, port, limit=1024)
        try:
            writer.write(first)
            sent.add(first)
            while not sent.full:
                await asyncio.sleep(pause_seconds)
                if writer.transport.is_closing():
                    return
                writer.write(more := follow(number))
                sent.add(more)
                number += 1
                async with asyncio.timeout(seconds):
                    await writer.drain()
        finally:
            writer.transport.abort()

    return await send(connect, connections=connections, most_bytes=most_bytes, seconds=seconds, again=False)
