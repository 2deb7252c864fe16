"""What routing asks of KV events: how much of a prompt each endpoint has, merged with its own estimate.

For each request: `locate`, `merged` with the local index, the pick, and `view.expect` for the first endpoint.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np

from ext_proc.kv.view import Freshness, KvView
from ext_proc.prompt.envelope import Envelope
from ext_proc.prompt.text import IDS, PART, is_null
from fleet.ranks import address_of_rank, rank_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ext_proc.prompt.decode import Prompt
    from ext_proc.prompt.envelope import Members

FRESHNESS_SECONDS: Final = 0.1
"""The freshness of the whole fleet is computed at most this often."""
MAX_IDS: Final = 32_768
"""Tokens of a prompt that are looked up: 2,048 blocks of 16."""
_SHAPING: Final = (
    "messages", "prompt", "text", "tools", "chat_template_kwargs", "add_generation_prompt", "chat_template",
    "documents", "system", "continue_final_message",
)  # fmt: skip
"""Members of a body that chat templates treat each in its own way, ..."""
_IN_MESSAGES: Final = (b'"tool_call', b'"type"')
"""... and parts of messages: calls of tools with their results, and content in parts."""
_IDS_SHAPE: Final = -1
"""Of prompts that are token ids."""
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
    """Tokens of the whole prompt, estimated if only a part is known."""


class TextReader(Protocol):
    """Makes token ids of a request's text or chat."""

    def read(self, envelope: Envelope) -> PromptTokens | None:
        """Return the prompt's tokens; None if the engine's tokens cannot be known. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class KvPrompt:
    """One prompt in the terms of the view."""

    pool: str
    keys: NDArray[np.uint64]
    """Of its prefixes of 1, 2, ... tokens, as far as the tokens are known."""
    whole: bool
    total: int
    shape: int = 0
    """See `shape_of`."""


def shape_of(envelope: Envelope) -> int:
    """Return a number for what a body has of the members that become tokens each in its own way."""
    present = [not is_null(getattr(envelope, name)) for name in _SHAPING]
    messages = bytes(envelope.messages)
    return sum(has << bit for bit, has in enumerate((*present, *(part in messages for part in _IN_MESSAGES))))


@dataclass(frozen=True, slots=True)
class _Pool:
    members: frozenset[str]
    """Addresses of the endpoints that publish events."""
    reader: TextReader | None
    own_models: frozenset[str]
    further_models: frozenset[str]
    """Names that an engine serves besides its own model's: adapters, or other names of the model."""


