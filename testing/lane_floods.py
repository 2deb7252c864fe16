"""Floods of HTTP/2 frames against a server of the lane, for tests of the core and attacks on a door."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.lane.limits import BLOCK_BYTES, FRAME_BYTES
from testing import lane_client as wire
from testing.lane_client import (
    CONTINUATION,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PATH,
    PRIORITY,
    REQUEST,
    block,
    data,
    frame,
    grpc_message,
    ping,
    reset,
    settings,
    window_update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Flood(NamedTuple):
    """Frames without end, and the code of the GOAWAY that ends them; None: they may go on, at no cost."""

    frames: Iterator[bytes]
    code: int | None = wire.ENHANCE_YOUR_CALM
    opening: bytes = b""
    """To send first."""
    first: tuple[tuple[int, int], ...] = ()
    """The client's settings."""


_NO_WINDOW: Final = ((INITIAL_WINDOW_SIZE, 0),)
_HELLO: Final = grpc_message(b"hello")
_HALF: Final = grpc_message(bytes(60_000))[:-1]
_BEGINNING: Final = grpc_message(bytes(500_000))[:9_000]


def _each(make: Callable[[int], bytes]) -> Iterator[bytes]:
    """Make frames for one stream after the other."""
    return map(make, itertools.count(1, 2))


def floods(path: str = PATH) -> dict[str, Flood]:
    """Return the floods by name, not yet begun; their calls are of the method `path`."""
    request = tuple((name, path if name == ":path" else value) for name, value in REQUEST)

    def call(stream: int, *, end: bool = False) -> bytes:
        return wire.headers(stream, request, end=end)

    opened = frame(HEADERS, 0, 1, block(request))
    forever = itertools.repeat
    return {
        "resets": Flood(_each(lambda number: call(number) + reset(number))),
        "resets_behind_messages": Flood(
            _each(lambda number: call(number) + data(number, _HELLO) + reset(number)), None
        ),
        "resets_of_whole_calls": Flood(
            _each(lambda number: call(number) + data(number, _HELLO, end=True) + reset(number)), None
        ),
        "single_bytes": Flood(
            _each(lambda number: call(number) + b"".join(data(number, bytes([byte])) for byte in _HELLO)),
            None,
        ),
        "malformed": Flood(_each(lambda number: wire.headers(number, request[1:]))),
        "resets_by_server": Flood(_each(lambda number: call(number) + window_update(number, 0))),
        "settings": Flood(forever(settings())),
        "many_settings": Flood(forever(settings(*[(INITIAL_WINDOW_SIZE, 1)] * 2000))),
        "pings_at_once": Flood(forever(ping() * 2000)),
        "pings": Flood(forever(ping()), None),
        "empty_data": Flood(forever(data(1)), opening=call(1)),
        "padded_data": Flood(forever(data(1, pad=9)), opening=call(1)),
        "late_data": Flood(forever(data(1, b"x") * 20), opening=call(1, end=True)),
        "closed_streams": Flood(
            _each(lambda number: data(number, b"x") * 50), opening=call(99_999, end=True)
        ),
        "data_behind_reset": Flood(forever(data(1, b"x") * 20), opening=call(1) + reset(1)),
        "headers_behind_reset": Flood(
            forever((data(1, b"x") + call(1, end=True)) * 10), opening=call(1) + window_update(1, 0)
        ),
        "priority": Flood(forever(frame(PRIORITY, 0, 1, b"\0\0\0\0\1"))),
        "window_updates": Flood(forever(window_update(0, 1))),
        "stream_window_updates": Flood(forever(window_update(1, 1)), opening=call(1)),
        "empty_continuations": Flood(forever(frame(CONTINUATION, 0, 1)), opening=opened),
        "continuations": Flood(forever(frame(CONTINUATION, 0, 1, bytes(16_384))), opening=opened),
        "long_continuations": Flood(forever(frame(CONTINUATION, 0, 1, bytes(999_999))), opening=opened),
        "long_header_blocks": Flood(
            _each(lambda number: frame(HEADERS, END_HEADERS, number, bytes(BLOCK_BYTES + 1)))
        ),
        "oversized_heads": Flood(
            _each(lambda number: frame(HEADERS, 0, number, b"", length=FRAME_BYTES)), None
        ),
        "dear_header_blocks": Flood(
            _each(lambda number: wire.headers(number, request, after=b"\x00\x01a\x01b" * 400)), None
        ),
        "unknown_frames": Flood(forever(frame(0x16, 0, 0, bytes(999))), None),
        "goaways": Flood(forever(frame(GOAWAY, 0, 0, bytes(999))), None),
        "refused_streams": Flood(_each(call), None),
        "half_messages": Flood(_each(lambda number: call(number) + data(number, _HALF)), None),
        "long_beginnings": Flood(_each(lambda number: call(number) + data(number, _BEGINNING)), None),
        "unread_replies": Flood(
            _each(lambda number: call(number) + data(number, grpc_message(bytes(60_000)), end=True)),
            None,
            first=_NO_WINDOW,
        ),
        "replies_by_the_byte": Flood(
            _each(
                lambda number: (
                    call(number)
                    + data(number, grpc_message(bytes(9_000)), end=True)
                    + window_update(number, 1)
                )
            ),
            None,
            first=_NO_WINDOW,
        ),
    }
