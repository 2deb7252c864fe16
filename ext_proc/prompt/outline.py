"""Where the leading part of a JSON value breaks off: the containers open at its end.

Quotes, backslashes and brackets are found in whole columns of bytes, so the work is a few passes over the
body whatever it holds: strings, escapes and brackets never reach Python one by one. What is dense in
structure is read only as far as a fixed number of brackets or values, which bounds the work that follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Positions = NDArray[np.intp]
    Column = NDArray[np.uint8]

MAX_DEPTH: Final = 64
MAX_MARKS: Final = 65_536
"""Brackets or commas that are looked at, those in strings included; what follows them is not read."""
MAX_VALUES: Final = 16_384
"""Values of one prompt that are read: every comma and opening bracket outside strings begins one."""
SMALL_BYTES: Final = 6_144
"""A prompt of fewer bytes is read without counting its values first."""
_STEP_BYTES: Final = 65_536
_READ_DEPTH: Final = 5
"""Body, messages, message, content, part: nothing below is looked into."""

_SPACE: Final = b" \t\r\n"
_SCALAR: Final = b"0123456789+-.eEtrufalsn"
_QUOTE, _COMMA, _COLON, _BACKSLASH, _OBJECT = b'",:\\{'
_CASE: Final = np.uint8(0x20)
"""The bit in which `[` and `{` differ, and `]` and `}`."""
_OPENER, _CLOSER = b"{}"
_CLOSING_BIT: Final = np.uint8(0x04)
"""Set in `]` and `}`, clear in `[` and `{`."""


@dataclass(frozen=True, slots=True)
class Open:
    """One container that is open where the body breaks off."""

    is_object: bool
    closed: bytes
    """Its complete members, with the closing bracket that the cut took away."""
    key: str | None
    """Of the member whose value is unfinished, in an object."""
    partial: bytes | None
    """The bytes so far of an unfinished string value, without the opening quote."""


def open_containers(body: bytes) -> list[Open]:
    """Return the containers open at the end of `body`, outermost first, at most the first five.

    A body with more than `MAX_MARKS` brackets is taken to end there. Empty: the body does not break off
    inside a container. Raises `UnreadableError` where it is no JSON, no container, or too deep.
    """
    quotes: list[Positions] = []
    brackets: list[Positions] = []
    size = in_string = 0
    for at, columns, is_quote in _steps(body):
        folded = columns | _CASE
        marks = np.flatnonzero((folded == _OPENER) | (folded == _CLOSER))
        found = np.flatnonzero(is_quote)
        brackets.append(marks[_outside(marks, found, in_string)] + at)
        quotes.append(found + at)
        in_string ^= found.size & 1
        size += marks.size
        if size > MAX_MARKS:
            body = body[: at + columns.size]
            break
    every_quote = np.concatenate(quotes) if quotes else np.empty(0, np.intp)
    string_start = int(every_quote[-1]) if in_string else None
    starts = _open_starts(body, np.concatenate(brackets) if brackets else np.empty(0, np.intp))
    if not starts:
        if string_start is not None:
            raise UnreadableError(Unreadable.NOT_JSON)
        return []
    if body[: starts[0]].strip(_SPACE):
        raise UnreadableError(Unreadable.NOT_JSON)
    outline = _Outline(body, every_quote)
    opened = []
    for level, start in enumerate(starts[:_READ_DEPTH]):
        child = starts[level + 1] if level + 1 < len(starts) else None
        opened.append(outline.open(start, child, string_start if child is None else None))
    return opened


def is_rich(raw: msgspec.Raw | bytes) -> bool:
    """Tell whether JSON may have more values than are read, by the commas and brackets in it."""
    view = memoryview(raw)
    if len(view) <= SMALL_BYTES:
        return False
    return sum(int(np.count_nonzero(_marks(columns))) for _, columns in _columns(view)) > MAX_VALUES


def leading_values(raw: msgspec.Raw | bytes) -> bytes | None:
    """Return the leading part of JSON that has more values than are read; None: it has not."""
    view = memoryview(raw)
    values = size = in_string = 0
    for at, columns, is_quote in _steps(view):
        marks = np.flatnonzero(_marks(columns))
        quotes = np.flatnonzero(is_quote)
        outside = marks[_outside(marks, quotes, in_string)]
        if values + outside.size > MAX_VALUES:
            return bytes(view[: at + int(outside[MAX_VALUES - values])])
        values += outside.size
        size += marks.size
        in_string ^= quotes.size & 1
        if size > MAX_MARKS:
            end = at + columns.size
            return bytes(view[:end]) if end < len(view) else None
    return None


def _marks(columns: Column) -> NDArray[np.bool_]:
    """Tell where a value may begin, strings included: at a comma or an opening bracket."""
    marks: NDArray[np.bool_] = (columns | _CASE) == _OPENER
    marks |= columns == _COMMA
    return marks


def _columns(body: bytes | memoryview) -> Iterator[tuple[int, Column]]:
    """Yield the body in steps that fit the processor's cache, each with where it begins."""
    columns = np.frombuffer(body, np.uint8)
    for at in range(0, columns.size, _STEP_BYTES):
        yield at, columns[at : at + _STEP_BYTES]


