"""One answer to a GET as its bytes come, within limits; I/O-free.

The work is bounded as the bytes are: a byte of a body costs a copy, and everything that costs more (heads,
chunk sizes, trailers) has few bytes. Source: RFC 9110 and RFC 9112.
"""

from __future__ import annotations

import re
import zlib
from typing import Final, Literal

from fleet.errors import PeerError

MAX_HEAD_BYTES: Final = 32_768
"""Of all heads of an answer together, since a server may send any number of interim ones (1xx) first."""
MAX_FRAMING_BYTES: Final = 16_384
"""Of chunk sizes and trailers, in addition to a part of the body's bytes; it limits bodies of tiny chunks."""
_FRAMING_PART: Final = 4
"""One more byte of framing per this many of the body: some servers send each line as a chunk."""
_MAX_LINE_BYTES: Final = 4096

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: |\r?\Z)")
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;.*)?\Z", re.DOTALL)
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}\Z")
_READ: Final = frozenset(
    (b"content-length", b"transfer-encoding", b"content-encoding", b"connection", b"location")
)
_CODINGS: Final = frozenset((b"gzip", b"x-gzip", b"deflate"))
_NO_BODY: Final = frozenset((204, 304))
_SWITCHING: Final = 101
_OK: Final = 200
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS
_GZIP: Final = b"\x1f\x8b"
_MAX_MEMBERS: Final = 64
"""Of a gzip body, which may be several files one after the other: what follows each is copied."""

_Where = Literal["head", "length", "size", "chunk", "after", "trailer", "close", "done"]


class AnswerError(PeerError):
    """The bytes are no answer, or exceed its limits."""

    def __init__(self, kind: Literal["protocol", "too_large"], text: str) -> None:
        super().__init__(text)
        self.kind: Literal["protocol", "too_large"] = kind


