"""Tools of a chat as templates get them, and as they write them: the same in each turn, so made once.

An agent's hundred tools are most of its chat's bytes; to decode and write them takes longer than all else.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Final

import msgspec
from xxhash import xxh3_128_digest

MAX_BYTES: Final = 1024 * 1024
"""Of remembered tools as they stand in bodies; decoded and written they take some ten times that."""
_MAX_FORMS: Final = 4
_spelled: Final = json.JSONEncoder(ensure_ascii=False).encode
_ascii: Final = json.JSONEncoder().encode
_value: Final = msgspec.json.Decoder().decode


class TemplateFailedError(Exception):
    """The chat cannot be rendered here."""


class _Tool(dict[str, Any]):
    """A tool that remembers how it was written. Templates cannot change it: their sandbox forbids that."""

    __slots__ = ("_written",)

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(told)
        # Underscored, so that no template sees it.
        self._written: dict[tuple[bool, int | None], str] = {}


class Tools(list[_Tool]):
    """A request's tools, with their fields in the order in which engines write them."""

    __slots__ = ("_written",)

    def __init__(self, told: object) -> None:
        """Take over a decoded list.

        Raises:
            TemplateFailedError: these are no tools.
        """
        if not isinstance(told, list):
            raise TemplateFailedError
        super().__init__(map(_ordered, told))
        # Underscored, so that no template sees it.
        self._written: dict[tuple[bool, int | None], str] = {}


class ToolsMemory:
    """Tools by the bytes in which they stood in a body, the ones used longest ago first. Single-threaded."""

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, tuple[Tools, int]] = OrderedDict()
        self._nbytes = 0

    def of(self, raw: msgspec.Raw) -> Tools | None:
        """Return tools; None for none. Raises as `Tools` does, and as JSON's decoder does."""
        size = len(memoryview(raw))
        digest = xxh3_128_digest(raw)
        held = self._held.get(digest)
        if held is not None:
            self._held.move_to_end(digest)
            return held[0]
        told = _value(raw)
        if not told:
            return None
        tools = Tools(told)
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
        if len(written) < _MAX_FORMS:
            written[form] = told
    return told


def _text(value: object, ensure_ascii: bool, indent: int | None) -> str:  # noqa: FBT001
    told = (_ascii if ensure_ascii else _spelled)(value)
    # The same as `json.dumps` writes, whose indents are made by Python code that takes six times as long.
    return told if indent is None else msgspec.json.format(told, indent=indent)


def _ordered(tool: object) -> _Tool:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        raise TemplateFailedError
    ahead = {name: function[name] for name in ("name", "description", "parameters") if name in function}
    return _Tool({"type": "function", "function": {**ahead, **function}})
