"""Memory that the names of subscriptions may take: of one stream, and of all."""

from __future__ import annotations

from typing import Final

from fleet.errors import PeerError

MAX_STREAM_BYTES: Final = 16 * 1024 * 1024
"""20,000 names of 100 characters each, of two types, with the initial versions that a client reports."""
MAX_ALL_BYTES: Final = 768 * 1024 * 1024
NAME_BYTES: Final = 200
"""Memory of a name apart from its characters: the string object and its entries in sets and maps."""
VERSION_BYTES: Final = 50
"""The same for an initial version that a client reports."""


class NameBudget:
    """Bytes of names of all streams."""

    def __init__(self, stream_bytes: int = MAX_STREAM_BYTES, all_bytes: int = MAX_ALL_BYTES) -> None:
        self._stream_bytes = stream_bytes
        self._all_bytes = all_bytes
        self._used = 0

    def change(self, before: int, now: int) -> None:
        """Replace a stream's bytes in the count; fewer bytes are always accepted.

        Raises:
            PeerError: a stream, or all together, exceed their limit.
        """
        if now > before and (now > self._stream_bytes or self._used - before + now > self._all_bytes):
            allowed = f"allowed: {self._stream_bytes}, and {self._all_bytes} of all clients"
            raise PeerError(f"resource names that take {now} bytes; {allowed}")
        self._used += now - before
