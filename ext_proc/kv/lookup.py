"""What routing asks of KV events: who holds how much of this prompt, merged with its own estimate.

For each request: `locate`, `merged` with the local index, the pick, and `expect` with the picked endpoint.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np

from ext_proc.kv.view import Freshness, Identity, KvView
from ext_proc.prompt.text import IDS, PART

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ext_proc.prompt.decode import Prompt
    from ext_proc.prompt.envelope import Envelope

FRESHNESS_SECONDS: Final = 0.1
"""Freshness of the whole fleet is looked at no more often than this."""
MAX_IDS: Final = 32_768
"""Tokens of a prompt that are looked at: 2,048 blocks of 16."""
_ID_BYTES: Final = 8
"""Of an id with its comma, at most, where `MAX_IDS` of them are read."""
_numbers: Final = msgspec.json.Decoder(list[int]).decode


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A prompt's token ids, as the engine will make them."""

    ids: NDArray[np.uint64]
    whole: bool
    """False: only the leading part is known."""
    total: int
    """Tokens of the whole prompt, estimated where only a part is known."""


class PromptReader(Protocol):
    """Makes token ids of a request's body."""

    reads_text: bool
    """False: it finds nothing but ids, which `KvLookup.keys` gets from the prompt."""

    def read(self, envelope: Envelope) -> PromptTokens | None:
        """Return the prompt's tokens; None where the engine's tokens cannot be known. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class KvPrompt:
    """One prompt in the terms of the view."""

    pool: str
    keys: NDArray[np.uint64]
    """Of its prefixes of 1, 2, ... tokens, as far as the tokens are known."""
    whole: bool
    total: int


class KvLookup:
    """Answers for one request at a time; cheap where no endpoint of the pool tells events."""

    def __init__(self, view: KvView, clock: Callable[[], float], most_blocks: int) -> None:
        self.view = view
        self.most_blocks = most_blocks
        self._clock = clock
        self._readers: dict[str, PromptReader] = {}
        self._pools: dict[str, frozenset[str]] = {}
        self._further: dict[str, frozenset[str]] = {}
        """By pool, models that an engine serves by name beside its own: adapters, or other names of it."""
        self._first: dict[str, frozenset[str]] = {}
        self._looked_at = float("-inf")
        self._whole: dict[str, frozenset[str]] = {}
        self._partial: frozenset[str] = frozenset()

    def set_pool(
        self,
        pool: str,
        addresses: Iterable[str],
        reader: PromptReader | None,
        models: Collection[Sequence[str]] = (),
    ) -> None:
        """Say which endpoints of a pool tell events, and who reads its prompts.

        `models` are those that each of the pool's endpoints serves by name, its own one first.
        """
        self._pools[pool] = frozenset(addresses)
        self._first[pool] = frozenset(names[0] for names in models if names)
        self._further[pool] = frozenset(name for names in models for name in names[1:])
        if not self._pools[pool]:
            del self._pools[pool], self._first[pool], self._further[pool]
        if reader is None:
            self._readers.pop(pool, None)
        else:
            self._readers[pool] = reader
        self._looked_at = float("-inf")

    def keep_pools(self, pools: Iterable[str]) -> None:
        """Forget the pools that are not among these."""
        for gone in self._pools.keys() - set(pools):
            self.set_pool(gone, (), None)

    def locate(self, pool: str, model: str, prompt: Prompt, envelope: Envelope | None) -> KvPrompt | None:
        """Return the prompt as the pool's engines see it; None: go by the estimate."""
        reader = self._readers.get(pool)
        if reader is None or pool not in self._pools or not prompt.complete or envelope is None:
            return None
        adapter = self._adapter(pool, model, prompt.adapter)
        if adapter is None:
            return None
        if prompt.tokens is not None:
            tokens = ids_in(prompt.text, prompt.tokens)
        else:
            tokens = reader.read(envelope) if reader.reads_text else None
        if tokens is None or not len(tokens.ids):
            return None
        keys = self.view.keys(tokens.ids, Identity(adapter, prompt.salt))
        return None if keys is None else KvPrompt(pool, keys, tokens.whole, max(tokens.total, len(keys)))

    def _adapter(self, pool: str, model: str, named: str) -> str | None:
        """Return the adapter under which the pool's engines tell blocks, "" for none; None: nobody knows.

        It is the one named, else the model if an engine of the pool told of an adapter by that name: vLLM
        takes an adapter's name for the model's. A model that is neither told of nor an engine's own may be an
        adapter all the same, that was not used yet or that engines tell by its number.
        """
        names, members = self.view.index.adapters, self._pools[pool]
        name = named or model
        if name and names.told(name, members):
            # While engines are brought up to date, some tell names and some tell numbers.
            return None if names.nameless(members) else name
        if named or model in self._further[pool]:
            return None
        if model and model not in self._first[pool] and names.nameless(members):
            return None
        return ""

    def merged(self, prompt: KvPrompt, local: Mapping[str, int], blocks: int) -> Mapping[str, int]:
        """Return, by address, how many of the prompt's `blocks` leading blocks are held.

        `local` is the caller's own estimate in the same unit. Where all that an endpoint holds is known, that
        replaces the estimate; where only a part of it or of the prompt is known, the larger one counts.
        """
        if blocks < 1:
            return local
        self._look()
        whole = self._whole.get(prompt.pool, frozenset())
        if not whole and not self._partial:
            return local
        held = self.view.held(prompt.keys, self.most_blocks)
        known = len(prompt.keys) - 1
        merged = {a: n for a, n in local.items() if a not in whole}
        members = self._pools[prompt.pool]
        for address, tokens in held.items():
            if address not in members:
                continue
            held_blocks = min(blocks, round(blocks * tokens / prompt.total))
            exact = address in whole and (prompt.whole or tokens + self._reach(address) <= known)
            if not exact and (address in whole or address in self._partial):
                held_blocks = max(held_blocks, local.get(address, 0))
            elif not exact:
                continue
            if held_blocks:
                merged[address] = held_blocks
        if not prompt.whole:
            # Nothing held of too short a beginning says nothing.
            for address in whole - held.keys():
                if address in local and self._reach(address) > known:
                    merged[address] = local[address]
        return merged

    def expect(self, address: str, keys: NDArray[np.uint64]) -> int:
        """Take note that a prompt goes to an endpoint, which must soon publish the blocks it fills.

        Return the key of the first of them, 0 where none is expected.
        """
        return self.view.expect(address, keys)

    def take_back(self, address: str, key: int) -> None:
        """Expect nothing of a request that an endpoint did not compute."""
        self.view.expect_no_more(address, key)

    def _reach(self, address: str) -> int:
        """Return the tokens that one more block would take."""
        return max((tracker.slot.block_tokens for tracker in self.view.trackers(address)), default=0) or 1

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < FRESHNESS_SECONDS:
            return
        self._looked_at = now
        fresh = {address: self.view.freshness(address) for address in self.view.addresses}
        self._partial = frozenset(a for a, state in fresh.items() if state is Freshness.PARTIAL)
        whole = frozenset(a for a, state in fresh.items() if state is Freshness.WHOLE)
        self._whole = {pool: members & whole for pool, members in self._pools.items()}


def ids_in(text: bytes, count: int) -> PromptTokens | None:
    """Return the first `MAX_IDS` of a canonical prompt of `count` ids; None for several, or with images."""
    if not text.startswith(IDS) or PART in text:
        return None
    head = text[1 : 1 + MAX_IDS * _ID_BYTES]
    commas = np.flatnonzero(np.frombuffer(head, np.uint8) == ord(","))[:MAX_IDS]
    if not commas.size:
        return None
    try:
        numbers = array("Q", _numbers(b"[%b]" % head[: commas[-1]]))
    except (msgspec.DecodeError, OverflowError):
        return None
    return PromptTokens(np.frombuffer(numbers, np.uint64), len(numbers) == count, count)
