"""Content codings undone for inspection only: the leading decoded bytes, never more than a limit.

Output is bounded by the limit, memory by the codings' windows, and work by `late`, a check after each
step: a few kilobytes of deflate or brotli can be made to cost a hundred times what they cost by themselves,
so bytes alone bound no time. The body that is forwarded stays as it came.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import brotli

from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN: Final = frozenset({"", "identity"})
MAX_CODINGS: Final = 4
"""Stacked codings that are undone, the outermost being the last named."""
STEP_BYTES: Final = 2048
"""Encoded bytes of one step."""
STEP_OUTPUT_BYTES: Final = 65_536
"""About what one step yields at most."""
ZSTD_WINDOW_LOG: Final = 23
"""8 MiB, which RFC 8878 asks every decoder to support; frames that need more are refused."""
DECODE_SECONDS: Final = 0.0015
"""What a caller on an event loop grants before it is late; 400 KB of text take about as long."""
_FAULTS: Final = (zlib.error, brotli.error, zstd.ZstdError, EOFError, MemoryError)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Leading decoded bytes."""

    body: bytes
    complete: bool
    """Whether they are all there is."""


class _Coding(Protocol):
    """One coding's decoder: fed in steps, it yields a bounded part of the output each time."""

    ended: bool
    """At the end of a member or frame: what is cut off here is whole."""

    def step(self, data: bytes) -> bytes:
        """Return output, of `data`, or of earlier input if `data` is empty."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether the next step needs data; otherwise it has more output."""
        ...


class _Zlib:
    """gzip, or deflate with and without zlib's header. Members may follow one another."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._decoder = zlib.decompressobj(31 if gzip else 15)
        self._headless = gzip
        self._rest = b""
        self.ended = True

    @property
    def needs_input(self) -> bool:
        return not self._rest

    def step(self, data: bytes) -> bytes:
        data = self._rest + data
        if self._decoder.eof:
            if not self._gzip:
                raise UnreadableError(Unreadable.COMPRESSED)
            self._decoder = zlib.decompressobj(31)
        try:
            output = self._decoder.decompress(data, STEP_OUTPUT_BYTES)
        except zlib.error:
            if self._headless:
                raise
            # Some clients' deflate lacks zlib's header.
            self._decoder = zlib.decompressobj(-15)
            output = self._decoder.decompress(data, STEP_OUTPUT_BYTES)
        self._headless = True
        self._rest = self._decoder.unused_data or self._decoder.unconsumed_tail
        self.ended = self._decoder.eof and not self._rest
        return output


class _Brotli:
    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()
        self.ended = True

    @property
    def needs_input(self) -> bool:
        return bool(self._decoder.can_accept_more_data())

    def step(self, data: bytes) -> bytes:
        if data and self._decoder.is_finished():
            raise UnreadableError(Unreadable.COMPRESSED)
        output: bytes = self._decoder.process(data, output_buffer_limit=STEP_OUTPUT_BYTES)
        self.ended = self._decoder.is_finished()
        return output


class _Zstd:
    """Frames may follow one another; checksums are the engine's business."""

    def __init__(self) -> None:
        self._decoder = self._new()
        self._rest = b""
        self.ended = True

    @staticmethod
    def _new() -> zstd.ZstdDecompressor:
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})

    @property
    def needs_input(self) -> bool:
        return not self._rest and (self._decoder.eof or self._decoder.needs_input)

    def step(self, data: bytes) -> bytes:
        data, self._rest = self._rest + data, b""
        if self._decoder.eof:
            if not data:
                return b""
            self._decoder = self._new()
        output = self._decoder.decompress(data, STEP_OUTPUT_BYTES)
        self._rest = self._decoder.unused_data if self._decoder.eof else b""
        self.ended = self._decoder.eof and not self._rest
        return output


_CODINGS: Final[dict[str, Callable[[], _Coding]]] = {
    "gzip": lambda: _Zlib(gzip=True),
    "x-gzip": lambda: _Zlib(gzip=True),
    "deflate": lambda: _Zlib(gzip=False),
    "br": _Brotli,
    "zstd": _Zstd,
}


def decode(
    body: bytes,
    content_encoding: str,
    limit: int,
    *,
    complete: bool = True,
    late: Callable[[], bool] | None = None,
) -> Decoded | Unreadable:
    """Undo the codings that `content_encoding` lists. Never raises.

    At most `limit` bytes, which are the whole body only where `complete` says so. A coding that ends too
    early is broken if the body is `complete`; of the leading part of a body what can be decoded is.
    """
    names = [name.strip().lower() for name in content_encoding.split(",")]
    names = [name for name in names if name not in PLAIN]
    if len(names) > MAX_CODINGS or not _CODINGS.keys() >= set(names):
        return Unreadable.COMPRESSED
    for name in reversed(names):
        try:
            decoded = _undo(_CODINGS[name](), body, limit, complete=complete, late=late)
        except _FAULTS:
            return Unreadable.COMPRESSED
        except UnreadableError as error:
            return error.reason
        body, complete = decoded.body, decoded.complete
    return Decoded(body[:limit], complete and len(body) <= limit)


def _undo(
    coding: _Coding, body: bytes, limit: int, *, complete: bool, late: Callable[[], bool] | None
) -> Decoded:
    """Undo one coding. Raises what its library raises, and where the coding ends too early."""
    output: list[bytes] = []
    size = at = idle = 0
    while at < len(body) or not coding.needs_input:
        if size > limit or (late is not None and late()):
            return _leading(output, limit)
        data = b""
        if coding.needs_input:
            data = body[at : at + STEP_BYTES]
            at += len(data)
        piece = coding.step(data)
        idle = 0 if piece or data else idle + 1
        if idle > STEP_BYTES:
            raise UnreadableError(Unreadable.COMPRESSED)
        output.append(piece)
        size += len(piece)
    if not coding.ended:
        if complete:
            raise UnreadableError(Unreadable.COMPRESSED)
        return _leading(output, limit)
    return Decoded(b"".join(output)[: limit + 1], complete and size <= limit)


def _leading(output: list[bytes], limit: int) -> Decoded:
    return Decoded(b"".join(output)[:limit], complete=False)
