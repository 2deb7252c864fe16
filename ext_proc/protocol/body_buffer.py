"""Request bodies that full duplex keeps back: one body each, and the bytes of all of them together."""

from __future__ import annotations


class BufferedBytes:
    """Counts the bytes that are buffered for all requests of a worker, against a limit. Single-threaded."""

    __slots__ = ("limit", "now")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.now = 0

    @property
    def over(self) -> bool:
        """Whether no request may wait for more of its body."""
        return self.now > self.limit


class BodyBuffer:
    """What has come of one request's body.

    Its pieces are joined as they come, since a client may send it byte by byte: kept as they came, each takes
    some fifty bytes more than it holds, and an empty one takes them without being counted.
    """

    __slots__ = ("_body", "_total", "size")

    def __init__(self, total: BufferedBytes) -> None:
        self._total = total
        self._body: bytes | bytearray | None = None
        self.size = 0
        """In bytes."""

    def __bool__(self) -> bool:
        """Whether there is a piece, even an empty one."""
        return self._body is not None

    def append(self, piece: bytes) -> None:
        """Add a piece."""
        if self._body is None:
            self._body = piece  # Most bodies come as one, which is not copied.
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
        """Whether there are `limit` bytes, or too many of all requests together to wait for that."""
        return self.size >= limit or self._total.over

    def clear(self) -> None:
        """Drop all pieces."""
        self._total.now -= self.size
        self.size = 0
        self._body = None
