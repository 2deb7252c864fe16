"""Prompts that are on their way, so that it can be noted who served them. Pure and bounded.

Gateways may tell with a response who served it, seconds after the pick. Most Envoys never tell, and then
nothing is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_BLOCKS: Final = 262_144
"""Of all prompts together, some 10 MB; those that were sent first go first."""


class Sent:
    """By the serial number of their picks, the blocks of prompts."""

    def __init__(self) -> None:
        self.wanted = False
        """Whether anybody has ever told who served."""
        self._blocks: OrderedDict[int, Sequence[int]] = OrderedDict()
        self._held = 0

    def note(self, serial: int, blocks: Sequence[int]) -> None:
        """Remember a prompt, if somebody tells who serves."""
        if not self.wanted:
            return
        self._blocks[serial] = blocks
        self._held += len(blocks)
        while self._held > MOST_BLOCKS:
            self._held -= len(self._blocks.popitem(last=False)[1])

    def take(self, serial: int) -> Sequence[int]:
        """Return the blocks of a prompt and forget them; none when it is not remembered."""
        self.wanted = True
        blocks = self._blocks.pop(serial, ())
        self._held -= len(blocks)
        return blocks
