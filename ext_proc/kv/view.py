"""The fleet's KV caches as their engines tell them: who holds how much of a prompt, and whose word counts.

An endpoint's word is FRESH while its sockets are connected, nothing is missing in between, and prompts that
we sent there show up among its blocks. It is WHOLE as well if everything that it holds has been told, and
not only what it filled lately. Where it is not fresh, the caller's own estimate is the better one.

Events have no heartbeat: an idle engine is silent. So silence counts against an endpoint only after prompts
of ours that must have made it fill blocks. The same look finds a tokenizer or a chat template that is not
the engine's: then other blocks appear than those that we expect.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.kv.blocks import BlockIndex, step_tokens
from ext_proc.kv.chain import LOW_64, MAX_TOKENS
from ext_proc.kv.events import extra_of_salt
from ext_proc.kv.tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

SLOW_TIER_WORTH: Final = 0.5
"""A token whose block lies in host memory or on a disk counts this much: it is loaded, not computed."""
UNSEEN_SECONDS: Final = 30.0
"""A prompt whose first cold block is not told within this time is unseen."""
MAX_UNSEEN: Final = 3
"""Unseen prompts in a row, after which an endpoint's word does not count until one is seen."""
MAX_EXPECTED: Final = 256


class Freshness(Enum):
    """What an endpoint's word is worth."""

    WHOLE = "whole"
    """All that it holds is known."""
    PARTIAL = "partial"
    """What is known is held; there may be more."""
    STALE = "stale"
    """Nothing is known for sure."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What beside the tokens makes KV blocks equal, within one pool."""

    adapter: str = ""
    """The LoRA adapter's name."""
    salt: str = ""
    """`cache_salt`."""


@dataclass
class _Endpoint:
    trackers: list[Tracker]
    expected: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """Keys of prefixes that the engine must fill soon, to when they were sent."""
    unseen: int = 0


class KvView:
    """What all endpoints with KV events hold. Single-threaded."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        """`limit` is how many blocks a publisher may hold here."""
        self.index = BlockIndex(limit)
        self._clock = clock
        self.on_emptied: Callable[[str], None] = lambda _: None
        """Told of an endpoint that has dropped all that it held."""
        self._endpoints: dict[str, _Endpoint] = {}

    def add(self, address: str, *, ranks: int = 1, replayable: bool = True) -> list[Tracker]:
        """Begin to follow an endpoint; returns the trackers of its ranks, for whoever feeds them."""
        held = self._endpoints[address] = _Endpoint([])
        for _ in range(ranks):
            tracker = Tracker(
                self.index,
                address,
                replayable=replayable,
                clock=self._clock,
                on_stored=lambda keys: self._seen(held, keys),
                on_emptied=lambda: self.on_emptied(address),
            )
            held.trackers.append(tracker)
        return held.trackers

    def forget(self, address: str) -> None:
        """Follow an endpoint no longer. `index.sweep` frees the memory."""
        held = self._endpoints.pop(address, None)
        for tracker in held.trackers if held is not None else ():
            tracker.close()
        self.index.adapters.forget(address)

    @property
    def addresses(self) -> Iterable[str]:
        """Whom we follow."""
        return self._endpoints.keys()

    def freshness(self, address: str) -> Freshness:
        """Return what an endpoint's word is worth now."""
        held = self._endpoints.get(address)
        if held is None or not all(tracker.settled for tracker in held.trackers):
            return Freshness.STALE
        self._expire(held)
        if held.unseen >= MAX_UNSEEN:
            return Freshness.STALE
        return Freshness.WHOLE if all(tracker.whole for tracker in held.trackers) else Freshness.PARTIAL

    def keys(
        self, tokens: Sequence[int] | NDArray[np.uint64], identity: Identity
    ) -> NDArray[np.uint64] | None:
        """Return the keys of a prompt's prefixes; None where there are too many, or no ids."""
        if len(tokens) > MAX_TOKENS:
            return None
        try:
            ids = np.asarray(tokens, dtype=np.uint64)
        except (OverflowError, ValueError, TypeError):
            return None
        chain = self.index.chain
        root = chain.root(identity.adapter)
        if identity.salt:
            root = (root + chain.further(extra_of_salt(identity.salt), 0)) & LOW_64
        return chain.prefix_keys(ids, root)

    def matched(
        self, tokens: Sequence[int] | NDArray[np.uint64], identity: Identity, most_blocks: int = 4096
    ) -> Mapping[str, int]:
        """Return, for each fresh endpoint that holds any, how many leading tokens of a prompt it holds."""
        keys = self.keys(tokens, identity)
        if keys is None:
            return {}
        found = self.held(keys, most_blocks)
        return {a: n for a, n in found.items() if self.freshness(a) is not Freshness.STALE}

    def held(self, keys: NDArray[np.uint64], most_blocks: int = 4096) -> dict[str, int]:
        """Return by address how many leading tokens are held, whatever the freshness.

        Tokens in slow memory count by `SLOW_TIER_WORTH`. An engine chooses among its ranks by itself, so an
        endpoint of several counts with their mean.
        """
        found: dict[str, float] = {}
        for slot, (fast, anywhere) in self.index.matched(keys, most_blocks).items():
            found[slot.owner] = found.get(slot.owner, 0.0) + fast + SLOW_TIER_WORTH * (anywhere - fast)
        return {a: int(total / len(self._endpoints[a].trackers)) for a, total in found.items()}

    def expect(self, address: str, keys: NDArray[np.uint64]) -> int:
        """Take note of a prompt that is on its way to an endpoint, by the keys of its prefixes.

        Return the key that must show up, 0 for none.
        """
        held = self._endpoints.get(address)
        if held is None or not all(tracker.settled for tracker in held.trackers):
            return 0
        size = max(tracker.slot.block_tokens for tracker in held.trackers)
        if not size:
            return 0
        step, ranks, expected = step_tokens(size), 0, 0
        for tracker in held.trackers:
            ranks |= tracker.slot.bit
        for key in keys[step - 1 :: step].tolist():
            if not self.index.holders(key) & ranks:
                # A prompt that is sent again and again is not expected again and again.
                held.expected.setdefault(key, self._clock())
                expected = key
                break
        if len(held.expected) > MAX_EXPECTED:
            held.expected.popitem(last=False)
        return expected

    def expect_no_more(self, address: str, key: int) -> None:
        """Take note that an endpoint has not computed a prompt, by what `expect` returned for it."""
        held = self._endpoints.get(address)
        if held is not None:
            held.expected.pop(key, None)

    def trackers(self, address: str) -> Sequence[Tracker]:
        """Return an endpoint's trackers, for metrics and the admin server."""
        held = self._endpoints.get(address)
        return held.trackers if held is not None else ()

    def _seen(self, held: _Endpoint, keys: list[int]) -> None:
        for key in keys:
            if held.expected.pop(key, None) is not None:
                held.unseen = 0

    def _expire(self, held: _Endpoint) -> None:
        late = self._clock() - UNSEEN_SECONDS
        while held.expected:
            key, sent_at = next(iter(held.expected.items()))
            if sent_at > late:
                return
            del held.expected[key]
            held.unseen += 1
