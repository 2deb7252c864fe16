"""Memory that the names of subscriptions may take: of one stream, and of all."""

from __future__ import annotations

from typing import Final

from fleet.errors import PeerError

MAX_STREAM_BYTES: Final = 16 * 1024 * 1024
"""20,000 names of 100 characters each, of two types, with the versions that a client says that it holds."""
MAX_ALL_BYTES: Final = 768 * 1024 * 1024
NAME_BYTES: Final = 200
"""What a name takes beside its characters: as a text, and in the sets and maps that hold it."""
VERSION_BYTES: Final = 50
"""The same of a version that a client says that it holds."""


class NameBudget:
    """Bytes of names of all streams."""

    def __init__(self, stream_bytes: int = MAX_STREAM_BYTES, all_bytes: int = MAX_ALL_BYTES) -> None:
        self._stream_bytes = stream_bytes
        self._all_bytes = all_bytes
        self._used = 0

    def change(self, before: int, now: int) -> None:
        """Count a stream's bytes in the place of those before; fewer are always taken.

        Raises:
            PeerError: that is more than a stream, or all together, may have.
        """
        if now > before and (now > self._stream_bytes or self._used - before + now > self._all_bytes):
            allowed = f"allowed: {self._stream_bytes}, and {self._all_bytes} of all clients"
            raise PeerError(f"resource names that take {now} bytes; {allowed}")
        self._used += now - before
