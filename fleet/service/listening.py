"""The sockets of a server that accepts connections itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Final

from fleet.cause import cause_of
from fleet.service.binding import cannot_listen, prepare, socket_path, sockets_for_the_group, why_not_bound
from fleet.service.files import signature
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)

_BACKLOG_CONNECTIONS: Final = 1024
_AGAIN_SECONDS: Final = 0.1
"""Pause after a connection could not be accepted."""


class Listener:
    """The listening sockets of one address: a Unix socket, or one for each address of a host."""

    def __init__(self, field: str, address: str) -> None:
        """`field` is the setting that has the `address`."""
        self._field = field
        self._address = address
        self._path = socket_path(address)
        self._own: tuple[int, ...] | None = None
        """Identifies the Unix socket that this object made: another process may put its own in its place."""
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []

    async def bind(self) -> None:
        """Bind and listen; connections wait until they are accepted.

        Raises:
            SettingsError: the address cannot be bound; nothing is left behind.
        """
        try:
            if self._path is None:
                await self._bind_host(*split_host_port(self._address))
            else:
                prepare(self._field, self._address)
                self._bind_path(self._path)
        except OSError as error:
            await self.close()
            why = cause_of(error) if self._path else why_not_bound(error)
            raise cannot_listen(self._field, self._address, why) from error

    async def _bind_host(self, host: str, port: int) -> None:
        for family, kind, protocol, _, place in await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listening = self._opened(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(place)
            listening.listen(_BACKLOG_CONNECTIONS)

    def _bind_path(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # Of a process that has ended: `prepare` has tried to connect.
        listening = self._opened(socket.socket(socket.AF_UNIX))
        with sockets_for_the_group():
            listening.bind(str(path))
        self._own = signature(path)
        listening.listen(_BACKLOG_CONNECTIONS)

    def _opened(self, listening: socket.socket) -> socket.socket:
        self._sockets.append(listening)
        listening.setblocking(False)
        return listening

    def accept(self, admit: Callable[[socket.socket], None]) -> None:
        """Call `admit` with each connection from here on."""
        self._accepting = [asyncio.create_task(self._accept(each, admit)) for each in self._sockets]

    async def close(self) -> None:
        """Stop listening, and remove the Unix socket."""
        for task in self._accepting:
            task.cancel()
        for task in self._accepting:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for listening in self._sockets:
            listening.close()
        if self._path is not None and self._own is not None and signature(self._path) == self._own:
            self._path.unlink(missing_ok=True)
        self._accepting, self._sockets, self._own = [], [], None

    async def _accept(self, listening: socket.socket, admit: Callable[[socket.socket], None]) -> None:
        loop, failing = asyncio.get_running_loop(), False
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError as error:
                # The peer has already left, or no descriptors are free.
                if not failing:
                    logger.error("connections to %s cannot be accepted: %s", self._address, error)
                failing = True
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            failing = False
            admit(sock)
            # A replaced connection closes in the loop's next pass: accepting must not run ahead of that.
            await asyncio.sleep(0)
