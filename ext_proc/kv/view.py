"""The content of the fleet's KV caches by the engines' own events, and how far it can be relied on.

An endpoint's events are fresh while its sockets are connected, no message is missing, and prompts that we
sent there appear among its blocks. Silence alone is no fault, because an idle engine publishes nothing. So
silence counts only after prompts of ours that must have filled blocks. The same check finds a tokenizer or a
chat template that differs from the engine's: other blocks appear than the expected ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ext_proc.kv.blocks import BlockIndex, step_tokens
from ext_proc.kv.chain import LOW_64, MAX_TOKENS
from ext_proc.kv.events import extra_of_salt
from ext_proc.kv.tracker import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

SLOW_TIER_WORTH: Final = 0.5
"""Of a token whose block lies in host memory or on a disk: the engine loads it instead of computing it."""
UNSEEN_SECONDS: Final = 30.0
"""A prompt whose first cold block is not published within this time has left no trace."""
MAX_UNSEEN: Final = 3
"""Prompts in a row without a trace, after which an endpoint is stale until one appears."""
MAX_EXPECTED: Final = 256


class Freshness(Enum):
    """How far the known content of an endpoint's cache can be relied on."""

    WHOLE = "whole"
    """All blocks of the engine are known."""
    PARTIAL = "partial"
    """The known blocks are there; the engine may have more."""
    STALE = "stale"
    """Nothing is certain."""


@dataclass
class _Endpoint:
    trackers: list[Tracker]
    expected: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """Keys of prefixes that the engine must fill soon, with the time of their prompt."""
    unseen: int = 0
    """Prompts in a row without a trace."""


