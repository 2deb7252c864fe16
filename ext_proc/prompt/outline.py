"""The containers that are open at the end of a JSON value's leading part.

numpy finds quotes, backslashes and brackets in columns of bytes, so the work is a few passes over any body:
strings, escapes and brackets never reach Python one by one. The scan stops at a fixed number of brackets or
values, which bounds the work that follows. docs/decisions/0026 compares this with a parser of partial JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Positions = NDArray[np.intp]
    Column = NDArray[np.uint8]

MAX_DEPTH: Final = 64
MAX_MARKS: Final = 24_576
"""Brackets or commas of a scan, those in strings included, and four times as many quotes.

The scan ends behind them. Source code has about 30,000 in a megabyte.
"""
MAX_COLONS: Final = 49_152
"""Colons of a body that is read, those in strings included: a member has one."""
MAX_OPENERS: Final = 24_576
"""Opening brackets of a body that is read, those in strings included: a list or an object has one."""
MAX_VALUES: Final = 4096
"""Values of one prompt that are read: every comma and opening bracket outside strings begins one."""
_STEP_BYTES: Final = 65_536
_FIRST_STEP_BYTES: Final = 16_384
"""Small, because the densest bodies are read no further."""
_READ_DEPTH: Final = 5
"""Body, messages, message, content, part: nothing deeper is read."""

_SPACE: Final = b" \t\r\n"
_QUOTE, _COMMA, _COLON, _BACKSLASH, _OBJECT = b'",:\\{'
_CASE: Final = np.uint8(0x20)
"""The bit in which `[` and `{` differ, and `]` and `}`."""
_OPENER, _CLOSER = b"{}"
_FOLD: Final = np.uint8(0x61)
_MOST_AT_ONCE: Final = 1 << 20
"""Bytes of a body whose columns are compared as a whole."""
_BLANK, _NINE, _TRUE_END, _NULL_END = b" 9el"
_CLOSING_BIT: Final = np.uint8(0x04)
"""Set in `]` and `}`, clear in `[` and `{`."""
_TO_CARRY, _TO_ELEVEN = np.uint8(5), np.uint8(0x0E)
"""Added to a byte that ends in b or c, the first leaves none of the bits of the second."""
_SURELY: Final = 12
"""A body with more marks than 12 times `MAX_VALUES` is rich without a closer look."""
_ONE: Final = np.int8(1)
_TWO: Final = np.int8(2)
_KIND: Final = np.uint8(0x44)
"""Both bits are set in closing brackets, one in opening brackets, the other in commas."""
_SCALAR: Final = b"0123456789+-.eEtrufalsn"
_LOOK_BACK: Final = 64
"""Bytes of the first step back: white space is short."""
_NOWHERE: Final = np.empty(0, np.intp)
_FIRST: Final = np.zeros(1, np.intp)


@dataclass(frozen=True, slots=True)
class OpenContainer:
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

    def __init__(self, body: bytes, quotes: Positions) -> None:
        self._body = body
        self._quotes = quotes

    def open(self, start: int, child: int | None, string_start: int | None) -> OpenContainer:
        """Return the container at `start`, which `child` or an unfinished string ends."""
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
        return OpenContainer(start, is_object, body[start:end] + (b"}" if is_object else b"]"), key, partial)

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


class _Scan(NamedTuple):
    """Positions in a body, up to its end or the end of the scan."""

    quotes: Positions
    """Those that begin or end strings."""
    brackets: Positions
    """Those outside strings."""
    end: int


@dataclass(frozen=True, slots=True)
class Outline:
    """A body and what is open at its end."""

    body: bytes
    """As far as the scan went."""
    scan: _Scan
    containers: list[OpenContainer]
    """Outermost first, at most the first five. Empty: the body does not break off inside a container."""

    @property
    def is_rich(self) -> bool:
        """Whether it has more values than are read, or more commas than are counted."""
        columns = np.frombuffer(self.body, np.uint8)
        values = int(np.count_nonzero(columns[self.scan.brackets] & _CLOSING_BIT == 0))
        is_comma = columns == _COMMA
        if values > MAX_VALUES or np.count_nonzero(is_comma) > MAX_MARKS:
            return True
        commas = np.flatnonzero(is_comma)
        values += int(np.count_nonzero(np.searchsorted(self.scan.quotes, commas) & 1 == 0))
        return values > MAX_VALUES

    def leading_values(self, start: int) -> list[OpenContainer] | None:
        """Return `leading_values` of the open list that begins at `start`, without looking at it again."""
        columns = np.frombuffer(self.body, np.uint8)
        commas = np.flatnonzero(columns[start:] == _COMMA) + start
        end = int(commas[MAX_MARKS]) if commas.size > MAX_MARKS else len(self.body)
        commas = commas[:MAX_MARKS]
        commas = commas[np.searchsorted(self.scan.quotes, commas) & 1 == 0]
        brackets = self.scan.brackets[np.searchsorted(self.scan.brackets, start) :]
        values = np.sort(np.concatenate((commas, brackets[columns[brackets] & _CLOSING_BIT == 0])))
        if values.size > MAX_VALUES:
            end = min(end, int(values[MAX_VALUES]))
        if end == len(self.body):
            return None
        quotes, brackets = (
            places[slice(*np.searchsorted(places, (start, end)))] - start for places in self.scan[:2]
        )
        return _open_containers(self.body[start:end], _Scan(quotes, brackets, end - start))


def outline_of(body: bytes) -> Outline:
    """Find the containers open at the end of `body`; with very many brackets, at the end of a leading part.

    Raises `UnreadableError` where it is no JSON, no container, or too deep.
    """
    scan = _scan(body, most_values=None)
    body = body[: scan.end]
    return Outline(body, scan, _open_containers(body, scan))


def leading_values(raw: msgspec.Raw | bytes) -> list[OpenContainer] | None:
    """Return the containers open where a value exceeds the values that are read; None: it does not."""
    scan = _scan(raw, most_values=MAX_VALUES)
    view = memoryview(raw)
    return None if scan.end == len(view) else _open_containers(bytes(view[: scan.end]), scan)


def leading_members(body: bytes, *, sure: bool = True) -> tuple[bytes, bool]:
    """Return a body's leading part with no more colons and brackets than are read, and whether it is rich.

    A rich body may have more values than are read, by the commas and brackets in it; those in strings count
    as well where it need not be `sure`.
    """
    # A list takes three bytes with its comma, which count as two values; few lists are without an end.
    if 2 * len(body) <= 3 * (MAX_VALUES - MAX_DEPTH):
        return body, False
    body_columns = np.frombuffer(body, np.uint8)
    if body_columns.size <= _STEP_BYTES and _surely_poor(body_columns):
        return body, False
    if body_columns.size <= _MOST_AT_ONCE and _has_few_marks(body_columns):
        return body, False
    commas = colons = openers = 0
    for at in range(0, body_columns.size, _STEP_BYTES):
        columns = body_columns[at : at + _STEP_BYTES]
        is_colon, is_opener = columns == _COLON, (columns | _CASE) == _OPENER
        more_colons, more_openers = int(np.count_nonzero(is_colon)), int(np.count_nonzero(is_opener))
        if colons + more_colons > MAX_COLONS or openers + more_openers > MAX_OPENERS:
            ends = [
                int(np.flatnonzero(matches)[room])
                for matches, room in ((is_colon, MAX_COLONS - colons), (is_opener, MAX_OPENERS - openers))
                if room < np.count_nonzero(matches)
            ]
            # What is dense in members counts as rich, whatever its values.
            return body[: at + min(ends)], True
        colons += more_colons
        openers += more_openers
        commas += int(np.count_nonzero(columns == _COMMA))
    marks = commas + openers
    if not sure or marks > _SURELY * MAX_VALUES:
        return body, marks > MAX_VALUES
    return body, marks > MAX_VALUES and _likely_values(body) > MAX_VALUES


def _surely_poor(columns: Column) -> bool:
    """Return whether a body has few commas, brackets and colons, by a quick look that most bodies pass.

    A comma ends in the hexadecimal digit c, an opening bracket in b. Of letters, k and l do.
    """
    others = int(np.count_nonzero((columns + _TO_CARRY) & _TO_ELEVEN))
    if columns.size - others > min(MAX_VALUES, MAX_OPENERS):
        return False
    return columns.size <= MAX_COLONS or int(np.count_nonzero(columns == _COLON)) <= MAX_COLONS


def _has_few_marks(columns: Column) -> bool:
    """Return whether a body has few commas, brackets and colons, by another look: nearly exact, but slower.

    With the bits of `_FOLD`, colons and opening brackets are equal; of letters, z is.
    """
    marks = int(np.count_nonzero(columns == _COMMA))
    return marks + int(np.count_nonzero((columns | _FOLD) == _OPENER)) <= min(
        MAX_VALUES, MAX_OPENERS, MAX_COLONS
    )


def _likely_values(body: bytes) -> int:
    """Return at least the number of values, by what may stand before a comma or bracket outside strings.

    Most commas and brackets of prose and of source code stand behind a letter, where JSON has none.
    """
    likely = 0
    columns = np.frombuffer(body, np.uint8)
    for at in range(1, columns.size, _STEP_BYTES):
        here, before = columns[at : at + _STEP_BYTES], columns[at - 1 : at - 1 + _STEP_BYTES]
        before = before[: here.size]
        folded = before | _CASE
        # White space, a quote or a digit; a closing bracket; the end of true, false or null.
        ends = (before <= _NINE) | (folded == _CLOSER) | (before == _TRUE_END) | (before == _NULL_END)
        begins = (before <= _BLANK) | (folded == _OPENER) | (before == _COLON) | (before == _COMMA)
        likely += int(np.count_nonzero((here == _COMMA) & ends))
        likely += int(np.count_nonzero(((here | _CASE) == _OPENER) & begins))
    return likely + 1


def _scan(body: msgspec.Raw | bytes, *, most_values: int | None) -> _Scan:
    """Find quotes and brackets; stop at the value that is one too many, if values are limited."""
    view = memoryview(body)
    quotes, brackets = [_NOWHERE], [_NOWHERE]
    values = size = in_string = end = 0
    for at, columns, is_quote in _steps(view):
        end = at + columns.size
        folded = columns | _CASE
        is_mark = (folded == _OPENER) | (folded == _CLOSER)
        if most_values is not None:
            is_mark |= columns == _COMMA
        marks, step_quotes = np.flatnonzero(is_mark), np.flatnonzero(is_quote)
        size += marks.size + step_quotes.size // 4
        marks = marks[(np.searchsorted(step_quotes, marks) + in_string) & 1 == 0]
        in_string ^= step_quotes.size & 1
        if most_values is not None:
            kinds = columns[marks] & _KIND
            begins = np.flatnonzero(kinds != _KIND)
            if values + begins.size > most_values:
                last = begins[most_values - values]
                end, marks, kinds = at + int(marks[last]), marks[:last], kinds[:last]
                step_quotes = step_quotes[: np.searchsorted(step_quotes, end - at)]
                size = MAX_MARKS + 1
            values += begins.size
            marks = marks[kinds != _COMMA & _KIND]
        quotes.append(step_quotes + at)
        brackets.append(marks + at)
        if size > MAX_MARKS:
            break
    return _Scan(np.concatenate(quotes), np.concatenate(brackets), end)


def _open_containers(body: bytes, scan: _Scan) -> list[OpenContainer]:
    body = body[: scan.end]
    string_start = int(scan.quotes[-1]) if scan.quotes.size & 1 else None
    starts = _open_starts(body, scan.brackets)
    if not starts:
        if string_start is not None:
            raise UnreadableError(Unreadable.NOT_JSON)
        return []
    if body[: starts[0]].strip(_SPACE):
        raise UnreadableError(Unreadable.NOT_JSON)
    outline = Backwards(body, scan.quotes)
    containers = []
    for level, start in enumerate(starts[:_READ_DEPTH]):
        child = starts[level + 1] if level + 1 < len(starts) else None
        containers.append(outline.open(start, child, string_start if child is None else None))
    return containers


def _steps(body: bytes | memoryview) -> Iterator[tuple[int, Column, NDArray[np.bool_]]]:
    """Yield the body in steps with the quotes that begin or end strings: those that no backslash escapes."""
    body_columns = np.frombuffer(body, np.uint8)
    escaped = False
    at, size = 0, min(_FIRST_STEP_BYTES, _STEP_BYTES)
    while at < body_columns.size:
        columns = body_columns[at : at + size]
        is_quote = columns == _QUOTE
        is_backslash = columns == _BACKSLASH
        if escaped:
            is_quote[0] = is_backslash[0] = False
        escaped = False
        if not (is_backslash[1:] & is_backslash[:-1]).any():
            # Each backslash stands alone, as nearly all do, and escapes the byte behind it.
            is_quote[1:] &= ~is_backslash[:-1]
            escaped = bool(is_backslash[-1])
        else:
            # Where runs of backslashes begin and end, in turn; behind an odd run the next byte is escaped.
            edges = np.flatnonzero(is_backslash[1:] != is_backslash[:-1]) + 1
            if is_backslash[0]:
                edges = np.concatenate((_FIRST, edges))
            if edges.size & 1:
                edges = np.append(edges, columns.size)
            ends = edges[1::2]
            behind = ends[(ends - edges[::2]) & 1 == 1]
            if behind.size and behind[-1] == columns.size:
                escaped = True
                behind = behind[:-1]
            is_quote[behind] = False
        yield at, columns, is_quote
        at += size
        size = min(2 * size, _STEP_BYTES)


def _open_starts(body: bytes, brackets: Positions) -> list[int]:
    """Return where the containers that are open at the end begin. Raises where the first one closes."""
    if not brackets.size:
        return []
    opens = np.frombuffer(body, np.uint8)[brackets] & _CLOSING_BIT == 0
    if not opens[0]:
        raise UnreadableError(Unreadable.NOT_JSON)
    depths = np.cumsum(opens.view(np.int8) * _TWO - _ONE, dtype=np.int32)
    if depths.min() <= 0:
        return []
    if depths.max() > MAX_DEPTH:
        raise UnreadableError(Unreadable.TOO_DEEP)
    # The container that is open at a depth begins behind the last bracket that leaves a lesser depth.
    backwards = depths[::-1]
    deepest = min(int(backwards[0]), _READ_DEPTH + 1)
    behind = [depths.size - int((backwards < depth).argmax()) for depth in range(2, deepest + 1)]
    return [int(brackets[at]) for at in (0, *behind)]
