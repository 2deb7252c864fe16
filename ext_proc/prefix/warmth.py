"""What routing asks: who is warm for a prompt, on every level, and how hot the prompt's prefix is.

Pure and single-threaded; times are the caller's, in seconds on one steady clock.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ext_proc.prefix.column import DepthColumn
from ext_proc.prefix.index import PrefixIndex
from ext_proc.prefix.leading import LeadingMap
from ext_proc.prefix.popularity import Popularity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, KeysView, Sequence

    import numpy as np
    from numpy.typing import NDArray

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
        leading_entries: int = 16_384,
        popularity_seconds: float = 30.0,
        on_added: Callable[[str, list[int]], None] | None = None,
    ) -> None:
        """`on_added` hears of an endpoint with the whole prompt when some of its blocks are new there."""
        self.on_added = on_added
        self._index = PrefixIndex(blocks_per_endpoint)
        self._leading = LeadingMap(leading_entries)
        self._popularity = Popularity(popularity_seconds)
        self._grace_seconds = grace_seconds
        self._present: set[str] = set()
        self._leaving: OrderedDict[str, float] = OrderedDict()
        """Endpoints that left, to when, the first one first."""

    @property
    def index_nbytes(self) -> int:
        """Bytes of the block index's arrays. Walks all endpoints: for a gauge, not for each request."""
        return self._index.nbytes

    # Level 2: blocks.

    def matched(self, blocks: Sequence[int]) -> dict[str, int]:
        """Return for each endpoint that holds any how many leading blocks of `blocks` it holds."""
        return self._index.matched(blocks)

    def column(self, addresses: Sequence[str]) -> DepthColumn:
        """Return what answers as `matched` does, as an array in the order of `addresses`."""
        return DepthColumn(self._index, addresses)

    def record(self, address: str, blocks: Sequence[int]) -> int:
        """Note that a prompt was sent to `address`, and tell `on_added` if that is news.

        Return how many of its leading blocks were held there before.
        """
        added = self._index.record(address, blocks)
        if added and self.on_added is not None:
            self.on_added(address, list(blocks))
        return min(len(blocks), self._index.limit(address)) - added

    def add_remote(self, address: str, blocks: Sequence[int]) -> int | None:
        """Note what another worker sent where, and return how many leading blocks were held there before.

        None: an endpoint that this worker does not know, which is ignored.
        """
        if not self._index.knows(address):
            return None
        added = self._index.record(address, blocks)
        return min(len(blocks), self._index.limit(address)) - added

    def take_back(self, address: str, blocks: Sequence[int], kept: int, mark: int = 0) -> None:
        """Note that `address` did not compute a prompt: it holds no more than the `kept` leading blocks.

        `mark` is that of the leading part, where that is not there either.
        """
        self._index.take_back(address, blocks, kept)
        if mark:
            self._leading.take_back(mark, address)

    def resize(self, address: str, blocks: int) -> None:
        """Set how many blocks fit into an endpoint's KV cache."""
        self._index.resize(address, blocks)

    def held(self, address: str) -> int:
        """Return how many blocks `address` is taken to hold."""
        return self._index.held(address)

    # Level 1: leading parts.

    def had(self, key: bytes) -> tuple[str, ...]:
        """Return which endpoints had a leading part, by its `leading_key`, the last one first."""
        return self._leading.holders(key)

    def wants_leading(self, mark: int, address: str) -> bool:
        """Note that a leading part is in use at `address`; whether to record it: it is not known yet."""
        return self._leading.wants(mark, address)

    def record_leading(self, key: bytes, address: str, mark: int = 0, *, again: bool = False) -> None:
        """Note that a prompt with this leading part was sent to `address`; `again`: it is in use there."""
        self._leading.record(key, address, mark, again=again)

    # Popularity.

    def asked(
        self,
        blocks: Sequence[int],
        now: float,
        also: Collection[int] = (),
        total: float = 0.0,
        look_back: float = 0.0,
    ) -> None:
        """Count one request for a prompt, once, wherever it goes; at depths `also` exactly.

        See `Popularity` for `total` and `look_back`.
        """
        self._popularity.count(blocks, now, also, total, look_back)

    def compared(
        self, blocks: Sequence[int], now: float, also: Collection[int], total: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return for each block the requests a second, of this worker, that share the run up to it.

        Second, for each block, how many of `total` requests came over the same time.
        """
        return self._popularity.compared(blocks, now, also, total)

    def compared_at(self, blocks: Sequence[int], depth: int, now: float, total: float) -> tuple[float, float]:
        """Return both for one block alone."""
        return self._popularity.compared_at(blocks, depth, now, total)

    # Who is there.

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
        self._index.forget(address)
        self._leading.forget(address)
