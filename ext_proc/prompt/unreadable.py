"""Why a body yields no prompt."""

from __future__ import annotations

from enum import StrEnum


class Unreadable(StrEnum):
    """The reasons, as metrics and spans spell them; the request itself goes on unrouted."""

    NOT_JSON = "not_json"
    NO_PROMPT = "no_prompt"
    """JSON without any text or token ids that an engine would read."""
    WRONG_SHAPE = "wrong_shape"
    """A field that routing reads has a type that no engine accepts."""
    AMBIGUOUS = "ambiguous"
    """Two models, salts or prompts: the engine may read the other one."""
    TOO_DEEP = "too_deep"
    """Nested deeper than is read."""
    COMPRESSED = "compressed"
    """In an unknown or broken content coding."""


class UnreadableError(Exception):
    """Carries the reason to `BodyReader.read`, which always catches it."""

    def __init__(self, reason: Unreadable) -> None:
        super().__init__(reason.value)
        self.reason = reason
