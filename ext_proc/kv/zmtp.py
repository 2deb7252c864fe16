"""ZMTP 3 for a subscriber and a client of replays: bytes in, whole messages out. No I/O.

A message is bounded before it is stored: by its frames, and by the bytes that they announce. libzmq bounds
each frame and counts messages, so an endless message takes any amount of memory there. The protocol is
https://rfc.zeromq.org/spec/23, with the NULL mechanism; heartbeats are those of ZMTP 3.1, which libzmq
answers in 3.0 too.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from fleet.errors import PeerError

MAX_FRAMES: Final = 4
"""Of a message. A published one has three: topic, number and payload; a replayed one a delimiter before."""
MAX_KV_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Of a message: a single event of this length takes 36 ms to decode. Engines write some 10 KB a step, but
over 1 MB if a step has 200,000 new tokens or evicts 40,000 blocks."""
_MAX_COMMAND_BYTES: Final = 1024
_GREETING_BYTES: Final = 64
_MECHANISM: Final = b"NULL".ljust(20, b"\0")
_GREETING: Final = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + _MECHANISM + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4
_PEERS: Final = {b"SUB": (b"PUB", b"XPUB"), b"DEALER": (b"ROUTER",)}
"""Our kind of socket to the kinds of its peers."""
_PONG_CONTEXT_BYTES: Final = 16

Message: TypeAlias = list[bytes]
"""A message's frames."""


class ZmtpError(PeerError):
    """The peer speaks another protocol, or exceeds a limit."""


class Wire:
    """One connection's state. `receive` takes the peer's bytes; `out` has the bytes for it."""

    def __init__(self, kind: bytes) -> None:
        """`kind` is that of our socket: `SUB` or `DEALER`."""
        self.out = bytearray(_GREETING)
        self.ready = False
        """Whether the handshake is complete, so that messages may pass."""
        self._kind = kind
        self._greeted = False
        self._buffer = bytearray()
        """At most one frame of `MAX_KV_MESSAGE_BYTES`, and the rest of one read."""
        self._frames: Message = []
        self._bytes = 0

    def receive(self, data: bytes) -> list[Message]:
        """Return the messages that are complete now.

        Raises:
            ZmtpError: the connection must end.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        if not self._greeted:
            if len(buffer) < _GREETING_BYTES:
                return []
            self._greet()
            at = _GREETING_BYTES
        messages: list[Message] = []
        while (frame := self._frame(at)) is not None:
            flags, start, at = frame
            if flags & _COMMAND:
                self._command(bytes(buffer[start:at]))
                continue
            self._frames.append(bytes(buffer[start:at]))
            self._bytes += at - start
            if not flags & _MORE:
                messages.append(self._frames)
                self._frames, self._bytes = [], 0
        del buffer[:at]
        return messages

    def send(self, *frames: bytes) -> None:
        """Put a message into `out`."""
        for number, frame in enumerate(frames):
            self._write(_MORE if number + 1 < len(frames) else 0, frame)

    def ping(self) -> None:
        """Put a heartbeat into `out`; the peer answers it."""
        self._write(_COMMAND, b"\x04PING\0\0")

    def _greet(self) -> None:
        greeting = self._buffer[:_GREETING_BYTES]
        if greeting[0] != 0xFF or greeting[9] != 0x7F or greeting[10] < 3:
            raise ZmtpError("it does not speak ZMTP 3: a publisher by ZeroMQ 4 or newer is needed")
        if greeting[12:32] != _MECHANISM:
            mechanism = bytes(greeting[12:32]).rstrip(b"\0")
            raise ZmtpError(f"its security mechanism is {mechanism!r}; allowed: NULL")
        self._greeted = True
        self._write(_COMMAND, b"\x05READY\x0bSocket-Type" + len(self._kind).to_bytes(4, "big") + self._kind)

    def _frame(self, at: int) -> tuple[int, int, int] | None:
        """Return flags, start and end of the frame at `at`; None while it is incomplete."""
        buffer = self._buffer
        if len(buffer) < at + 2:
            return None
        flags = buffer[at]
        if flags & _LONG:
            if len(buffer) < at + 9:
                return None
            size, start = int.from_bytes(buffer[at + 1 : at + 9], "big"), at + 9
        else:
            size, start = buffer[at + 1], at + 2
        if flags > 7 or flags & (_COMMAND | _MORE) == _COMMAND | _MORE:
            raise ZmtpError(f"a frame has the flags {flags}; allowed: 0 to 4 and 6")
        if flags & _COMMAND:
            if size > _MAX_COMMAND_BYTES:
                raise ZmtpError(f"a command of {size} bytes; allowed: {_MAX_COMMAND_BYTES}")
        else:
            self._allow(size)
        return None if len(buffer) < start + size else (flags, start, start + size)

    def _allow(self, size: int) -> None:
        """Refuse a frame before any of it is stored."""
        if not self.ready:
            raise ZmtpError("a message before the handshake")
        if len(self._frames) >= MAX_FRAMES:
            raise ZmtpError(f"a message of more than {MAX_FRAMES} frames")
        if self._bytes + size > MAX_KV_MESSAGE_BYTES:
            raise ZmtpError(f"a message of more than {MAX_KV_MESSAGE_BYTES} bytes")

    def _command(self, body: bytes) -> None:
        size = body[0] if body else 0
        name, rest = body[1 : 1 + size], body[1 + size :]
        if name == b"PING":
            # Two bytes of time to live come first.
            self._write(_COMMAND, b"\x04PONG" + rest[2 : 2 + _PONG_CONTEXT_BYTES])
        elif name == b"ERROR":
            raise ZmtpError(f"it refuses the handshake: {rest[1:]!r}")
        elif name == b"READY" and not self.ready:
            kind = _property(rest, b"socket-type")
            if kind not in _PEERS[self._kind]:
                allowed = ", ".join(name.decode() for name in _PEERS[self._kind])
                raise ZmtpError(f"its socket is of type {kind!r}; allowed: {allowed}")
            self.ready = True

    def _write(self, flags: int, frame: bytes) -> None:
        if len(frame) < 256:
            self.out += bytes((flags, len(frame))) + frame
        else:
            self.out += bytes((flags | _LONG,)) + len(frame).to_bytes(8, "big") + frame


def _property(metadata: bytes, name: bytes) -> bytes:
    """Return a property of a handshake; empty if it is missing."""
    at = 0
    while at < len(metadata):
        key_end = at + 1 + metadata[at]
        size = int.from_bytes(metadata[key_end : key_end + 4], "big")
        if metadata[at + 1 : key_end].lower() == name:
            return metadata[key_end + 4 : key_end + 4 + size]
        at = key_end + 4 + size
    return b""
