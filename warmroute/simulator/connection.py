"""What the HTTP server needs of the connection below it: own address, plain answers, resets, set-up."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aiohttp import web

from fleet.endpoint import address_of
from warmroute.simulator.protocol import error_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.abc import AbstractStreamWriter

HEADER_ENGINE: Final = "x-engine-address"
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
KEEPALIVE_SECONDS: Final = 3600.0
"""Longer than any proxy keeps an idle connection, so that the engine never closes first."""
SHUTDOWN_SECONDS: Final = 1.0
BACKLOG_CONNECTIONS: Final = 1024


def own_address(request: web.BaseRequest) -> str:
    """`host:port` of this end of the connection: right too when the server listens on every address."""
    name: Any = None if request.transport is None else request.transport.get_extra_info("sockname")
    if not isinstance(name, tuple):
        return ""
    host, port = name[0], name[1]
    return address_of(host, port)


def json_response(body: bytes, address: str, status: int = 200) -> web.Response:
    """A JSON answer that names the engine."""
    return web.Response(
        body=body, status=status, headers={"content-type": "application/json", HEADER_ENGINE: address}
    )


def error_response(status: int, kind: str, message: str, address: str) -> web.Response:
    """An answer with OpenAI's error object."""
    return json_response(error_json(message, kind, status), address, status)


def reset(transport: asyncio.Transport) -> None:
    """Close a connection so that the peer sees a reset, not an end."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def until_gone() -> NoReturn:
    """Wait for a closing connection: the handler's task is cancelled when it is closed."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nothing sets this future")


def make_server(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], loop: asyncio.AbstractEventLoop
) -> web.Server:
    """Put a handler behind aiohttp's low-level server: a client that leaves ends its handler."""

    def request_of(
        message: Any, payload: Any, protocol: Any, writer: AbstractStreamWriter, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)

    return web.Server(
        handler,
        request_factory=request_of,
        handler_cancellation=True,
        keepalive_timeout=KEEPALIVE_SECONDS,
        access_log=None,
    )
