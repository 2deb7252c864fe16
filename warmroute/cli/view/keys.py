"""What keys do: a pure step from one state of the screen to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEQUENCES: Final = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1bOA": "up", "\x1bOB": "down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x1b[7~": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end", "\x1b[8~": "end",
}  # fmt: skip
_NAMES: Final = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x1b": "escape"}
_STEPS: Final = {"up": -1, "k": -1, "down": 1, "j": 1}
_PAGES: Final = {"page up": -1, "page down": 1}
_FAR: Final = {"home": -1, "g": -1, "end": 1, "G": 1}
_LONGEST_FILTER: Final = 60


@dataclass(frozen=True, slots=True)
class Screen:
    """What the user has chosen."""

    sort: str = "endpoint"
    reverse: bool = False
    filter: str = ""
    editing: str | None = None
    """The filter being typed; None when none is."""
    paused: bool = False
    offset: int = 0
    """Rows scrolled past."""
    help: bool = False
    """The keys are shown instead of the table."""
    quit: bool = False
    """Whether the user has quit."""


def decode(data: bytes) -> list[str]:
    """Name the keys in what the terminal sent; sequences of keys that mean nothing here are dropped."""
    text = data.decode("utf-8", "ignore")
    keys = []
    while text:
        if text[0] == "\x1b" and len(text) > 1:
            sequence = next((candidate for candidate in _SEQUENCES if text.startswith(candidate)), None)
            if sequence is not None:
                keys.append(_SEQUENCES[sequence])
            text = text[len(sequence) if sequence else _length(text) :]
            continue
        keys.append(_NAMES.get(text[0], text[0]))
        text = text[1:]
    return keys


def _length(text: str) -> int:
    """Length of an unknown escape sequence: up to its final letter."""
    if text[1] not in "[O":
        return 2
    return next((at + 1 for at, char in enumerate(text) if at > 1 and "@" <= char <= "~"), len(text))


def press(screen: Screen, key: str, sortable: Sequence[str], rows: int, page: int) -> Screen:
    """Return the screen after a key.

    Args:
        screen: the screen before it.
        key: its name, or the character.
        sortable: the columns' names, in order.
        rows: how many there are to scroll.
        page: how many of them are shown at a time.
    """
    if screen.editing is not None:
        return _edit(screen, screen.editing, key)
    if screen.help and key != "q":
        return replace(screen, help=False)
    step = _STEPS.get(key, 0) + page * _PAGES.get(key, 0) + rows * _FAR.get(key, 0)
    if step:
        # The view may have fewer rows now than when they were scrolled past.
        last = max(0, rows - page)
        return replace(screen, offset=max(0, min(min(screen.offset, last) + step, last)))
    match key:
        case "q":
            return replace(screen, quit=True)
        case "s":
            at = sortable.index(screen.sort) if screen.sort in sortable else -1
            return replace(screen, sort=sortable[(at + 1) % len(sortable)])
        case "S":
            return replace(screen, reverse=not screen.reverse)
        case "p":
            return replace(screen, paused=not screen.paused)
        case "/":
            return replace(screen, editing=screen.filter)
        case "?" | "h":
            return replace(screen, help=True)
        case "escape":
            return replace(screen, filter="", offset=0)
    return screen


def _edit(screen: Screen, text: str, key: str) -> Screen:
    if key == "enter":
        return replace(screen, filter=text, editing=None, offset=0)
    if key == "escape":
        return replace(screen, editing=None)
    if key == "backspace":
        return replace(screen, editing=text[:-1])
    if len(key) == 1 and key.isprintable():
        return replace(screen, editing=(text + key)[:_LONGEST_FILTER])
    return screen
