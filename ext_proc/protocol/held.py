"""What full duplex keeps back of bodies: what has come of each, and the bytes of all of them together."""

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
    """What has come of one request's body.

    Its pieces are put together as they come, since a client may send it byte by byte: kept as they came, each
    takes some fifty bytes more than it holds, and an empty one takes them and is never counted.
    """

    __slots__ = ("_body", "_total", "size")

    def __init__(self, total: HeldBytes) -> None:
        self._total = total
        self._body: bytes | bytearray | None = None
        self.size = 0
        """In bytes."""

    def __bool__(self) -> bool:
        """Whether there is a piece, be it an empty one."""
        return self._body is not None

    def append(self, piece: bytes) -> None:
        """Hold one more piece."""
        if self._body is None:
            self._body = piece  # Most bodies come as one, which is not copied.
        elif piece:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += piece
        self.size += len(piece)
        self._total.now += len(piece)

    def joined(self) -> bytes:
        """Return all of them."""
        if not isinstance(self._body, bytes):
            if self._body is None:
                return b""
            self._body = bytes(self._body)  # Asked for twice: to decide, and to let go.
        return self._body

    def reached(self, limit: int) -> bool:
        """Whether there are `limit` bytes, or too many of all requests together to wait for that."""
        return self.size >= limit or self._total.over

    def clear(self) -> None:
        """Hold nothing any more."""
        self._total.now -= self.size
        self.size = 0
        self._body = None
