"""A ZMTP connection over TCP: handshake in time, heartbeats, a bounded buffer. `zmtp` knows the protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ext_proc.kv.zmtp import Wire, ZmtpError

if TYPE_CHECKING:
    from ext_proc.kv.zmtp import Message

HEARTBEAT_SECONDS: Final = 2.0
LOST_SECONDS: Final = 6.0
"""A peer that sends nothing for this long, not even answers to heartbeats, is gone."""
_OPEN_SECONDS: Final = 5.0
"""For the connection and the handshake."""
_HANDSHAKE_BYTES: Final = 8192
CHUNK_BYTES: Final = 8192
"""Of one read: 4,096 empty frames are 3 ms of work."""
_BUFFER_BYTES: Final = 65_536
"""The transport buffers about twice as much unread data, and then stops reading."""


class Connection:
    """One connection; its owner opens and closes it."""

    def __init__(self, kind: bytes) -> None:
        """`kind` is that of our socket: `SUB` or `DEALER`."""
        self._wire = Wire(kind)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, host: str, port: int) -> None:
        """Connect and shake hands.

        Raises:
            OSError: there is no connection.
            TimeoutError: there is none in time.
            ZmtpError: the peer speaks something else.
        """
        async with asyncio.timeout(_OPEN_SECONDS):
            self._reader, self._writer = await asyncio.open_connection(host, port, limit=_BUFFER_BYTES)
            self._flush()
            left = _HANDSHAKE_BYTES
            while not self._wire.ready:
                data = await self._some(CHUNK_BYTES)
                left -= len(data)
                if left < 0 or self.take(data):
                    raise ZmtpError("more than a handshake before any request")

    async def read(self) -> bytes:
        """Wait for data and return it; send heartbeats meanwhile.

        Raises:
            OSError: the connection has ended.
            TimeoutError: the peer does not answer heartbeats.
        """
        silent = 0.0
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    return await self._some(CHUNK_BYTES)
            except TimeoutError:
                # Not by the clock: a stall of our own loop is no silence of the peer.
                silent += HEARTBEAT_SECONDS
                if silent >= LOST_SECONDS:
                    raise
                self._wire.ping()
                self._flush()

    def take(self, data: bytes) -> list[Message]:
        """Return the messages that `data`, from `read`, completes.

        Raises:
            ZmtpError: the peer breaks the protocol or exceeds a limit.
        """
        messages = self._wire.receive(data)
        self._flush()
        return messages

    def send(self, *frames: bytes) -> None:
        """Send a message."""
        self._wire.send(*frames)
        self._flush()

    def close(self) -> None:
        """End it at once."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def _some(self, most: int) -> bytes:
        assert self._reader is not None
        data = await self._reader.read(most)
        if not data:
            raise ConnectionResetError("the peer has ended the connection")
        return data

    def _flush(self) -> None:
        assert self._writer is not None
        if not self._wire.out:
            return
        if self._writer.transport.get_write_buffer_size() > _BUFFER_BYTES:
            raise ZmtpError("it sends heartbeats and does not read the answers")
        self._writer.write(bytes(self._wire.out))
        self._wire.out.clear()
