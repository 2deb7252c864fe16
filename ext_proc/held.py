"""What full duplex keeps back of bodies: each request's pieces, and the bytes of all of them together."""

from __future__ import annotations


class HeldBytes:
    """Counts the bytes that are held for all requests of a worker, against a limit. Single-threaded."""

    __slots__ = ("limit", "now")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.now = 0

    @property
    def over(self) -> bool:
        """Whether no request may wait for more of its body."""
        return self.now > self.limit


class Held:
    """The pieces of one request's body, as they came."""

    __slots__ = ("_pieces", "_total", "size")

    def __init__(self, total: HeldBytes) -> None:
        self._total = total
        self._pieces: list[bytes] = []
        self.size = 0
        """In bytes."""

    def __bool__(self) -> bool:
        """Whether there is a piece, be it an empty one."""
        return bool(self._pieces)

    def append(self, piece: bytes) -> None:
        """Hold one more piece."""
        self._pieces.append(piece)
        self.size += len(piece)
        self._total.now += len(piece)

    def joined(self) -> bytes:
        """Return all of them."""
        return b"".join(self._pieces)

    def reached(self, limit: int) -> bool:
        """Whether there are `limit` bytes, or too many of all requests together to wait for that."""
        return self.size >= limit or self._total.over

    def clear(self) -> None:
        """Hold nothing any more."""
        self._total.now -= self.size
        self.size = 0
        self._pieces.clear()
