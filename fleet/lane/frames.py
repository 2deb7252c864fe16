"""Names and numbers of HTTP/2 (RFC 9113), and frames as bytes; the prefix of gRPC's messages."""

from __future__ import annotations

from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
HEAD: Final = Struct(">IBI")
"""A frame's head: length and type as one number (`length << 8 | type`), flags, stream."""

PREFIX: Final = Struct(">BI")
"""gRPC's prefix of a message: compressed flag and length."""

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FIELDS: Final = 0x20

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

HEADER_TABLE_SIZE: Final = 0x1
ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6

SMALLEST_MAX_FRAME: Final = 16_384
LARGEST_MAX_FRAME: Final = 2**24 - 1
LARGEST_WINDOW: Final = 2**31 - 1
LARGEST_STREAM: Final = 2**31 - 1

SETTING: Final = Struct(">HI")
_NUMBER: Final = Struct(">IBII")
_GOAWAY: Final = Struct(">IBIII")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*item) for item in values.items()))


def reset(stream: int, code: int) -> bytes:
    """Return a RST_STREAM frame."""
    return _NUMBER.pack(4 << 8 | RST_STREAM, 0, stream, code)


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return _NUMBER.pack(4 << 8 | WINDOW_UPDATE, 0, stream, increment)


def go_away(last_stream: int, code: int) -> bytes:
    """Return a GOAWAY frame without debug data."""
    return _GOAWAY.pack(8 << 8 | GOAWAY, 0, 0, last_stream, code)
