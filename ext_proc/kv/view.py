"""The content of the fleet's KV caches by the engines' own events, and how far it can be relied on.

An endpoint's events are fresh while its sockets are connected, no message is missing, and prompts that we
sent there appear among its blocks. Silence alone is no fault, because an idle engine publishes nothing. So
silence counts only after prompts of ours that must have filled blocks. The same check finds a tokenizer or a
chat template that differs from the engine's: other blocks appear than the expected ones.

A template may differ in a part that only some requests use, such as tools. So prompts are judged by their
shape (`ext_proc.kv.lookup.shape_of`): after `MAX_UNSEEN` prompts in a row without a trace, their shape is
not looked up at that endpoint. The endpoint is stale if that is so of all shapes that were judged, or if
`MOST_UNSEEN` prompts of any shapes in a row have left none.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ext_proc.kv.blocks import BlockIndex, step_tokens
from ext_proc.kv.chain import LOW_64, MAX_TOKENS
from ext_proc.kv.events import extra_of_salt
from ext_proc.kv.tracker import Tracker
from fleet.ranks import rank_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

SLOW_TIER_WORTH: Final = 0.5
"""Of a token whose block lies in host memory or on a disk: the engine loads it instead of computing it."""
UNSEEN_SECONDS: Final = 30.0
"""A prompt whose first cold block is not published within this time has left no trace."""
MAX_UNSEEN: Final = 3
"""Prompts of one shape in a row without a trace; then that shape is not looked up until one appears."""
MOST_UNSEEN: Final = 24
"""The same of prompts of any shapes: other shapes may be of long ago."""
MAX_EXPECTED: Final = 256
MAX_SHAPES: Final = 64
"""Shapes that are judged at an endpoint; the one without a result for longest goes first."""
STALE_CAUSES: Final = ("not_connected", "replay", "no_message", "waiting", "no_trace")
"""Why an endpoint is stale, as a metric's label: no connection; a replay waits or is in progress; no message
yet; messages wait to be applied; prompts leave no trace."""


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
    expected: OrderedDict[int, tuple[float, int]] = field(default_factory=OrderedDict)
    """Keys of prefixes that the engine must fill soon, with the time and shape of their prompt."""
    untraced: OrderedDict[int, int] = field(default_factory=OrderedDict)
    """By shape: prompts in a row without a trace."""

    in_a_row: int = 0
    """Prompts of any shape without a trace since the last one with a trace."""

    def judge(self, shape: int, *, traced: bool) -> None:
        """Take the result of a prompt."""
        self.in_a_row = 0 if traced else self.in_a_row + 1
        self.untraced[shape] = 0 if traced else self.untraced.get(shape, 0) + 1
        self.untraced.move_to_end(shape)
        if len(self.untraced) > MAX_SHAPES:
            self.untraced.popitem(last=False)

    @property
    def stale(self) -> bool:
        """Whether prompts of no shape leave a trace."""
        all_odd = bool(self.untraced) and min(self.untraced.values()) >= MAX_UNSEEN
        return all_odd or self.in_a_row >= MOST_UNSEEN

    def odd_shapes(self) -> list[int]:
        """Return the shapes whose prompts leave no trace."""
        return [shape for shape, count in self.untraced.items() if count >= MAX_UNSEEN]


class Judgement(NamedTuple):
    """How far an endpoint's events can be relied on, and why no further."""

    freshness: Freshness
    text: str | None = None
    """None: they are whole."""
    stale_by: str = ""
    """Of `STALE_CAUSES`; empty: it is not stale."""


class KvView:
    """The blocks of all endpoints with KV events. Single-threaded."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        """`limit` is the number of blocks that are kept of a publisher."""
        self.index = BlockIndex(limit)
        self._clock = clock
        self.on_emptied: Callable[[str, int], None] = lambda _address, _rank: None
        """Called with the address and the rank of an engine that has dropped its whole cache."""
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
                on_emptied=partial(self._emptied, address, rank),
                rank=rank,
            )
            for rank in range(ranks)
        ]
        return endpoint.trackers

    def _emptied(self, address: str, rank: int) -> None:
        self.on_emptied(address, rank)

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
        return self.judge(address).freshness

    def odd_shapes(self, address: str) -> Collection[int]:
        """Return the shapes that are not looked up at an endpoint: their prompts leave no trace."""
        endpoint = self._endpoints.get(address)
        return () if endpoint is None else endpoint.odd_shapes()

    def status(self, address: str) -> dict[str, Any]:
        """Return what operators see of an endpoint: freshness with its cause, blocks, and each rank."""
        judgement, endpoint = self.judge(address), self._endpoints.get(address)
        return {
            "freshness": judgement.freshness.value,
            **({} if judgement.text is None else {"cause": judgement.text}),
            "shapes_without_trace": 0 if endpoint is None else len(endpoint.odd_shapes()),
            "blocks": sum(len(tracker.slot.blocks) for tracker in self.trackers(address)),
            "block_tokens": self.block_tokens(address) or None,
            "ranks": [tracker.status() for tracker in self.trackers(address)],
        }

    def judge(self, address: str) -> Judgement:
        """Return how far an endpoint's events can be relied on now."""
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            return Judgement(Freshness.STALE, "it publishes no events", "not_connected")
        for tracker in endpoint.trackers:
            if not tracker.settled:
                return Judgement(Freshness.STALE, tracker.cause, tracker.unsettled_by)
        self._expire(endpoint)
        if endpoint.stale:
            text = (
                f"the last {endpoint.in_a_row} prompts left no trace in its events: compare the pool's"
                " tokenizer and chat_template with the engine's, and see that the engine still publishes"
            )
            return Judgement(Freshness.STALE, text, "no_trace")
        for tracker in endpoint.trackers:
            if not tracker.whole:
                return Judgement(Freshness.PARTIAL, tracker.cause)
        return Judgement(Freshness.WHOLE)

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

    def cached_tokens(
        self, keys: NDArray[np.uint64], most_blocks: int = 4096, *, by_rank: bool = False
    ) -> dict[str, int]:
        """Return by address how many leading tokens its index has, whatever the freshness.

        Tokens in slow memory count by `SLOW_TIER_WORTH`. Where an engine chooses among its ranks itself, an
        endpoint with several counts with their mean. `by_rank`: return them by the names of ranks.
        """
        totals: dict[str, float] = {}
        for slot, (fast, anywhere) in self.index.matched(keys, most_blocks).items():
            tokens = fast + SLOW_TIER_WORTH * (anywhere - fast)
            name = rank_name(slot.owner, slot.rank) if by_rank else slot.owner
            totals[name] = totals.get(name, 0.0) + tokens
        if by_rank:
            return {name: int(total) for name, total in totals.items()}
        return {a: int(total / len(self._endpoints[a].trackers)) for a, total in totals.items()}

    def expect(self, address: str, keys: NDArray[np.uint64], shape: int = 0) -> int:
        """Expect that an endpoint soon publishes the blocks of a prompt, given by the keys of its prefixes.

        `shape` is the prompt's.

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
                endpoint.expected.setdefault(key, (self._clock(), shape))
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
            if (expected := endpoint.expected.pop(key, None)) is not None:
                endpoint.judge(expected[1], traced=True)

    def _expire(self, endpoint: _Endpoint) -> None:
        late = self._clock() - UNSEEN_SECONDS
        while endpoint.expected:
            key, (sent_at, shape) = next(iter(endpoint.expected.items()))
            if sent_at > late:
                return
            del endpoint.expected[key]
            endpoint.judge(shape, traced=False)
