"""Where the leading part of a JSON body breaks off: the containers open at its end.

Escapes are blanked first, so every quote left opens or closes a string. Then one pass of a regular expression
without backtracking goes over strings, scalars and containers that hold no further container; only the
other brackets reach Python. The work is linear in the body's length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from ext_proc.prompt.unreadable import Unreadable, UnreadableError

MAX_DEPTH: Final = 64
MAX_BRACKETS: Final = 32_768
"""Brackets that reach Python, about 10 ms of work; chat bodies of half a megabyte have hundreds."""
_READ_DEPTH: Final = 5
"""Body, messages, message, content, part: nothing below is looked into."""

_BLANK: Final = b"."
_CLASSES: Final = bytes(byte if byte in b'"[]{}' else _BLANK[0] for byte in range(256))
_FLAT: Final = rb'(?:\.++|"[^"]*+")*+'
_LEAF: Final = rb"\[" + _FLAT + rb"\]|\{" + _FLAT + rb"\}"
# A lone quote is a string that does not end; with it or the end of the body as last resort, the pattern
# matches wherever it is tried, so the search never walks forward by single bytes.
_NEXT: Final = re.compile(rb'(?:\.++|"[^"]*+"|' + _LEAF + rb')*+([\[\]{}"]|\Z)')
_SPACE: Final = b" \t\r\n"
_SCALAR: Final = b"0123456789+-.eEtrufalsn"
_QUOTE, _COMMA, _COLON, _BACKSLASH, _LIST, _OBJECT = b'",:\\[{'
_CLOSER: Final = {_LIST: b"]", _OBJECT: b"}"}
_OPENER: Final = {b"]": _LIST, b"}": _OBJECT}


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

    Empty: the body does not break off inside a container. Raises `UnreadableError` where it is no JSON,
    not an object, or too deep.
    """
    starts, string_start = _scan(body)
    if not starts:
        return []
    if body[: starts[0]].strip(_SPACE):
        raise UnreadableError(Unreadable.NOT_JSON)
    if body[starts[0]] != _OBJECT:
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    opened = []
    for level, start in enumerate(starts[:_READ_DEPTH]):
        child = starts[level + 1] if level + 1 < len(starts) else None
        opened.append(_open(body, start, child, string_start if child is None else None))
    return opened


def _scan(body: bytes) -> tuple[list[int], int | None]:
    """Return where the open containers begin, and where an unfinished string does."""
    starts: list[int] = []
    # Pairs of backslashes go first: a quote behind one of them ends its string.
    classes = body.replace(rb"\\", b"..").replace(rb"\"", b"..").translate(_CLASSES)
    for count, match in enumerate(_NEXT.finditer(classes)):
        token = match.group(1)
        if not token:
            return starts, None
        at = match.end() - 1
        if token == b'"':
            if not starts:
                raise UnreadableError(Unreadable.NOT_JSON)
            return starts, at
        opener = _OPENER.get(token)
        if opener is None:
            starts.append(at)
            if len(starts) > MAX_DEPTH or count > MAX_BRACKETS:
                raise UnreadableError(Unreadable.TOO_DEEP)
            continue
        if not starts or body[starts.pop()] != opener:
            raise UnreadableError(Unreadable.NOT_JSON)
        if not starts:
            return starts, None
    return starts, None


def _open(body: bytes, start: int, child: int | None, string_start: int | None) -> Open:
    is_object = body[start] == _OBJECT
    at = child if child is not None else string_start
    key: str | None = None
    partial: bytes | None = None
    if at is None:
        end = _complete_end(body, start, is_object=is_object)
    elif is_object and body[_strip(body, start, at) - 1] != _COLON:
        end = _end_before(body, start, at)  # the unfinished string is a key
    else:
        partial = body[at + 1 :] if child is None else None
        if is_object:
            at, key = _key_before(body, start, at)
        end = _end_before(body, start, at)
    return Open(is_object, body[start:end] + _CLOSER[body[start]], key, partial)


def _complete_end(body: bytes, start: int, *, is_object: bool) -> int:
    """Return where the complete members end if the body breaks off outside strings and inner containers."""
    end = _strip(body, start, len(body))
    last = body[end - 1]
    if end == start + 1:
        return end
    if last == _COMMA:
        return end - 1
    if last in b"]}":
        return end
    if last == _QUOTE:
        string = _string_start(body, start, end)
        if is_object and body[_strip(body, start, string) - 1] != _COLON:
            return _end_before(body, start, string)  # a key without its colon
        return end
    at = end
    if last != _COLON:
        # A scalar may go on behind the cut.
        at = start + 1 + len(body[start + 1 : end].rstrip(_SCALAR))
    if is_object:
        at, _ = _key_before(body, start, at)
    return _end_before(body, start, at)


def _end_before(body: bytes, start: int, at: int) -> int:
    """Return the end of the complete members of the container at `start`, before a member at `at`."""
    end = _strip(body, start, at)
    if end == start + 1:
        return end
    if body[end - 1] != _COMMA:
        raise UnreadableError(Unreadable.NOT_JSON)
    return end - 1


def _key_before(body: bytes, start: int, at: int) -> tuple[int, str]:
    """Return where the key of the value at `at` begins, and the key."""
    colon = _strip(body, start, at)
    if body[colon - 1] != _COLON:
        raise UnreadableError(Unreadable.NOT_JSON)
    end = _strip(body, start, colon - 1)
    if body[end - 1] != _QUOTE:
        raise UnreadableError(Unreadable.NOT_JSON)
    key_start = _string_start(body, start, end)
    return key_start, msgspec.json.decode(body[key_start:end], type=str)


def _string_start(body: bytes, start: int, end: int) -> int:
    """Return where the string that ends at `end` begins: at the nearest quote that is not escaped."""
    at = end - 1
    while (at := body.rfind(b'"', start, at)) >= 0:
        before = at
        while body[before - 1] == _BACKSLASH:
            before -= 1
        if (at - before) % 2 == 0:
            return at
    raise UnreadableError(Unreadable.NOT_JSON)


def _strip(body: bytes, start: int, at: int) -> int:
    """Return `at` moved back over white space, at least to the container's first byte."""
    return start + 1 + len(body[start + 1 : at].rstrip(_SPACE))
