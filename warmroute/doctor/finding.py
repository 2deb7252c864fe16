"""What a rule finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How bad it is; the higher, the worse."""

    NOTE = 1
    """Worth knowing: a missed gain, or harm only in cases that the configuration does not show."""
    WARNING = 2
    """Requests get slow, go to the wrong engine, or fail under load or when a part is away."""
    ERROR = 3
    """Ordinary LLM requests fail or hang."""

    @property
    def word(self) -> str:
        """In small letters, as users write it."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Severity:
        """Find a severity by its word.

        Raises:
            ValueError: there is none of that name.
        """
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"allowed: {', '.join(level.word for level in cls)}") from None


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in a configuration that will hurt."""

    severity: Severity
    where: str
    """Path in the proxy's own terms: `clusters[pool].circuit_breakers`."""
    what: str
    """What stands there, with its figures."""
    rule: str = ""
    """Name of the rule; `Proxy.examine` fills it in."""
    why: str = ""
    """What it does to LLM traffic; empty: the rule's own reason."""
    fix: str = ""
    """What to write instead; empty: the rule's own remedy."""
