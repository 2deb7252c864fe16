"""Replies of a Redis or Valkey server, bounded before they are read.

Whoever may write to the server chooses how long they are: one value may have half a gigabyte. The client
library's parser reads a reply whole, and gives the loop to nobody while bytes are there.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fleet.errors import PeerError

_PART_BYTES: Final = 256
"""What each part of a reply costs beside its bytes."""
_PARTS_AT_ONCE: Final = 128
"""About a millisecond of work."""


class ReplyTooLargeError(PeerError):
    """A reply has more bytes than are taken; its connection has ended."""


def bounded_parser(most_bytes: int) -> type[Any]:
    """Return a parser of version 2 of the protocol for a connection: `parser_class` of `redis.asyncio`.

    Raises:
        ImportError: the extra `redis` is not installed.
    """
    from redis._parsers import _AsyncRESP2Parser  # noqa: PLC0415 - only where it is configured

    class Bounded(_AsyncRESP2Parser):
        _left = 0
        _parts = 0

        async def read_response(self, *given: Any, **named: Any) -> Any:
            self._left = most_bytes
            return await super().read_response(*given, **named)

        async def _read(self, length: int) -> bytes:
            self._spend(length)
            return await super()._read(length)

        async def _readline(self) -> bytes:
            self._spend(_PART_BYTES)
            self._parts += 1
            if self._parts % _PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            return await super()._readline()

        def _spend(self, count: int) -> None:
            self._left -= count
            if self._left < 0:
                raise ReplyTooLargeError(f"a reply of more than {most_bytes} bytes")

    return Bounded