def _steps(body: bytes | memoryview) -> Iterator[tuple[int, Column, NDArray[np.bool_]]]:
    """Yield the body in steps with the quotes that begin or end strings: those that no backslash escapes."""
    escaped = False
    for at, columns in _columns(body):
        is_quote = columns == _QUOTE
        is_backslash = columns == _BACKSLASH
        if escaped:
            is_quote[0] = is_backslash[0] = False
        escaped = False
        if is_backslash.any():
            first, last = is_backslash.copy(), is_backslash.copy()
            first[1:] &= ~is_backslash[:-1]
            last[:-1] &= ~is_backslash[1:]
            ends = np.flatnonzero(last)
            # Behind an odd run of backslashes the next byte is escaped.
            behind = ends[(ends - np.flatnonzero(first)) & 1 == 0] + 1
            if behind.size and behind[-1] == columns.size:
                escaped = True
                behind = behind[:-1]
            is_quote[behind] = False
        yield at, columns, is_quote


def _outside(marks: Positions, quotes: Positions, in_string: int) -> NDArray[np.bool_]:
    """Tell which of the marks stand outside strings: behind an even number of quotes."""
    outside: NDArray[np.bool_] = (np.searchsorted(quotes, marks) + in_string) & 1 == 0
    return outside


def _open_starts(body: bytes, brackets: Positions) -> list[int]:
    """Return where the containers that are open at the end begin. Raises where the first one closes."""
    if not brackets.size:
        return []
    opens = np.frombuffer(body, np.uint8)[brackets] & _CLOSING_BIT == 0
    depths = np.cumsum(np.where(opens, 1, -1).astype(np.int32))
    if not opens[0]:
        raise UnreadableError(Unreadable.NOT_JSON)
    if depths.min() <= 0:
        return []
    if depths.max() > MAX_DEPTH:
        raise UnreadableError(Unreadable.TOO_DEEP)
    # An opening bracket is open at the end if the depth never falls below its own again.
    lowest = np.minimum.accumulate(depths[::-1])[::-1]
    starts: list[int] = brackets[opens & (depths == lowest)].tolist()
    return starts


class _Outline:
    """A body with its strings, to look backwards from a position."""

    def __init__(self, body: bytes, quotes: Positions) -> None:
        self._body = body
        self._quotes = quotes

    def open(self, start: int, child: int | None, string_start: int | None) -> Open:
        """Return what is known of the container at `start`, which `child` or an unfinished string ends."""
        body = self._body
        is_object = body[start] == _OBJECT
        at = child if child is not None else string_start
        key: str | None = None
        partial: bytes | None = None
        if at is None:
            end = self._complete_end(start, is_object=is_object)
        elif is_object and body[self._strip(start, at) - 1] != _COLON:
            end = self._end_before(start, at)  # the unfinished string is a key
        else:
            partial = body[at + 1 :] if child is None else None
            if is_object:
                at, key = self._key_before(start, at)
            end = self._end_before(start, at)
        return Open(is_object, body[start:end] + (b"}" if is_object else b"]"), key, partial)

    def _complete_end(self, start: int, *, is_object: bool) -> int:
        """Return where the complete members end if the body breaks off outside strings and containers."""
        body = self._body
        end = self._strip(start, len(body))
        last = body[end - 1]
        if end == start + 1:
            return end
        if last == _COMMA:
            return end - 1
        if last in b"]}":
            return end
        if last == _QUOTE:
            string = self._string_start(end)
            if is_object and body[self._strip(start, string) - 1] != _COLON:
                return self._end_before(start, string)  # a key without its colon
            return end
        at = end
        if last != _COLON:
            # A scalar may go on behind the cut.
            at = start + 1 + len(body[start + 1 : end].rstrip(_SCALAR))
        if is_object:
            at, _ = self._key_before(start, at)
        return self._end_before(start, at)

    def _end_before(self, start: int, at: int) -> int:
        """Return the end of the complete members of the container at `start`, before a member at `at`."""
        end = self._strip(start, at)
        if end == start + 1:
            return end
        if self._body[end - 1] != _COMMA:
            raise UnreadableError(Unreadable.NOT_JSON)
        return end - 1

    def _key_before(self, start: int, at: int) -> tuple[int, str]:
        """Return where the key of the value at `at` begins, and the key."""
        colon = self._strip(start, at)
        if self._body[colon - 1] != _COLON:
            raise UnreadableError(Unreadable.NOT_JSON)
        end = self._strip(start, colon - 1)
        if self._body[end - 1] != _QUOTE:
            raise UnreadableError(Unreadable.NOT_JSON)
        key_start = self._string_start(end)
        if key_start <= start:
            raise UnreadableError(Unreadable.NOT_JSON)
        return key_start, msgspec.json.decode(self._body[key_start:end], type=str)

    def _string_start(self, end: int) -> int:
        """Return where the string that ends at `end` begins."""
        closing = int(np.searchsorted(self._quotes, end - 1))
        if not closing or closing >= self._quotes.size or self._quotes[closing] != end - 1:
            raise UnreadableError(Unreadable.NOT_JSON)
        return int(self._quotes[closing - 1])

    def _strip(self, start: int, at: int) -> int:
        """Return `at` moved back over white space, at least to the container's first byte."""
        return start + 1 + len(self._body[start + 1 : at].rstrip(_SPACE))
