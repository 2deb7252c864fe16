"""The bounds of one connection by name, with the memory that each one allows at most.

`budget.py` has those that all connections of a server share, `server.py` those in time.

A bound that an honest client could reach is a ratio to its useful frames, because the core has no clock: a
client that pings an idle connection for years is honest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STREAM_WINDOW: Final = 65_535
"""Bytes that a stream may send before the budget permits more; RFC 9113's initial value."""
CONNECTION_WINDOW: Final = 0x7FFF_FFFF
"""Bytes of a connection in flight. It is no limit: streams' windows and the budget are."""
WINDOW_BATCH: Final = 0x1000_0000
"""The connection's window is renewed after this many bytes."""
FRAME_BYTES: Final = 1024 * 1024
"""Largest frame, announced. Payloads of DATA go into their message as they arrive, so it costs no memory."""
HEADER_LIST_BYTES: Final = 16 * 1024
"""Largest decoded header list (RFC 9113, 6.5.2), announced, as grpcio's; more is answered by status 431."""
BLOCK_BYTES: Final = HEADER_LIST_BYTES
"""Largest header block in HEADERS and CONTINUATION: the memory of one block for each connection. The list of
a longer one is larger than its limit, so that it needs no decoding."""
CONTINUATIONS: Final = 64
"""CONTINUATION frames of one header block. Honest clients fill each one."""
CACHED_BLOCKS: Final = 64
CACHED_BLOCK_BYTES: Final = 512
"""Decoded header blocks and fields that a connection remembers, and the largest: 200 KiB a connection."""
RECENT_STREAMS: Final = 1024
"""Closed streams that a connection remembers, to treat their late frames: some 100 KiB a connection."""
OUTPUT_BYTES: Final = 256 * 1024
"""Frames that wait for `take`; further replies stay with their streams and count in the budget."""

ANSWERS: Final = 1000
"""Acknowledgements of PING and SETTINGS that wait for `take`."""
EMPTY_FRAMES: Final = 1000
"""Frames of DATA without payload and without END_STREAM, in addition to one for each stream."""
LATE_FRAMES: Final = 5000
"""DATA and HEADERS of closed streams, in addition to 20 a stream. A window has room for 4,700 of DATA."""
SETTINGS_FRAMES: Final = 100
"""In addition to one for each 100 DATA frames that were sent: a change may concern every stream."""
SETTINGS_BYTES: Final = 192
"""Largest SETTINGS frame: 32 settings; RFC 9113 has six."""
PRIORITY_FRAMES: Final = 1000
"""In addition to 100 for each stream."""
WINDOW_FRAMES: Final = 1000
"""WINDOW_UPDATE frames, in addition to 4 for each stream and 20 for each DATA frame that was sent."""
FRUITLESS_STREAMS: Final = 10_000
"""Streams without use, in addition to 10 for each reply: neither a message was whole before the client's
reset, nor was there a reply; or a fault of the client ended them.

A reset behind a message is honest. After a standstill of the service Envoy resets thousands of streams at
once, and in `observability_mode`, where nothing is answered, each one.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server sets for its connections."""

    streams: int = 32_768
    """Open streams of a connection, announced; more are refused."""
    message_bytes: int = 64 * 1024 * 1024
    """Largest message without its prefix; a larger one ends its stream with RESOURCE_EXHAUSTED."""
