"""A hostile server of idempotency keys: answers without an end, without a sense, or none.

`attack` listens at the host and port that `ext_proc.idempotency.url` names.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import repeat
from typing import TYPE_CHECKING, Final

from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PART: Final = 65_536

KINDS: Final[dict[str, Callable[[], Iterable[bytes]]]] = {
    "unanswered": lambda: (),
    "endless": lambda: repeat(b"+" + b"x" * _PART),
    "announced": lambda: [b"$4611686018427387904\r\n", *repeat(bytes(_PART), 1024)],
    "refund": lambda: [b"*3\r\n$-536870000\r\n$536870912\r\n", *repeat(bytes(_PART), 8192)],
    "wide": lambda: [b"*1000000000\r\n", *repeat(b"$-1\r\n" * 10_000, 1024)],
    "deep": lambda: repeat(b"*1\r\n" * 10_000),
    "unasked": lambda: repeat(b"+OK\r\n" * 10_000),
    "errors": lambda: [b"-ERR " + b"x" * 3000 + b"\r\n"],
    "junk": lambda: [b"\xff\x00\r\n" * 100],
}
"""What follows each command, part by part."""


async def attack(address: str, kind: str, *, most_bytes: int = 256 << 20, seconds: float = 10.0) -> int:
    """Answer with one of `KINDS`; returns how many bytes were sent and, so that silence counts, received."""
    passed = 0
    serving = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal passed
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        # The client hangs up after enough bytes.
        with contextlib.suppress(OSError):
            try:
                while (received := await reader.read(_PART)) and passed < most_bytes:
                    passed += len(received)
                    for part in KINDS[kind]():
                        writer.write(part)
                        await writer.drain()
                        passed += len(part)
            finally:
                writer.transport.abort()

    host, port = split_host_port(address)
    server = await asyncio.start_server(serve, host, port)
    try:
        await asyncio.sleep(seconds)
    finally:
        server.close()
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)
    return passed
