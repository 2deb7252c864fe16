"""The endpoints that are warm for a prompt, on two levels, and the rate of the prompt's prefix.

Pure and single-threaded; times are the caller's, in seconds on one steady clock.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ext_proc.prefix.index import PrefixIndex
from ext_proc.prefix.leading import LeadingMap
from ext_proc.prefix.popularity import Popularity
from ext_proc.prompt.blocks import ENDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, KeysView, Sequence


_MOST_LEAVING: Final = 1024
"""Endpoints that are kept after they left; beyond, the first one to leave goes at once."""


class Warmth:
    """Leading parts, blocks of each endpoint, and popularity of prefixes, for the endpoints of a fleet.

    Blocks are chained hashes, as `ext_proc.prompt.blocks` makes them, from the prompt's first block on.
    """

    def __init__(
        self,
        units_per_endpoint: int,
        *,
        grace_seconds: float = 60.0,
        popularity_seconds: float = 30.0,
        on_added: Callable[[str, list[int]], None] | None = None,
    ) -> None:
        """`on_added` gets an endpoint and a whole prompt when some of its blocks are new there."""
        self.on_added = on_added
        self.index = PrefixIndex(units_per_endpoint, ENDS.tolist())
        self.leading = LeadingMap()
        self.popularity = Popularity(popularity_seconds)
        self._grace_seconds = grace_seconds
        self._present: set[str] = set()
        self._leaving: OrderedDict[str, float] = OrderedDict()
        """Endpoints that left, with the times, the first one first."""

    def record(self, address: str, blocks: Sequence[int]) -> int:
        """Note that a prompt was sent to `address`, and call `on_added` if some of it is new there.

        Return the number of its leading blocks that were there before.
        """
        added = self.index.record(address, blocks)
        if added and self.on_added is not None:
            self.on_added(address, list(blocks))
        return self.index.fitting(address, len(blocks)) - added

    def add_remote(self, address: str, blocks: Sequence[int]) -> int | None:
        """Note that another worker sent a prompt to `address`; return as `record` does.

        None: this worker does not know the endpoint and ignores the prompt.
        """
        if not self.index.knows(address):
            return None
        added = self.index.record(address, blocks)
        return self.index.fitting(address, len(blocks)) - added

    def take_back(self, address: str, blocks: Sequence[int], kept: int, mark: int = 0) -> None:
        """Note that `address` did not compute a prompt: it holds no more than the `kept` leading blocks.

        `mark` is that of the leading part, if that is not there either; otherwise 0.
        """
        self.index.take_back(address, blocks, kept)
        if mark:
            self.leading.take_back(mark, address)

    @property
    def leaving(self) -> KeysView[str]:
        """Endpoints that left and are not forgotten yet."""
        return self._leaving.keys()

    def keep(self, addresses: Collection[str], now: float) -> None:
        """Take over the fleet's endpoints: others leave, and those that return in time keep everything."""
        present = set(addresses)
        for address in present & self._leaving.keys():
            del self._leaving[address]
        for address in sorted(self._present - present):
            self.leave(address, now)
        self._present = present
        self.expire(now)

    def leave(self, address: str, now: float) -> None:
        """Forget an endpoint when the grace is over, unless `keep` names it before."""
        self._present.discard(address)
        self._leaving.setdefault(address, now)
        if len(self._leaving) > _MOST_LEAVING:
            self.forget(next(iter(self._leaving)))

    def expire(self, now: float) -> list[str]:
        """Forget the endpoints whose grace is over, and return them. Cheap when there are none."""
        gone: list[str] = []
        while self._leaving:
            address, left_at = next(iter(self._leaving.items()))
            if now - left_at < self._grace_seconds:
                break
            self.forget(address)
            gone.append(address)
        return gone

    def forget(self, address: str) -> None:
        """Forget `address` with its size now: its engine restarted or flushed its cache."""
        self._leaving.pop(address, None)
        self.index.forget(address)
        self.leading.forget(address)
