"""Header blocks: requests from a client's blocks, replies' blocks as constant bytes (RFC 7541, RFC 9113 8.2).

Replies use neither Huffman codes nor the dynamic table, so their blocks are constant. The server announces
a dynamic table of 0 bytes. Until the client has acknowledged that, its blocks depend on earlier ones. The
library then enforces that the client's table shrinks, and from there on equal bytes mean equal headers. So
a table of decoded blocks replaces most decoding.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote_from_bytes

from hpack import Decoder, HPACKError, OversizedHeaderListError

from fleet.lane import limits

GRPC_TYPE: Final = b"application/grpc"
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
"""A field's name in lower case."""
_VALUE: Final = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_PSEUDO: Final = (b":method", b":scheme", b":authority", b":path")
_CONNECTION: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_INDEXED: Final = 0x80
_INCREMENTAL: Final = 0x40
_SIZE_UPDATE: Final = 0x20
_MOST_SIZE_UPDATES: Final = 2

_T = TypeVar("_T")
Headers = tuple[tuple[bytes, bytes], ...]


class Request(NamedTuple):
    """A request's header list."""

    path: str
    timeout_seconds: float | None
    headers: Headers
    """Without pseudo-headers."""
    content_bytes: int | None = None
    """Of `content-length`."""
    refusal: bytes = b""
    """Header block of an answer that refuses the request; b"" for a call that may go on."""


class MalformedError(Exception):
    """A header list breaks RFC 9113, 8.2 or 8.3: a fault of its stream."""


class BlockError(Exception):
    """A header block cannot be decoded: a fault of its connection."""


