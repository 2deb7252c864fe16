"""A chat's tools as templates get and write them. They are the same in each turn, so both are cached.

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
"""Of cached tools, decoded and written, at most; usually a third of it is in use."""
_BYTES_PER_MARK: Final = 200
"""Of a value with its place in a list or an object, without its characters."""
_BYTES_PER_TOOL: Final = 1024
_WIDEST: Final = 4
"""Bytes of a character in a string with one outside Unicode's basic plane."""
_WRITTEN_RATIO: Final = 12
"""Bytes of tools as written to bytes in the body, at most: three times the characters, at the widest.

Without a limit, nested lists that a template indents are thousands of times as long as in the body.
"""
MAX_INDENTED_DEPTH: Final = 64
"""Of lists and objects that are written with an indent, which makes each line as long as it is deep."""
_MAX_FORMS: Final = 4
_COMMA, _OPENER = b",{"
_CASE: Final = np.uint8(0x20)
"""The bit in which `[` and `{` differ."""
_plain: Final = json.JSONEncoder(ensure_ascii=False).encode
_ascii: Final = json.JSONEncoder().encode
_value: Final = msgspec.json.Decoder().decode


class TemplateFailedError(Exception):
    """The chat cannot be rendered here."""


class _Budget:
    """The rest of the bytes that one request's written tools may take in the cache."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class _Tool(dict[str, Any]):
    """A tool with its written forms. Templates cannot change it: their sandbox forbids that."""

    # Underscored, so that no template sees them.
    __slots__ = ("_budget", "_written")

    def __init__(self, fields: dict[str, Any], budget: _Budget) -> None:
        super().__init__(fields)
        self._budget = budget
        self._written: dict[tuple[bool, int | None], str] = {}


class Tools(list[_Tool]):
    """A request's tools, with their fields in the order in which engines write them."""

    __slots__ = ("_budget", "_written")

    def __init__(self, tools: object, body_bytes: int = 0) -> None:
        """Take a decoded list, of `body_bytes` in the body; 0 if nothing written is to be cached.

        Raises:
            TemplateFailedError: these are no tools.
        """
        if not isinstance(tools, list):
            raise TemplateFailedError
        cached_bytes = body_bytes * _WRITTEN_RATIO + len(tools) * _BYTES_PER_TOOL if body_bytes else 0
        self._budget = budget = _Budget(cached_bytes)
        super().__init__(_Tool(_ordered(tool), budget) for tool in tools)
        self._written: dict[tuple[bool, int | None], str] = {}


class ToolsCache:
    """Tools by their bytes in a body, the least recently used first. Single-threaded."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[Tools, int]] = OrderedDict()
        self._nbytes = 0

    def of(self, raw: msgspec.Raw) -> Tools | None:
        """Return tools; None for none. Raises as `Tools` does, and as JSON's decoder does."""
        digest = xxh3_128_digest(raw)
        entry = self._entries.get(digest)
        if entry is not None:
            self._entries.move_to_end(digest)
            return entry[0]
        value = _value(raw)
        if not value:
            return None
        body_bytes = len(memoryview(raw))
        tools = Tools(value, body_bytes)
        # Later forms take no more than the budget, so it counts from the beginning.
        size = body_bytes * _WIDEST + marks_of(raw) * _BYTES_PER_MARK + len(tools) * _BYTES_PER_TOOL
        size += tools._budget.left
        self._entries[digest] = tools, size
        self._nbytes += size
        while self._nbytes > MAX_BYTES:
            self._nbytes -= self._entries.popitem(last=False)[1][1]
        return tools


def to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:  # noqa: FBT001 - Hugging Face's signature
    """Write a value as templates' `tojson` does in Hugging Face's library."""
    if not isinstance(value, _Tool | Tools):
        return _text(value, ensure_ascii, indent)
    form = ensure_ascii, indent
    text = value._written.get(form)
    if text is None:
        text = _text(value, ensure_ascii, indent)
        size = sys.getsizeof(text)
        if len(value._written) < _MAX_FORMS and size <= value._budget.left:
            value._budget.left -= size
            value._written[form] = text
    return text


def marks_of(raw: msgspec.Raw) -> int:
    """Count commas and opening brackets, those in strings included."""
    columns = np.frombuffer(raw, np.uint8)
    return int(np.count_nonzero(columns == _COMMA) + np.count_nonzero(columns | _CASE == _OPENER))


def _text(value: object, ensure_ascii: bool, indent: int | None) -> str:  # noqa: FBT001
    if indent is not None and _is_deep(value):
        raise TemplateFailedError
    if indent is not None and indent < 1:
        # One line an item, which msgspec does not support.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
    text = (_ascii if ensure_ascii else _plain)(value)
    # Equal to the output of `json.dumps`, whose indents are made by Python code that takes six times as long.
    return text if indent is None else msgspec.json.format(text, indent=indent)


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_INDENTED_DEPTH):
        if not level:
            return False
        nested = [each for each in level if isinstance(each, list | dict)]
        level = [item for each in nested for item in (each.values() if isinstance(each, dict) else each)]
    return any(isinstance(each, list | dict) for each in level)


def _ordered(tool: object) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        raise TemplateFailedError
    first = {name: function[name] for name in ("name", "description", "parameters") if name in function}
    return {"type": "function", "function": {**first, **function}}
