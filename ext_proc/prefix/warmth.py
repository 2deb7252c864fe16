"""What routing asks: who is warm for a prompt, on every level, and how hot the prompt's prefix is.

Pure and single-threaded; times are the caller's, in seconds on one steady clock.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ext_proc.prefix.index import PrefixIndex
from ext_proc.prefix.leading import LeadingMap
from ext_proc.prefix.popularity import Popularity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, KeysView, Sequence


_MOST_LEAVING: Final = 1024
"""Endpoints that are kept after they left; beyond, the first one to leave goes at once."""


class Warmth:
    """The levels together: leading parts, blocks of each endpoint, and popularity of prefixes.

    Blocks are chained hashes, as `ext_proc.prompt.blocks` makes them: whatever is given must begin with the
    prompt's first block, because who uses a block uses all before it.
    """

    def __init__(
        self,
        blocks_per_endpoint: int,
        *,
        grace_seconds: float = 60.0,
        popularity_seconds: float = 30.0,
        on_added: Callable[[str, list[int]], None] | None = None,
    ) -> None:
        """`on_added` hears of an endpoint with the whole prompt when some of its blocks are new there."""
        self.on_added = on_added
        self.index = PrefixIndex(blocks_per_endpoint)
        self.leading = LeadingMap()
        self.popularity = Popularity(popularity_seconds)
        self._grace_seconds = grace_seconds
        self._present: set[str] = set()
        self._leaving: OrderedDict[str, float] = OrderedDict()
        """Endpoints that left, to when, the first one first."""

    def record(self, address: str, blocks: Sequence[int]) -> int:
        """Note that a prompt was sent to `address`, and tell `on_added` if that is news.

        Return how many of its leading blocks were held there before.
        """
        added = self.index.record(address, blocks)
        if added and self.on_added is not None:
            self.on_added(address, list(blocks))
        return min(len(blocks), self.index.limit(address)) - added

    def add_remote(self, address: str, blocks: Sequence[int]) -> int | None:
        """Note what another worker sent where, and return how many leading blocks were held there before.

        None: an endpoint that this worker does not know, which is ignored.
        """
        if not self.index.knows(address):
            return None
        added = self.index.record(address, blocks)
        return min(len(blocks), self.index.limit(address)) - added

    def take_back(self, address: str, blocks: Sequence[int], kept: int, mark: int = 0) -> None:
        """Note that `address` did not compute a prompt: it holds no more than the `kept` leading blocks.

        `mark` is that of the leading part, where that is not there either.
        """
        self.index.take_back(address, blocks, kept)
        if mark:
            self.leading.take_back(mark, address)

    @property
    def leaving(self) -> KeysView[str]:
        """Endpoints that left and are not forgotten yet."""
        return self._leaving.keys()

    def keep(self, addresses: Collection[str], now: float) -> None:
        """Take over the fleet's endpoints: others leave, who returned in time keeps all."""
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
        """Forget those whose grace is over, and return them. Cheap when there are none: call it each tick."""
        gone: list[str] = []
        while self._leaving:
            address, left_at = next(iter(self._leaving.items()))
            if now - left_at < self._grace_seconds:
                break
            self.forget(address)
            gone.append(address)
        return gone

    def forget(self, address: str) -> None:
        """Drop all that is known of `address`, its size included, now: its engine restarted or flushed."""
        self._leaving.pop(address, None)
        self.index.forget(address)
        self.leading.forget(address)
