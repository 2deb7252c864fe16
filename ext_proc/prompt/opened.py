"""One container that is open where a body breaks off: where its complete members end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPACE: Final = b" \t\r\n"
_SCALAR: Final = b"0123456789+-.eEtrufalsn"
_QUOTE, _COMMA, _COLON, _OBJECT = b'",:{'
_LOOK_BACK: Final = 64
"""Bytes that are looked at first: white space is short."""


@dataclass(frozen=True, slots=True)
class Open:
    """One container that is open where the body breaks off."""

    start: int
    """Of its opening bracket."""
    is_object: bool
    closed: bytes
    """Its complete members, with the closing bracket that the cut took away."""
    key: str | None
    """Of the member whose value is unfinished, in an object."""
    partial: bytes | None
    """The bytes so far of an unfinished string value, without the opening quote."""


class Backwards:
    """A body with its strings, to look backwards from a position."""

    def __init__(self, body: bytes, quotes: NDArray[np.intp]) -> None:
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
        return Open(start, is_object, body[start:end] + (b"}" if is_object else b"]"), key, partial)

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
            at = self._strip(start, end, _SCALAR)
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

    def _strip(self, start: int, at: int, what: bytes = _SPACE) -> int:
        """Return `at` moved back over white space, at least to the container's first byte."""
        size = _LOOK_BACK
        while at > start + 1:
            begin = max(start + 1, at - size)
            left = self._body[begin:at].rstrip(what)
            if left:
                return begin + len(left)
            at, size = begin, 2 * size
        return at