class KvView:
    """The blocks of all endpoints with KV events. Single-threaded."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        """`limit` is the number of blocks that are kept of a publisher."""
        self.index = BlockIndex(limit)
        self._clock = clock
        self.on_emptied: Callable[[str], None] = lambda _: None
        """Called with the address of an engine that has dropped its whole cache."""
        self._endpoints: dict[str, _Endpoint] = {}

    def add(self, address: str, *, ranks: int = 1, replayable: bool = True) -> list[Tracker]:
        """Begin to follow an endpoint; return the trackers of its ranks, which the caller feeds."""
        endpoint = self._endpoints[address] = _Endpoint([])
        endpoint.trackers += [
            Tracker(
                self.index,
                address,
                replayable=replayable,
                clock=self._clock,
                on_stored=lambda keys: self._match_expected(endpoint, keys),
                on_emptied=lambda: self.on_emptied(address),
            )
            for _ in range(ranks)
        ]
        return endpoint.trackers

    def forget(self, address: str) -> None:
        """Stop following an endpoint. `index.sweep` frees the memory."""
        for tracker in self.trackers(address):
            self.index.close(tracker.slot)
        self._endpoints.pop(address, None)
        self.index.adapters.forget(address)

    @property
    def addresses(self) -> Iterable[str]:
        """The endpoints that are followed."""
        return self._endpoints.keys()

    def trackers(self, address: str) -> Sequence[Tracker]:
        """Return the trackers of an endpoint's ranks."""
        endpoint = self._endpoints.get(address)
        return () if endpoint is None else endpoint.trackers

    def freshness(self, address: str) -> Freshness:
        """Return how far an endpoint's events can be relied on now."""
        return self._judge(address)[0]

    def status(self, address: str) -> dict[str, Any]:
        """Return what operators see of an endpoint: freshness with its cause, blocks, and each rank."""
        freshness, cause = self._judge(address)
        return {
            "freshness": freshness.value,
            **({} if cause is None else {"cause": cause}),
            "blocks": sum(len(tracker.slot.blocks) for tracker in self.trackers(address)),
            "block_tokens": self.block_tokens(address) or None,
            "ranks": [tracker.status() for tracker in self.trackers(address)],
        }

    def _judge(self, address: str) -> tuple[Freshness, str | None]:
        """Return an endpoint's freshness, and the reason if it is less than whole."""
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            return Freshness.STALE, "it publishes no events"
        for tracker in endpoint.trackers:
            if not tracker.settled:
                return Freshness.STALE, tracker.cause
        self._expire(endpoint)
        if endpoint.unseen >= MAX_UNSEEN:
            return Freshness.STALE, (
                f"the last {endpoint.unseen} prompts left no trace in its events: compare the pool's"
                " tokenizer and chat_template with the engine's, and see that the engine still publishes"
            )
        for tracker in endpoint.trackers:
            if not tracker.whole:
                return Freshness.PARTIAL, tracker.cause
        return Freshness.WHOLE, None

    def keys(
        self, tokens: Sequence[int] | NDArray[np.uint64], adapter: str = "", salt: str = ""
    ) -> NDArray[np.uint64] | None:
        """Return the keys of a prompt's prefixes of 1, 2, ... tokens; None if these cannot be token ids.

        `adapter` is the LoRA adapter's name, `salt` the request's `cache_salt`.
        """
        if len(tokens) > MAX_TOKENS:
            return None
        try:
            ids = np.asarray(tokens, dtype=np.uint64)
        except (OverflowError, ValueError, TypeError):
            return None
        chain = self.index.chain
        root = chain.root(adapter)
        if salt:
            root = (root + chain.further(extra_of_salt(salt), 0)) & LOW_64
        return chain.prefix_keys(ids, root)

    def block_tokens(self, address: str) -> int:
        """Return the tokens of an endpoint's blocks; 0 before its first block."""
        return max((tracker.slot.block_tokens for tracker in self.trackers(address)), default=0)

    def cached_tokens(self, keys: NDArray[np.uint64], most_blocks: int = 4096) -> dict[str, int]:
        """Return by address how many leading tokens its index has, whatever the freshness.

        Tokens in slow memory count by `SLOW_TIER_WORTH`. An engine chooses among its ranks itself, so an
        endpoint with several counts with their mean.
        """
        totals: dict[str, float] = {}
        for slot, (fast, anywhere) in self.index.matched(keys, most_blocks).items():
            tokens = fast + SLOW_TIER_WORTH * (anywhere - fast)
            totals[slot.owner] = totals.get(slot.owner, 0.0) + tokens
        return {a: int(total / len(self._endpoints[a].trackers)) for a, total in totals.items()}

    def expect(self, address: str, keys: NDArray[np.uint64]) -> int:
        """Expect that an endpoint soon publishes the blocks of a prompt, given by the keys of its prefixes.

        Return the key of the first cold block, 0 if nothing is expected.
        """
        endpoint = self._endpoints.get(address)
        if endpoint is None or not all(tracker.settled for tracker in endpoint.trackers):
            return 0
        size = self.block_tokens(address)
        if not size:
            return 0
        step, ranks, expected = step_tokens(size), 0, 0
        for tracker in endpoint.trackers:
            ranks |= tracker.slot.bit
        for key in keys[step - 1 :: step].tolist():
            if not self.index.holders(key) & ranks:
                # A repeated prompt is expected once.
                endpoint.expected.setdefault(key, self._clock())
                expected = key
                break
        if len(endpoint.expected) > MAX_EXPECTED:
            endpoint.expected.popitem(last=False)
        return expected

    def expect_no_more(self, address: str, key: int) -> None:
        """Take back an expectation, by its key: the endpoint has not computed the prompt."""
        endpoint = self._endpoints.get(address)
        if endpoint is not None:
            endpoint.expected.pop(key, None)

    def _match_expected(self, endpoint: _Endpoint, keys: list[int]) -> None:
        for key in keys:
            if endpoint.expected.pop(key, None) is not None:
                endpoint.unseen = 0

    def _expire(self, endpoint: _Endpoint) -> None:
        late = self._clock() - UNSEEN_SECONDS
        while endpoint.expected:
            key, sent_at = next(iter(endpoint.expected.items()))
            if sent_at > late:
                return
            del endpoint.expected[key]
            endpoint.unseen += 1
