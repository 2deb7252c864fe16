"""Replies of a Redis or Valkey server, bounded before they are read.

Whoever may write to the server chooses how long they are: one value may have half a gigabyte. The client
library's parser reads a reply whole, and gives the loop to nobody while bytes are there.
"""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction
from typing import Any, Final

from fleet.errors import PeerError, SettingsError

_PART_BYTES: Final = 256
"""What each part of a reply costs beside its bytes."""
_PARTS_AT_ONCE: Final = 128
"""About a millisecond of work."""
_COUNTED: Final = ("read_response", "_read", "_readline")
"""Of the client library's parser: all that reads from the connection."""


class ReplyTooLargeError(PeerError):
    """A reply has more bytes than are taken, or fewer than none; its connection has ended."""


def bounded_parser(most_bytes: int) -> type[Any]:
    """Return a parser of version 2 of the protocol for a connection: `parser_class` of `redis.asyncio`.

    Raises:
        SettingsError: the client library has another parser, whose replies nothing would bound.
    """
    base = _parser()

    class Bounded(base):  # type: ignore[misc, valid-type] # The library's own, which has no types.
        _left = 0
        _parts = 0

        async def read_response(self, *given: Any, **named: Any) -> Any:
            self._left = most_bytes
            return await super().read_response(*given, **named)

        async def _read(self, length: int) -> bytes:
            if length < 0:
                raise ReplyTooLargeError(f"a value of {length} bytes")
            self._spend(length)
            return bytes(await super()._read(length))

        async def _readline(self) -> bytes:
            self._spend(_PART_BYTES)
            self._parts += 1
            if self._parts % _PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            line = bytes(await super()._readline())
            self._spend(len(line))
            return line

        def _spend(self, count: int) -> None:
            self._left -= count
            if self._left < 0:
                raise ReplyTooLargeError(f"a reply of more than {most_bytes} bytes")

    return Bounded


def _parser() -> type[Any]:
    """Return the client library's parser, if it reads as the one above expects.

    Raises:
        SettingsError: it does not.
    """
    try:
        from redis._parsers import _AsyncRESP2Parser as Parser  # noqa: PLC0415 - only where it is configured
    except ImportError:
        lacking: tuple[str, ...] = ("_AsyncRESP2Parser",)
    else:
        lacking = tuple(name for name in _COUNTED if not iscoroutinefunction(getattr(Parser, name, None)))
        if not lacking:
            return Parser
    cause = f"its replies cannot be bounded (it has no {', '.join(lacking)})"
    mend = "install the one that is tested: pip install 'warmroute[redis]'"
    raise SettingsError([f"the installed package `redis` cannot be used, since {cause}; {mend}"])
