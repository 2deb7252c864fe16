"""The headers that the HTTP/1.1 fallback passes on: Envoy can only remove headers, so it removes all others.

"All names but these" is one regular expression over the tree of their letters; Envoy refuses programs of more
than 100 instructions by default, so the tree is cut into several of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FIRST, _LAST = "!", "~"
"""Header names are of these characters; naming them keeps the programs small, which `.` would not."""
_ANY: Final = f"[{_FIRST}-{_LAST}]*"
_MOST_STEPS: Final = 84
"""Instructions of a program."""
_PER_STEP: Final = 0.75
"""RE2 instructions for each step that `_steps` counts."""
_MOST_PREFIX: Final = 40
"""Longer names count as equal if they begin alike."""
_END: Final = ""

_Tree = dict[str, "_Tree"]


def all_but(names: Iterable[str]) -> tuple[str, ...]:
    """Return regular expressions such that one of them fully matches every header name not in `names`.

    Names are in small letters, as Envoy holds them; those that begin with a colon (`:path`) are no headers.
    """
    return tuple(_programs("", _tree(names)))


def _tree(names: Iterable[str]) -> _Tree:
    root: _Tree = {}
    for name in sorted(set(names)):
        node = root
        for letter in name:
            node = node.setdefault(letter, {})
        node[_END] = {}
    return root


def _programs(prefix: str, node: _Tree) -> Iterator[str]:
    if prefix and len(prefix) + _PER_STEP * _steps(node) <= _MOST_STEPS:
        yield re.escape(prefix) + _whole(node)
        return
    # Too large: one expression for names that leave the tree here, then one per branch.
    letters = [*filter(None, node), *([] if prefix else [":"])]
    yield re.escape(prefix) + _alternatives([_leaving(letters)], optional=_END not in node and bool(prefix))
    for letter, child in node.items():
        if letter and len(prefix) < _MOST_PREFIX:
            yield from _programs(prefix + letter, child)


def _whole(node: _Tree) -> str:
    branches = [re.escape(letter) + _whole(child) for letter, child in node.items() if letter]
    return _alternatives([_leaving(list(filter(None, node))), *branches], optional=_END not in node)


def _alternatives(parts: list[str], *, optional: bool) -> str:
    joined = f"(?:{'|'.join(parts)})"
    return f"{joined}?" if optional else joined


def _leaving(letters: list[str]) -> str:
    """One character that is none of these letters, and whatever follows."""
    return f"{_others(letters)}{_ANY}"


def _others(letters: list[str]) -> str:
    ranges = []
    start = ord(_FIRST)
    for code in [*sorted(map(ord, letters)), ord(_LAST) + 1]:
        if start < code:
            ranges.append(f"\\x{start:02x}-\\x{code - 1:02x}")
        start = code + 1
    return f"[{''.join(ranges)}]"


def _steps(node: _Tree) -> int:
    """An upper bound of what RE2 makes of the branch: each letter, choice, range and loop is one."""
    kids = [child for letter, child in node.items() if letter]
    return 5 + len(kids) + sum(2 + _steps(child) for child in kids)