class Budget:
    """Bytes of all bodies in flight together."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._used = 0

    def use(self, count: int) -> None:
        """Take `count` bytes.

        Raises:
            AnswerError: fewer are left.
        """
        if self._used + count > self._most:
            raise AnswerError("too_large", f"more than {self._most} bytes of all pages at once")
        self._used += count

    def free(self, count: int) -> None:
        """Give bytes back."""
        self._used -= count


class Answer:
    """Reads one answer. Of any status but 200 only the head is read."""

    def __init__(self, most_bytes: int, budget: Budget) -> None:
        self.status = 0
        self.location = ""
        self.body = bytearray()
        """As it came; `decoded` undoes its coding."""
        self.encoded = False
        self.keeps = False
        """Whether the connection may carry another request."""
        self._most = most_bytes
        self._budget = budget
        self._where: _Where = "head"
        self._begun = False
        self._head = bytearray()
        self._head_bytes = 0
        self._line = bytearray()
        self._framing_bytes = 0
        self._left = 0

    @property
    def begun(self) -> bool:
        """Whether a byte has come."""
        return self._begun

    @property
    def done(self) -> bool:
        """Whether everything has come."""
        return self._where == "done"

    def take(self, data: bytes) -> None:
        """Take received bytes.

        Raises:
            AnswerError: they are no answer, or exceed its limits.
        """
        self._begun = True
        at = 0
        if self._where == "head":
            at = self._heads(data)
        if self._where == "length":
            at = self._counted(data, at)
            if not self._left:
                self._where = "done"
        elif self._where == "close":
            self._append(data[at:])
            at = len(data)
        elif self._where not in ("head", "done"):
            at = self._chunks(data, at)
        if self.done and at < len(data):
            self.keeps = False  # Bytes after the answer.

    def end(self) -> None:
        """Take the end of the connection.

        Raises:
            AnswerError: the answer has not come whole.
        """
        if self._where == "close":
            self._where = "done"
        if not self.done:
            raise AnswerError("protocol", "the connection ended before the answer did")

    def free(self) -> None:
        """Give the body's bytes back to the budget."""
        self._budget.free(len(self.body))

    def decoded(self) -> bytes:
        """Undo the body's coding.

        Raises:
            AnswerError: its coding is another one, or it is too large.
        """
        if not self.encoded:
            return bytes(self.body)
        text, rest = bytearray(), bytes(self.body)
        for _ in range(_MAX_MEMBERS):
            decoder = zlib.decompressobj(_ANY_HEADER)
            try:
                text += decoder.decompress(rest, self._most + 1 - len(text))
            except zlib.error as error:
                raise AnswerError("protocol", "its content-encoding is another one") from error
            if len(text) > self._most:
                raise AnswerError("too_large", f"more than {self._most} bytes")
            if not decoder.eof:
                raise AnswerError("protocol", "its compressed body has no end")
            rest = decoder.unused_data
            if not rest.startswith(_GZIP):
                return bytes(text)  # Zeros may fill up a last block.
        raise AnswerError("protocol", f"a compressed body of more than {_MAX_MEMBERS} members")

    def _heads(self, data: bytes) -> int:
        """Read heads up to that of the answer itself; return where in `data` its body begins."""
        at = 0
        while True:
            begun = len(self._head)
            room = MAX_HEAD_BYTES - self._head_bytes
            self._head += data[at : at + room + 1]
            end = _HEAD_END.search(self._head, max(0, begun - 3))
            used = (len(self._head) if end is None else end.end()) - begun
            self._head_bytes += used
            at += used
            if self._head_bytes > MAX_HEAD_BYTES:
                raise AnswerError("protocol", f"heads of more than {MAX_HEAD_BYTES} bytes")
            if end is None:
                return at
            head = bytes(self._head[: end.start()])
            self._head.clear()
            if self._take_head(head):
                return at

    def _take_head(self, head: bytes) -> bool:
        """Read a head; returns whether it is that of the answer itself."""
        first, *lines = head.split(b"\n")
        status = _STATUS.match(first)
        if status is None:
            raise AnswerError("protocol", "no HTTP/1.1 answer")
        self.status = int(status[2])
        if self.status == _SWITCHING:
            raise AnswerError("protocol", "another protocol, unasked")
        if self.status < _OK:
            return False
        fields: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            name = name.lower()
            if colon and name in _READ:
                value = value.strip()
                if name == b"content-length" and fields.get(name, value) != value:
                    raise AnswerError("protocol", "two lengths")
                fields[name] = value
        self.location = fields.get(b"location", b"").decode("latin-1")
        self._frame(fields, persistent=status[1] == b"1")
        return True

    def _frame(self, fields: dict[bytes, bytes], *, persistent: bool) -> None:
        """Determine the framing of the body."""
        options = {option.strip() for option in fields.get(b"connection", b"").lower().split(b",")}
        self.keeps = b"close" not in options if persistent else b"keep-alive" in options
        transfer, length = fields.get(b"transfer-encoding", b"").lower(), fields.get(b"content-length")
        if self.status in _NO_BODY or (length == b"0" and not transfer):
            self._where = "done"
            return
        if self.status != _OK:
            self._where, self.keeps = "done", False
            return
        coding = fields.get(b"content-encoding", b"").lower()
        self.encoded = coding in _CODINGS
        if coding not in (b"", b"identity") and not self.encoded:
            raise AnswerError("protocol", "a content-encoding that the request does not accept")
        if transfer == b"identity":
            transfer = b""  # Of RFC 2616: as it is.
        if transfer:
            if transfer != b"chunked":
                raise AnswerError("protocol", "a transfer-encoding other than chunked")
            self._where = "size"
            self.keeps = self.keeps and length is None
        elif length is not None:
            if not _LENGTH.match(length):
                raise AnswerError("protocol", "a length that is no number")
            self._left = int(length)
            if self._left > self._most:
                raise AnswerError("too_large", f"more than {self._most} bytes")
            self._where = "length"
        else:
            self._where, self.keeps = "close", False

    def _counted(self, data: bytes, at: int) -> int:
        """Take the rest of a body or chunk of known length; return where in `data` it ends."""
        count = min(self._left, len(data) - at)
        self._append(data[at : at + count] if count < len(data) else data)
        self._left -= count
        return at + count

    def _append(self, piece: bytes) -> None:
        if len(self.body) + len(piece) > self._most:
            raise AnswerError("too_large", f"more than {self._most} bytes")
        self._budget.use(len(piece))
        self.body += piece

    def _chunks(self, data: bytes, at: int) -> int:
        size = len(data)
        while at < size and self._where != "done":
            if self._where == "chunk":
                at = self._counted(data, at)
                if not self._left:
                    self._where = "after"
                continue
            if self._where == "size" and (after := self._whole_chunk(data, at)):
                at = after
                continue
            end = data.find(b"\n", at, at + _MAX_LINE_BYTES)
            piece = data[at : min(size, at + _MAX_LINE_BYTES) if end < 0 else end + 1]
            self._line += piece
            if len(self._line) > _MAX_LINE_BYTES:
                raise AnswerError("too_large", f"a chunk size of more than {_MAX_LINE_BYTES} bytes")
            self._use_framing(len(piece))
            at += len(piece)
            if end >= 0:
                line = bytes(self._line).strip()
                self._line.clear()
                self._framed(line)
        return at

    def _whole_chunk(self, data: bytes, at: int) -> int:
        """Take a chunk that is wholly in `data`, as most small ones are; return its end; 0: it is not."""
        match = None if self._line else _CHUNK.match(data, at)
        if match is None:
            return 0
        begin = match.end()
        end = begin + int(match[1], 16)
        if begin == end or data[end : end + 2] != b"\r\n":
            return 0
        self._use_framing(begin - at + 2)
        self._append(data[begin:end])
        return end + 2

    def _use_framing(self, count: int) -> None:
        self._framing_bytes += count
        most = MAX_FRAMING_BYTES + len(self.body) // _FRAMING_PART
        if self._framing_bytes > most:
            raise AnswerError("too_large", f"more than {most} bytes of chunk sizes")

    def _framed(self, line: bytes) -> None:
        """Take a line between chunks."""
        if self._where == "size":
            match = _SIZE.match(line)
            if match is None:
                raise AnswerError("protocol", "a chunk size that is no number")
            self._left = int(match[1], 16)
            self._where = "chunk" if self._left else "trailer"
        elif self._where == "after":
            if line:
                raise AnswerError("protocol", "a chunk that is longer than its size")
            self._where = "size"
        elif not line:
            self._where = "done"
