"""Buffered request bodies of full duplex: the body of one request, and the bytes of all requests."""

from __future__ import annotations


class BufferedBytes:
    """The buffered bytes of all requests of a worker, and their limit. Single-threaded."""

    __slots__ = ("limit", "now")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.now = 0

    @property
    def over(self) -> bool:
        """Whether requests must decide without the rest of their bodies."""
        return self.now > self.limit


class BodyBuffer:
    """The leading part of one request's body.

    Pieces are joined as they arrive, because a client may send single bytes: a separate piece takes some
    fifty bytes in addition, and an empty one takes them without being counted.
    """

    __slots__ = ("_body", "_total", "size")

    def __init__(self, total: BufferedBytes) -> None:
        self._total = total
        self._body: bytes | bytearray | None = None
        self.size = 0
        """In bytes."""

    def append(self, piece: bytes) -> None:
        """Add a piece."""
        if self._body is None:
            self._body = piece  # Most bodies have one piece, which is not copied.
        elif piece:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += piece
        self.size += len(piece)
        self._total.now += len(piece)

    def joined(self) -> bytes:
        """Return all pieces as one."""
        if not isinstance(self._body, bytes):
            if self._body is None:
                return b""
            self._body = bytes(self._body)  # Read twice: for the pick, and for the echo.
        return self._body

    def reached(self, limit: int) -> bool:
        """Return whether the buffer has `limit` bytes, or those of all requests are over their limit."""
        return self.size >= limit or self._total.over

    def clear(self) -> None:
        """Drop all pieces."""
        self._total.now -= self.size
        self.size = 0
        self._body = None
