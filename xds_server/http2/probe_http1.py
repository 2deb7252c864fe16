"""A probe that tests whether an engine speaks HTTP/1.1, before any request goes to it by that protocol."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from fleet.endpoint import address_of

if TYPE_CHECKING:
    from xds_server.tls.engine_tls import Dial

_BEGIN: Final = b"HTTP/1."
_MAY_BE_THE_PROTOCOL: Final = frozenset((b"400", b"403", b"421", b"426", b"501", b"505"))
"""Servers of HTTP/2 alone refuse HTTP/1.1 with these, in HTTP/1.1."""
_NO_COMMON_PROTOCOL: Final = "no application protocol"
"""OpenSSL's words for the alert with which ALPN fails. Source: RFC 7301, 3.2."""


async def speaks_http1(host: str, port: int, timeout_seconds: float, dial: Dial | None = None) -> bool | None:
    """Return whether an engine answers a request over HTTP/1.1.

    None: it was not reached, is silent or hangs up, or its answer may be a refusal of the protocol.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(
                host,
                port,
                ssl=None if dial is None else dial.http1,
                server_hostname=None if dial is None else dial.server_name,
            )
            try:
                writer.write(_request(address_of(host, port)))
                return await _answer(reader)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError) as error:
        return False if _NO_COMMON_PROTOCOL in str(error).lower() else None


async def _answer(reader: asyncio.StreamReader) -> bool | None:
    try:
        line = await reader.readexactly(len(_BEGIN) + len("1 200"))
    except asyncio.IncompleteReadError as error:
        return False if error.partial[: len(_BEGIN)] != _BEGIN[: len(error.partial)] else None
    if not line.startswith(_BEGIN):
        return False
    return None if line[-3:] in _MAY_BE_THE_PROTOCOL else True


def _request(authority: str) -> bytes:
    """GET of a path that is cheap or absent."""
    lines = (
        "GET /health HTTP/1.1",
        f"host: {authority}",
        "user-agent: warmroute",
        "connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode()
