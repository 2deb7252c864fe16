"""KV-cache event batches of vLLM and SGLang to events, from any of their encodings. Never raises on bytes.

A batch is an array `[ts, events, data_parallel_rank?]`, or a map with these names. An event is an array that
begins with its kind (vLLM up to 0.20) or a map with its kind under `type` (vLLM from 0.24 on, SGLang).
Hashes are unsigned integers, signed ones (SGLang), or bytes; all become the low 64 bits, unsigned, which is
how vLLM itself shortens them. Source: vllm/distributed/kv_events.py, sglang/srt/disaggregation/kv_events.py.

What other versions add to an event is passed over, as are events of other kinds; these are counted.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from ext_proc.kv.wire import (
    FAULTS,
    KINDS,
    ClearedArray,
    RemovedArray,
    StoredArray,
    entries_of,
    is_array,
    kind_of,
    parts_of,
    text_in,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msgspec import Raw
    from numpy.typing import NDArray

    from ext_proc.kv.wire import Hash

MAX_BLOCKS: Final = 256
"""Blocks of one `Stored` or `Removed`, and ..."""
MAX_TOKENS_AT_ONCE: Final = 65_536
"""... tokens of a `Stored`; longer ones come as several, so that each is little work."""
MAX_BLOCK_TOKENS: Final = 65_536
MAX_NAME_CHARS: Final = 256
_LOW_64: Final = (1 << 64) - 1
_PREFIX_KINDS: Final = frozenset({"full_attention", "mla_attention"})
"""Kinds of KV cache whose blocks say how much of a prefix is held; a sliding window's say less."""
_FAST_TIERS: Final = frozenset({"", "GPU"})
_NIL: Final = b"\xc0"
_NO_GROUP: Final = frozenset({b"", _NIL, b"\x00"})
"""Absent, nothing, or the first group."""


class Tier(Enum):
    """Where a block lies."""

    FAST = "fast"
    """In the GPU's memory: nothing to do but use it."""
    SLOW = "slow"
    """In host memory, on a disk or elsewhere: to be loaded, which is still cheaper than to compute it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks that follow each other, and were filled."""

    hashes: tuple[int, ...]
    parent: int | None
    """The block before the first one; None: a prompt begins there."""
    tokens: NDArray[np.uint64] | None
    """Of all blocks, in order; None where the event has none (a tier that only tells hashes)."""
    block_tokens: int
    tier: Tier = Tier.FAST
    adapter: str = ""
    """The LoRA adapter's name; without a name, its number behind a NUL, which no request can spell."""
    extras: tuple[bytes, ...] = ()
    """What else the engine made part of each block's identity: salt, images. Empty: nothing of any block."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks that were evicted, each once."""

    hashes: tuple[int, ...]
    tier: Tier = Tier.FAST


@dataclass(frozen=True, slots=True)
class Cleared:
    """Everything was dropped."""


Event: TypeAlias = Stored | Removed | Cleared


class Fault(Enum):
    """What stands in the place of an event that cannot be had."""

    UNKNOWN = "unknown"
    """Its kind is not known here."""
    MALFORMED = "malformed"
    """It could not be read although its kind is known, or the whole message could not."""


class _MalformedError(Exception):
    pass


_encode: Final = msgspec.msgpack.Encoder().encode


def events_of(payload: bytes) -> Iterator[Event | Fault | None]:
    """Yield what one message tells, in order; None is a rest. Little work is done between two of them."""
    try:
        entries = entries_of(payload)
    except FAULTS:
        yield Fault.MALFORMED
        return
    for entry in entries:
        try:
            yield from _events(entry)
        except _MalformedError:
            yield Fault.MALFORMED
        yield None


def extra_of_salt(salt: str) -> bytes:
    """Return what the first block's `extras` are for a request with this `cache_salt`; b"" without one."""
    return _encode([salt]) if salt else b""


