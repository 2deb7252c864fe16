"""Tools of a chat as templates get them, and as they write them: the same in each turn, so made once.

An agent's hundred tools are most of its chat's bytes; to decode and write them takes longer than all else.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from typing import Any, Final

import msgspec
import numpy as np
from xxhash import xxh3_128_digest

MAX_BYTES: Final = 32 * 1024 * 1024
"""What remembered tools take at the most, decoded and written; most take a third of what is kept for them."""
_BYTES_PER_MARK: Final = 200
"""Of a value with its place in a list or an object, beside its characters."""
_BYTES_PER_TOOL: Final = 1024
_WIDEST: Final = 4
"""Bytes of a character in a string that has one outside Unicode's basic plane."""
_WRITTEN_RATIO: Final = 12
"""Bytes to remember of tools as written, to those in the body: three times the characters, at the widest.

Without an end to it, lists in lists that a template indents are thousands of times what the body had.
"""
MAX_INDENTED_DEPTH: Final = 64
"""Of lists and objects that are written with an indent, which makes each line as long as it is deep."""
_MAX_FORMS: Final = 4
_COMMA, _OPENER = b",{"
_CASE: Final = np.uint8(0x20)
"""The bit in which `[` and `{` differ."""
_spelled: Final = json.JSONEncoder(ensure_ascii=False).encode
_ascii: Final = json.JSONEncoder().encode
_value: Final = msgspec.json.Decoder().decode


class TemplateFailedError(Exception):
    """The chat cannot be rendered here."""


class _Room:
    """How many more bytes of written text may be remembered of a request's tools."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class _Tool(dict[str, Any]):
    """A tool that remembers how it was written. Templates cannot change it: their sandbox forbids that."""

    __slots__ = ("_room", "_written")

    def __init__(self, told: dict[str, Any], room: _Room) -> None:
        super().__init__(told)
        # Underscored, so that no template sees it.
        self._room = room
        self._written: dict[tuple[bool, int | None], str] = {}


class Tools(list[_Tool]):
    """A request's tools, with their fields in the order in which engines write them."""

    __slots__ = ("_room", "_written")

    def __init__(self, told: object, in_body: int = 0) -> None:
        """Take over a decoded list, of which so many bytes stood in the body; 0 if it is not to last.

        Raises:
            TemplateFailedError: these are no tools.
        """
        if not isinstance(told, list):
            raise TemplateFailedError
        # Underscored, so that no template sees it.
        self._room = room = _Room(in_body and in_body * _WRITTEN_RATIO + len(told) * _BYTES_PER_TOOL)
        super().__init__(_Tool(_ordered(tool), room) for tool in told)
        self._written: dict[tuple[bool, int | None], str] = {}


class ToolsMemory:
    """Tools by the bytes in which they stood in a body, the ones used longest ago first. Single-threaded."""

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, tuple[Tools, int]] = OrderedDict()
        self._nbytes = 0

    def of(self, raw: msgspec.Raw) -> Tools | None:
        """Return tools; None for none. Raises as `Tools` does, and as JSON's decoder does."""
        digest = xxh3_128_digest(raw)
        held = self._held.get(digest)
        if held is not None:
            self._held.move_to_end(digest)
            return held[0]
        told = _value(raw)
        if not told:
            return None
        in_body = len(memoryview(raw))
        tools = Tools(told, in_body)
        # The room for what is not written yet is taken at once, so that nothing has to be counted later.
        size = in_body * _WIDEST + marks_of(raw) * _BYTES_PER_MARK + len(tools) * _BYTES_PER_TOOL
        size += tools._room.left
        self._held[digest] = tools, size
        self._nbytes += size
        while self._nbytes > MAX_BYTES:
            self._nbytes -= self._held.popitem(last=False)[1][1]
        return tools


def to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:  # noqa: FBT001 - Hugging Face's signature
    """Write a value as templates' `tojson` does in Hugging Face's library."""
    if not isinstance(value, _Tool | Tools):
        return _text(value, ensure_ascii, indent)
    form = ensure_ascii, indent
    written = value._written
    told = written.get(form)
    if told is None:
        told = _text(value, ensure_ascii, indent)
        size = sys.getsizeof(told)
        if len(written) < _MAX_FORMS and size <= value._room.left:
            value._room.left -= size
            written[form] = told
    return told


def marks_of(raw: msgspec.Raw) -> int:
    """Count commas and opening brackets, those in strings included."""
    columns = np.frombuffer(raw, np.uint8)
    return int(np.count_nonzero(columns == _COMMA) + np.count_nonzero(columns | _CASE == _OPENER))


def _text(value: object, ensure_ascii: bool, indent: int | None) -> str:  # noqa: FBT001
    if indent is not None and _is_deep(value):
        raise TemplateFailedError
    if indent is not None and indent < 1:
        # One line an item, which msgspec does not know.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
    told = (_ascii if ensure_ascii else _spelled)(value)
    # The same as `json.dumps` writes, whose indents are made by Python code that takes six times as long.
    return told if indent is None else msgspec.json.format(told, indent=indent)


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_INDENTED_DEPTH):
        if not level:
            return False
        holders = [each for each in level if isinstance(each, list | dict)]
        level = [held for each in holders for held in (each.values() if isinstance(each, dict) else each)]
    return any(isinstance(each, list | dict) for each in level)


def _ordered(tool: object) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        raise TemplateFailedError
    ahead = {name: function[name] for name in ("name", "description", "parameters") if name in function}
    return {"type": "function", "function": {**ahead, **function}}
