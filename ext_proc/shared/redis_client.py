"""Connections to a Redis or Valkey server whose replies are bounded before they are read.

Any client with write access to the server decides how long its replies are: one value may have half a
gigabyte. The client library's parser reads a reply whole, and holds the loop as long as bytes are there.
"""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction
from typing import Any, Final
from urllib.parse import urlsplit

from fleet.errors import PeerError, SettingsError

_PART_BYTES: Final = 256
"""The cost of each part of a reply, in addition to its bytes."""
_PARTS_PER_PASS: Final = 128
"""About a millisecond of work."""
_READ_METHODS: Final = ("read_response", "_read", "_readline")
"""All methods by which the client library's parser reads from the connection."""


class ReplyTooLargeError(PeerError):
    """A reply has more bytes than allowed, or a negative length; its connection has ended."""


def address_of(url: str) -> str:
    """Return a server's address without user, password and options, for the log."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"unix:{parts.path}"
    return f"{parts.hostname}:{parts.port or 6379}"


def client_library(setting: str, *, timeout_seconds: float, reply_bytes: int) -> tuple[Any, dict[str, Any]]:
    """Return `redis.asyncio` and the options of its connections; `setting` is the one that needs it.

    Raises:
        SettingsError: the extra `redis` is not installed, or nothing would bound replies.
    """
    try:
        import redis.asyncio as redis  # noqa: PLC0415 - only where it is configured
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError([f"{setting} needs the extra `redis`: pip install 'warmroute[redis]'"]) from error
    return redis, {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        # The callers repeat failed work themselves.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "parser_class": bounded_parser(reply_bytes),
    }


def bounded_parser(most_bytes: int) -> type[Any]:
    """Return a parser of version 2 of the protocol for a connection: `parser_class` of `redis.asyncio`.

    Raises:
        SettingsError: the client library has another parser, whose replies nothing would bound.
    """
    base = _parser()

    class Bounded(base):  # type: ignore[misc, valid-type] # The library has no types.
        _remaining = 0
        _parts = 0

        async def read_response(self, *args: Any, **kwargs: Any) -> Any:
            self._remaining = most_bytes
            return await super().read_response(*args, **kwargs)

        async def _read(self, length: int) -> bytes:
            if length < 0:
                raise ReplyTooLargeError(f"a value of {length} bytes")
            self._spend(length)
            return bytes(await super()._read(length))

        async def _readline(self) -> bytes:
            self._spend(_PART_BYTES)
            self._parts += 1
            if self._parts % _PARTS_PER_PASS == 0:
                await asyncio.sleep(0)
            line = bytes(await super()._readline())
            self._spend(len(line))
            return line

        def _spend(self, count: int) -> None:
            self._remaining -= count
            if self._remaining < 0:
                raise ReplyTooLargeError(f"a reply of more than {most_bytes} bytes")

    return Bounded


def _parser() -> type[Any]:
    try:
        from redis._parsers import _AsyncRESP2Parser as Parser  # noqa: PLC0415 - only where it is configured
    except ImportError:
        missing: tuple[str, ...] = ("_AsyncRESP2Parser",)
    else:
        missing = tuple(
            name for name in _READ_METHODS if not iscoroutinefunction(getattr(Parser, name, None))
        )
        if not missing:
            return Parser
    cause = f"its replies cannot be bounded (it has no {', '.join(missing)})"
    step = "install the tested one: pip install 'warmroute[redis]'"
    raise SettingsError([f"the installed package `redis` cannot be used, because {cause}; {step}"])