def _events(entry: Raw) -> Iterator[Event | Fault]:
    """Yield the event, in several parts if it is long; nothing for one to ignore."""
    try:
        event = told(entry)
    except FAULTS:
        yield _fault_of(entry)
        return
    if isinstance(event, ClearedArray):
        yield Cleared()
    elif not _counts(event):
        return
    elif isinstance(event, StoredArray):
        yield from _stored(event)
    else:
        tier = _tier(event.medium)
        for start in range(0, len(event.block_hashes), MAX_BLOCKS):
            yield Removed(_hashes(event.block_hashes[start : start + MAX_BLOCKS]), tier)


def _fault_of(entry: Raw) -> Fault:
    try:
        known = kind_of(entry) in KINDS
    except FAULTS:
        known = True
    return Fault.MALFORMED if known else Fault.UNKNOWN


def _counts(event: StoredArray | RemovedArray) -> bool:
    """Tell whether the event is of the KV cache whose blocks reach back to the prompt's first token.

    Models that mix kinds of attention have several caches, and tell the same hashes of each.
    """
    kind: str | None = getattr(event, "kv_cache_spec_kind", None)
    return bytes(event.group_idx) in _NO_GROUP if kind is None else kind in _PREFIX_KINDS


def _stored(event: StoredArray) -> Iterator[Stored]:
    hashes, tokens, extras = event.block_hashes, event.token_ids or (), event.extra_keys or ()
    size, tier, adapter = event.block_size or 0, _tier(event.medium), _adapter(event)
    before = None if event.parent_block_hash is None else _hash(event.parent_block_hash)
    at_once = MAX_BLOCKS
    if not tokens:
        size, extras = 0, ()
    elif not 0 < size <= MAX_BLOCK_TOKENS or len(tokens) != size * len(hashes):
        raise _MalformedError
    else:
        at_once = min(at_once, max(1, MAX_TOKENS_AT_ONCE // size))
    if extras and len(extras) != len(hashes):
        raise _MalformedError
    for start in range(0, len(hashes), at_once):
        end = start + at_once
        part = _hashes(hashes[start:end])
        ids = _ids(tokens[start * size : end * size]) if tokens else None
        yield Stored(part, before, ids, size, tier, adapter, _extras(extras[start:end], adapter))
        before = part[-1]


def _hashes(listed: Sequence[Hash]) -> tuple[int, ...]:
    return tuple([_hash(entry) for entry in listed])


def _hash(number: Hash) -> int:
    if isinstance(number, int):
        return number & _LOW_64
    if number:
        return int.from_bytes(number[-8:], "big")
    raise _MalformedError


def _tier(medium: str | None) -> Tier:
    return Tier.FAST if medium is None or medium.upper() in _FAST_TIERS else Tier.SLOW


def _adapter(event: StoredArray) -> str:
    name, number = event.lora_name, event.lora_id
    if name is not None:
        return name[:MAX_NAME_CHARS]
    return "" if number is None else f"\0{number}"[:MAX_NAME_CHARS]


def _ids(tokens: Sequence[int]) -> NDArray[np.uint64]:
    try:
        numbers = array("Q", tokens)
    except OverflowError:
        # Images stand in a prompt as negative ids in some versions: any number will do.
        try:
            numbers = array("q", tokens)
        except OverflowError:
            raise _MalformedError from None
    return np.frombuffer(numbers, np.uint64)


def _extras(raws: Sequence[Raw], adapter: str) -> tuple[bytes, ...]:
    extras = [_extra(raw, adapter) for raw in raws]
    return tuple(extras) if any(extras) else ()


def _extra(raw: Raw, adapter: str) -> bytes:
    """Return one block's further identity, in an encoding of ours; b"" without one."""
    if bytes(raw) == _NIL:
        return b""
    if not is_array(raw):
        raise _MalformedError
    try:
        parts = parts_of(raw)
    except FAULTS:
        # So many parts are no request's salt: they only need to be told apart.
        return bytes(raw)
    keys = [part if (text := text_in(part)) is None else text for part in parts]
    # The adapter is part of every block's identity already.
    rest = keys[1:] if adapter and keys[:1] == [adapter] else keys
    return _encode(rest) if rest else b""