class KvLookup:
    """Answers for one request at a time; cheap if no endpoint of the pool publishes events."""

    def __init__(self, view: KvView, clock: Callable[[], float], most_blocks: int) -> None:
        self.view = view
        self.most_blocks = most_blocks
        self._clock = clock
        self._pools: dict[str, _Pool] = {}
        self._classified_at = float("-inf")
        self._whole: dict[str, frozenset[str]] = {}
        """By pool."""
        self._partial: frozenset[str] = frozenset()
        self._odd: dict[int, set[str]] = {}
        """By shape: the endpoints at which it is not looked up."""

    def set_pool(
        self,
        pool: str,
        addresses: Iterable[str],
        reader: TextReader | None = None,
        models: Collection[Sequence[str]] = (),
    ) -> None:
        """Set the endpoints of a pool that publish events; without `reader`, only token ids are looked up.

        `models` are the names that each of the pool's endpoints serves, the engine's own model first.
        """
        self._pools[pool] = _Pool(
            frozenset(addresses),
            reader,
            frozenset(names[0] for names in models if names),
            frozenset(name for names in models for name in names[1:]),
        )
        self._classified_at = float("-inf")

    def keep_pools(self, pools: Iterable[str]) -> None:
        """Forget the pools that are not among these."""
        for pool in self._pools.keys() - set(pools):
            del self._pools[pool]

    def locate(self, pool: str, model: str, prompt: Prompt, envelope: Members | None) -> KvPrompt | None:
        """Return the prompt as the pool's engines see it; None: routing uses its own estimate."""
        state = self._pools.get(pool)
        if state is None or not state.members or not prompt.complete or not isinstance(envelope, Envelope):
            return None
        adapter = self._adapter(state, model, prompt.adapter)
        if adapter is None:
            return None
        if prompt.tokens is not None:
            tokens, shape = ids_in(prompt.text, prompt.tokens), _IDS_SHAPE
        elif state.reader is None:
            return None
        else:
            tokens, shape = state.reader.read(envelope), shape_of(envelope)
        if tokens is None or not len(tokens.ids):
            return None
        keys = self.view.keys(tokens.ids, adapter, prompt.salt)
        if keys is None:
            return None
        return KvPrompt(pool, keys, tokens.whole, max(tokens.total, len(keys)), shape)

    def _adapter(self, pool: _Pool, model: str, named: str) -> str | None:
        """Return the adapter under which the pool's engines publish blocks, "" for none; None: unknown.

        It is the one named, otherwise the model if an engine of the pool has published blocks of an adapter
        with that name: vLLM takes an adapter's name for the model's. A model that is neither published nor an
        engine's own may still be an adapter, one without blocks yet or one that engines publish by number.
        """
        adapters = self.view.index.adapters
        name = named or model
        if name and adapters.has(name, pool.members):
            # During an upgrade, some engines publish names and some numbers.
            return None if adapters.numbered(pool.members) else name
        if named or model in pool.further_models:
            return None
        if model and model not in pool.own_models and adapters.numbered(pool.members):
            return None
        return ""

    def merged(
        self, prompt: KvPrompt, local: Mapping[str, int], blocks: int, ranks: int = 1
    ) -> Mapping[str, int]:
        """Return, by address, how many of the prompt's `blocks` leading blocks each endpoint has.

        With `ranks` of each endpoint, from 2 on, names are those of ranks.

        `local` is the caller's own estimate in the same unit. Events replace the estimate of an endpoint if
        all of its blocks are known. If only a part of them or of the prompt is, the larger number counts.
        """
        if blocks < 1:
            return local
        self._classify()
        members = self._pools[prompt.pool].members
        whole, partial = self._whole[prompt.pool], self._partial
        if (odd := self._odd.get(prompt.shape)) is not None:
            whole, partial = whole - odd, partial - odd
        if not whole and not partial:
            return local
        if ranks > 1:
            whole, partial = (self._by_rank(each & members, ranks) for each in (whole, partial))
            members = whole | partial
        cached_tokens = self.view.cached_tokens(prompt.keys, self.most_blocks, by_rank=ranks > 1)
        usable = len(prompt.keys) - 1
        merged = {a: n for a, n in local.items() if a not in whole}
        for address, tokens in cached_tokens.items():
            if address not in members or (address not in whole and address not in partial):
                continue
            cached = min(blocks, round(blocks * tokens / prompt.total))
            block_tokens = self.view.block_tokens(address_of_rank(address))
            exact = address in whole and (prompt.whole or tokens + block_tokens <= usable)
            if not exact:
                cached = max(cached, local.get(address, 0))
            if cached:
                merged[address] = cached
        if not prompt.whole:
            # Too short a leading part without a match proves nothing.
            for address in whole - cached_tokens.keys():
                if address in local and self.view.block_tokens(address_of_rank(address)) > usable:
                    merged[address] = local[address]
        return merged

    def _by_rank(self, addresses: Iterable[str], ranks: int) -> frozenset[str]:
        """Return the names of the ranks that publish events."""
        return frozenset(
            rank_name(address, rank)
            for address in addresses
            for rank in range(min(len(self.view.trackers(address)), ranks))
        )

    def _classify(self) -> None:
        now = self._clock()
        if now - self._classified_at < FRESHNESS_SECONDS:
            return
        self._classified_at = now
        odd: dict[int, set[str]] = {}
        for address in self.view.addresses:
            for shape in self.view.odd_shapes(address):
                odd.setdefault(shape, set()).add(address)
        self._odd = odd
        freshness = {address: self.view.freshness(address) for address in self.view.addresses}
        self._partial = frozenset(a for a, state in freshness.items() if state is Freshness.PARTIAL)
        whole = frozenset(a for a, state in freshness.items() if state is Freshness.WHOLE)
        self._whole = {name: pool.members & whole for name, pool in self._pools.items()}


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
