"""Responses until they are answered, and the answers.

An answer to SotW's response covers those before it: Envoy may answer several at once, and its complaint then
may be about any of them. An answer of delta is about its own response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ERROR_CHARS: Final = 500
_MAX_UNANSWERED: Final = 16
"""Answers older than this many responses are not matched any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's answer to one response: `error` is None for an ACK."""

    type_url: str
    version: str
    error: str | None
    name: str = ""
    """Of the resource that a NACK is about; empty: of one that came with others."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What is remembered of a response."""

    version: str
    """Of the type."""
    carried: Mapping[str, str]
    """Name to version; empty: of what is taken away. Nothing where a response always carries everything."""

    @property
    def repeatable(self) -> bool:
        """Whether a NACK may be about one resource and cost others, which then are to come again."""
        return len(self.carried) > 1 and any(self.carried.values())


class Unanswered(dict[str, Sent]):
    """Nonce to response, oldest first. `cumulative`: an answer covers what was sent before."""

    def __init__(self, *, cumulative: bool) -> None:
        super().__init__()
        self.cumulative = cumulative

    def add(self, nonce: str, sent: Sent) -> None:
        """Note a response; of too many the oldest is forgotten."""
        if len(self) >= _MAX_UNANSWERED:
            del self[next(iter(self))]
        self[nonce] = sent

    def take(self, nonce: str) -> list[Sent]:
        """Remove and return what an answer covers, its own response last; empty: it answers nothing."""
        if nonce not in self:
            return []
        if not self.cumulative:
            return [self.pop(nonce)]
        covered = []
        for key in list(self):
            covered.append(self.pop(key))
            if key == nonce:
                break
        return covered
