"""How long to wait before a worker that ended is started again. Pure."""

from __future__ import annotations

from typing import Final

FIRST_SECONDS: Final = 0.1
MOST_SECONDS: Final = 5.0
SETTLED_SECONDS: Final = 10.0
"""A worker that lived so long did not fail at its start."""
HOPELESS_AFTER: Final = 3
"""Failed starts in a row after which one more is not expected to help."""


class Backoff:
    """One worker's starts. The first restart after a settled life is immediate."""

    def __init__(self) -> None:
        self.failed_starts = 0
        """In a row."""

    def ended(self, lived_seconds: float, *, in_order: bool) -> float:
        """Note an end and return the seconds to wait; `in_order`: it drained on request."""
        if in_order or lived_seconds >= SETTLED_SECONDS:
            self.failed_starts = 0
            return 0.0
        self.failed_starts += 1
        return float(min(MOST_SECONDS, FIRST_SECONDS * 2 ** (self.failed_starts - 1)))

    @property
    def hopeless(self) -> bool:
        """Whether it fails at every start."""
        return self.failed_starts >= HOPELESS_AFTER
