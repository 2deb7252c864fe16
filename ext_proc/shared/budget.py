"""How many blocks of other workers may be taken over now. Pure."""

from __future__ import annotations


class Budget:
    """A bucket that fills by `per_second` and holds what comes together in one second."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = now

    def left(self, now: float) -> int:
        """How many there are; times are seconds on one steady clock."""
        self._left = min(self._per_second, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return int(self._left)

    def spend(self, count: int) -> None:
        """Take so many out; it may go below 0, which the next seconds make up for."""
        self._left -= count
