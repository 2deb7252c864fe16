"""Sets of endpoints, each kept once: blocks name them by number, and equal sets have equal numbers."""

from __future__ import annotations


class HolderSets:
    """A set is an integer whose bits are endpoints. Number 0 is the empty set; others live while named.

    The blocks of a prompt that went the same ways share one set, so a system prompt that a thousand endpoints
    hold costs one integer of a thousand bits for all of its blocks, and comparing sets is comparing numbers.
    """

    def __init__(self) -> None:
        self.masks: list[int] = [0]
        """By number."""
        self._numbers: dict[int, int] = {0: 0}
        self._named: list[int] = [0]
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, mask: int) -> int:
        """Return the number of a set, given out on first use; `move` what names it before the next call."""
        held = self._numbers.get(mask)
        if held is not None:
            return held
        if self._free:
            held = self._free.pop()
            self.masks[held] = mask
        else:
            held = len(self.masks)
            self.masks.append(mask)
            self._named.append(0)
        self._numbers[mask] = held
        return held

    def pin(self, mask: int) -> int:
        """Return the number of a set and keep it, named by blocks or not, until `unpin`."""
        held = self.number(mask)
        self._named[held] += 1
        return held

    def unpin(self, number: int) -> None:
        """Let a set go when no block names it."""
        self.move(number, 0, 1)

    def move(self, old: int, new: int, count: int) -> None:
        """Note that `count` blocks that named `old` name `new` now; 0 is for blocks that are not there."""
        self._named[new] += count
        if old:
            self._named[old] -= count
            if not self._named[old]:
                del self._numbers[self.masks[old]]
                self.masks[old] = 0
                self._free.append(old)