class LargeListError(Exception):
    """A header list is larger than announced: a fault of its stream, as no later block depends on it."""


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field without a table and without Huffman codes (RFC 7541, 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    head = bytearray((127,))
    size -= 127
    while size >= 128:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + text


TABLE_SIZE_0: Final = bytes((_SIZE_UPDATE,))
"""Stands before a connection's first block, so that no smaller table of the client needs an answer."""
ANSWER: Final = b"\x88" + literal(b"content-type", GRPC_TYPE)
"""`:status: 200` and the type."""
OK: Final = literal(b"grpc-status", b"0")
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
_MOST_TEXT: Final = 1024
"""Characters of a status, so that trailers fit into any client's frame."""


def status(code: int, text: str = "") -> bytes:
    """Return the block of a call's trailers, with the leading part of a long text."""
    block = literal(b"grpc-status", b"%d" % code)
    if text:
        quoted = quote_from_bytes(text[:_MOST_TEXT].encode("utf-8", "replace"), safe=_PRINTABLE)
        block += literal(b"grpc-message", quoted.encode())
    return block


_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def _http(code: bytes) -> bytes:
    return b"\x08" + _string(code)  # `:status`, index 8, without indexing.


_TOO_LARGE: Final = Request("", None, (), refusal=_http(b"431"))


def request_of(fields: Headers) -> Request:
    """Check a request's header list.

    Raises:
        MalformedError: RFC 9113 forbids the list.
    """
    pseudo: dict[bytes, bytes] = {}
    for at, (name, value) in enumerate(fields):
        if name[:1] != b":":
            headers = fields[at:]
            break
        if name not in _PSEUDO or name in pseudo or not _VALUE.fullmatch(value):
            raise MalformedError
        pseudo[name] = value
    else:
        headers = ()
    check(headers)
    path = pseudo.get(b":path")
    if not path or b":method" not in pseudo or not pseudo.get(b":scheme"):
        raise MalformedError
    host = _first(headers, b"host")
    if host is not None and pseudo.get(b":authority", host) != host:
        raise MalformedError
    refusal, timeout, length = b"", _first(headers, b"grpc-timeout"), _first(headers, b"content-length")
    if length is not None and not re.fullmatch(rb"[0-9]{1,18}", length):
        raise MalformedError
    kind = _first(headers, b"content-type") or b""
    if pseudo[b":method"] != b"POST":
        refusal = _http(b"405")
    elif not kind.startswith(GRPC_TYPE) or kind[len(GRPC_TYPE) :][:1] not in (b"", b"+", b";"):
        refusal = _http(b"415")
    seconds = None
    if timeout is not None:
        if match := _TIMEOUT.fullmatch(timeout):
            seconds = int(match[1]) * _UNITS[match[2]]
        else:
            refusal = refusal or ANSWER + status(INTERNAL, "malformed grpc-timeout")
    return Request(path.decode("latin-1"), seconds, headers, None if length is None else int(length), refusal)


def check(headers: Headers) -> None:
    """Check fields that are not pseudo-headers.

    Raises:
        MalformedError: RFC 9113 forbids one of them.
    """
    for name, value in headers:
        if (
            not _NAME.fullmatch(name)
            or not _VALUE.fullmatch(value)
            or name in _CONNECTION
            or (name == b"te" and value != b"trailers")
        ):
            raise MalformedError


def _first(headers: Headers, key: bytes) -> bytes | None:
    return next((value for name, value in headers if name == key), None)


class BlockReader:
    """Decodes the header blocks of one connection, in their order."""

    __slots__ = ("_decoder", "_fields", "_requests", "_without_table")

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=limits.HEADER_LIST_BYTES)
        self._without_table = False
        self._requests: dict[bytes, Request] = {}
        self._fields: dict[bytes, tuple[bytes, bytes]] = {}

    def forbid_table(self) -> None:
        """Require a dynamic table of 0 bytes from the next block on: the client has acknowledged it."""
        self._decoder.max_allowed_table_size = 0
        self._without_table = True

    def request(self, block: bytes) -> Request:
        """Decode a request's block.

        Raises:
            BlockError: it cannot be decoded.
            MalformedError: RFC 9113 forbids its list.
        """
        request = self._requests.get(block)
        if request is None:
            try:
                request = request_of(self.fields(block))
            except LargeListError:
                return _TOO_LARGE
            self._keep(self._requests, block, request)
        return request

    def fields(self, block: bytes) -> Headers:
        """Decode a block.

        Raises:
            BlockError: it cannot be decoded.
            LargeListError: its list is too large.
        """
        if len(block) > limits.BLOCK_BYTES:
            raise self._too_large()
        updates = 0
        while updates < len(block) and block[updates] & 0xE0 == _SIZE_UPDATE:
            updates += 1
            if updates > _MOST_SIZE_UPDATES:
                raise BlockError("more than two updates of the table's size")
        if self._without_table and len(block) <= limits.CACHED_BLOCK_BYTES and (parts := _parts(block)):
            return tuple([self._field(part) for part in parts])
        return self._decode(block)

    def _field(self, part: bytes) -> tuple[bytes, bytes]:
        field = self._fields.get(part)
        if field is None:
            (field,) = self._decode(part)
            self._keep(self._fields, part, field)
        return field

    def _decode(self, block: bytes) -> Headers:
        try:
            return tuple((bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True))
        except OversizedHeaderListError as error:
            raise self._too_large() from error
        except HPACKError as error:
            raise BlockError(type(error).__name__) from error

    def _too_large(self) -> BlockError | LargeListError:
        """Without a table, no block depends on one that is decoded in part."""
        text = "a header list that is too large, before the settings are acknowledged"
        return LargeListError() if self._without_table else BlockError(text)

    def _keep(self, table: dict[bytes, _T], block: bytes, value: _T) -> None:
        """Remember what equal bytes mean, in place of the oldest."""
        if self._without_table and len(block) <= limits.CACHED_BLOCK_BYTES:
            if len(table) >= limits.CACHED_BLOCKS:
                del table[next(iter(table))]
            table[block] = value


def _parts(block: bytes) -> list[bytes]:
    """Split a block into its fields (RFC 7541, 6), or into nothing if one has an unusual form.

    Requests of one client differ in few fields, such as a trace's id; the others are decoded once for all.
    """
    parts, at, end = [], 0, len(block)
    while at < end:
        start, first = at, block[at]
        at += 1
        if first < _INDEXED:
            mask = 0x3F if first & _INCREMENTAL else 0x0F
            if first & 0xE0 == _SIZE_UPDATE:
                return []
            if first & mask == mask:  # The index has a second byte.
                if at >= end or block[at] & 0x80:
                    return []
                at += 1
            for _ in range(1 if first & mask else 2):
                if at >= end or block[at] & 0x7F == 0x7F:
                    return []
                at += 1 + (block[at] & 0x7F)
        if at > end:
            return []
        parts.append(block[start:at])
    return parts
