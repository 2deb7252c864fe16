"""Who is warm: which endpoints hold the leading blocks of a prompt, as this worker's own picks tell."""

from __future__ import annotations

from collections import OrderedDict
from itertools import compress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_MANY: Final = 24
"""Holders from which on naming them all at once is cheaper than bit by bit."""
_DIGITS_TO_TRUTH: Final = bytes.maketrans(b"01", b"\x00\x01")


class _Endpoint:
    """One endpoint's blocks, the least recently used first, and its bit in the holders' masks."""

    __slots__ = ("bit", "blocks", "limit", "slot")

    def __init__(self, slot: int, limit: int) -> None:
        self.slot = slot
        self.bit = 1 << slot
        self.limit = limit
        self.blocks: OrderedDict[int, None] = OrderedDict()


class PrefixIndex:
    """A bounded guess of each endpoint's KV cache, kept by block hash.

    Each block has one integer whose bits are the endpoints that hold it, so a look-up walks the blocks once,
    whatever the number of endpoints. Each endpoint drops its least recently used blocks. A prompt's blocks
    count as used from its tail to its head, so a tail goes before its head and what is held stays a prefix.
    """

    def __init__(self, blocks_per_endpoint: int) -> None:
        if blocks_per_endpoint < 1:
            raise ValueError(f"blocks_per_endpoint {blocks_per_endpoint}: allowed: 1 and above")
        self._blocks_per_endpoint = blocks_per_endpoint
        self._holders: dict[int, int] = {}
        self._endpoints: dict[str, _Endpoint] = {}
        self._addresses: list[str] = []
        """By slot; a free slot keeps its last name until it is taken again."""
        self._free: list[int] = []

    def matched(self, blocks: Sequence[int]) -> dict[str, int]:
        """Return for each endpoint that holds any how many leading blocks of `blocks` it holds."""
        found: dict[str, int] = {}
        holders = self._holders
        if not blocks or not (alive := holders.get(blocks[0], 0)):
            return found
        for depth, block in enumerate(blocks):
            still = alive & holders.get(block, 0)
            if still != alive:
                self._note(found, alive ^ still, depth)
                if not still:
                    return found
                alive = still
        self._note(found, alive, len(blocks))
        return found

    def record(self, address: str, blocks: Sequence[int]) -> None:
        """Note that `address` is now warm for `blocks`, as many leading ones as it can hold."""
        if not blocks:
            return
        endpoint = self._endpoint(address)
        held, holders, bit = endpoint.blocks, self._holders, endpoint.bit
        touch = held.move_to_end
        for block in reversed(blocks[: endpoint.limit]):
            if block in held:
                touch(block)
            else:
                held[block] = None
                mask = holders.get(block)
                # The sole holder's mask is the endpoint's own integer: nothing new is allocated.
                holders[block] = bit if mask is None else mask | bit
        self._evict(endpoint)

    def resize(self, address: str, limit_blocks: int) -> None:
        """Set how many blocks `address` can hold, at most the index's own limit, and evict down to it."""
        endpoint = self._endpoint(address)
        endpoint.limit = max(0, min(limit_blocks, self._blocks_per_endpoint))
        self._evict(endpoint)

    def forget(self, address: str) -> None:
        """Drop all that is known of `address`, its size included: its engine restarted or is gone."""
        endpoint = self._endpoints.pop(address, None)
        if endpoint is None:
            return
        endpoint.limit = 0
        self._evict(endpoint)
        self._free.append(endpoint.slot)

    def held(self, address: str) -> int:
        """Return how many blocks `address` is taken to hold."""
        endpoint = self._endpoints.get(address)
        return 0 if endpoint is None else len(endpoint.blocks)

    def _endpoint(self, address: str) -> _Endpoint:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            if self._free:
                slot = self._free.pop()
                self._addresses[slot] = address
            else:
                slot = len(self._addresses)
                self._addresses.append(address)
            endpoint = self._endpoints[address] = _Endpoint(slot, self._blocks_per_endpoint)
        return endpoint

    def _evict(self, endpoint: _Endpoint) -> None:
        held, holders, bit = endpoint.blocks, self._holders, endpoint.bit
        for _ in range(len(held) - endpoint.limit):
            block, _none = held.popitem(last=False)
            left = holders[block] ^ bit
            if left:
                holders[block] = left
            else:
                del holders[block]

    def _note(self, found: dict[str, int], mask: int, depth: int) -> None:
        addresses = self._addresses
        if mask.bit_count() >= _MANY:
            lowest_first = format(mask, "b")[::-1].encode().translate(_DIGITS_TO_TRUTH)
            found.update(dict.fromkeys(compress(addresses, lowest_first), depth))
            return
        while mask:
            low = mask & -mask
            found[addresses[low.bit_length() - 1]] = depth
            mask ^= low
