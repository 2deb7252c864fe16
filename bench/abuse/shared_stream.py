"""Writers of the shared index's server: entries that are huge, have the highest id, or are very many.

`attack` takes the URL of `ext_proc.shared` and the stream's name.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from ext_proc.shared.batch import Addition, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_MEBI: Final = 1 << 20
HIGHEST: Final = "18446744073709551615-18446744073709551615"


async def _highest(client: Any, stream: str) -> int:
    """Use up all ids."""
    await client.xadd(stream, {b"x": b"y"}, id=HIGHEST)
    return 1


async def _large(client: Any, stream: str) -> int:
    """Add an entry that takes long to read."""
    await client.xadd(stream, {b"w": b"a", b"d": bytes(10 * _MEBI), b"t": b"0"}, maxlen=20)
    return 10 * _MEBI


async def _fields(client: Any, stream: str) -> int:
    """Add an entry of very many fields."""
    await client.xadd(stream, {b"%x" % number: b"" for number in range(100_000)}, maxlen=20)
    return 1_000_000


async def _batches(client: Any, stream: str) -> int:
    """Add a well-formed batch, as large as is read."""
    addition = Addition("10.0.0.1:80", range(4096))
    data = encode([addition] * 8, 256)
    await client.xadd(stream, {b"w": b"a", b"d": data, b"t": b"0"}, maxlen=2000)
    return len(data)


async def _nothing(client: Any, stream: str) -> int:
    """Add entries without anything in them."""
    pipeline = client.pipeline(transaction=False)
    for _ in range(1000):
        pipeline.xadd(stream, {b"x": b""})
    await pipeline.execute()
    return 1000


KINDS: Final[dict[str, Callable[[Any, str], Awaitable[int]]]] = {
    "highest": _highest,
    "large": _large,
    "fields": _fields,
    "batches": _batches,
    "nothing": _nothing,
}


async def attack(
    address: str, stream: str, kind: str, *, most_bytes: int = 256 * _MEBI, seconds: float = 10.0
) -> int:
    """Add entries of one of `KINDS`, until `most_bytes` are sent or the time is over."""
    import redis.asyncio as redis  # noqa: PLC0415 - an extra

    client: Any = redis.Redis.from_url(address, protocol=2)
    sent = 0
    try:
        # What an attack before has left, as the highest id, would refuse all that follows.
        await client.delete(stream)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                until = asyncio.get_running_loop().time() + seconds
                # The client may take the end of the time for a fault of its own.
                while sent < most_bytes and asyncio.get_running_loop().time() < until:
                    # An id that is used up, or a server that has had enough, is no end.
                    with contextlib.suppress(redis.RedisError):
                        sent += await KINDS[kind](client, stream)
                    await asyncio.sleep(0.001)
    finally:
        await client.aclose()
    return sent
