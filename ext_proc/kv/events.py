"""KV-cache event batches of vLLM and SGLang to events, from any of their encodings. Never raises on bytes.

A message is MessagePack: an array `[ts, events, data_parallel_rank?]`, or a map with these names. An event is
an array that begins with its kind (vLLM up to 0.20) or a map with its kind under `type` (vLLM from 0.24 on,
SGLang). Hashes are unsigned integers, signed ones (SGLang), or bytes; all become the low 64 bits, unsigned,
which is how vLLM itself shortens them. Source: vllm/distributed/kv_events.py,
sglang/srt/disaggregation/kv_events.py.

Fields that other versions add to an event are skipped, as are events of other kinds; these are counted.
Everything is decoded to fields of known types, and only as far as it is used: a generic decoder makes a
million objects of a megabyte of empty lists, which would stop the loop.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
import numpy as np
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

MAX_EVENTS: Final = 65_536
"""Events of a batch; a longer batch is malformed."""
MAX_EVENT_BLOCKS: Final = 65_536
"""Blocks of an event in its message."""
MAX_BLOCKS: Final = 256
"""Blocks of one `Stored` or `Removed`, and ..."""
MAX_TOKENS_AT_ONCE: Final = 65_536
"""... tokens of a `Stored`; longer ones come as several, so that each is little work."""
MAX_BLOCK_TOKENS: Final = 65_536
MAX_NAME_CHARS: Final = 256
MAX_EXTRAS: Final = 16
"""Parts of one block's further identity that are decoded."""
_LOW_64: Final = (1 << 64) - 1
_KINDS: Final = frozenset({"BlockStored", "BlockRemoved", "AllBlocksCleared"})
_PREFIX_KINDS: Final = frozenset({"full_attention", "mla_attention"})
"""Kinds of KV cache whose blocks prove a cached prefix; a sliding window's prove less."""
_FAST_TIERS: Final = frozenset({"", "GPU"})
_ABSENT: Final = Raw(b"")
_NIL: Final = b"\xc0"
_FIRST_GROUP: Final = frozenset({b"", _NIL, b"\x00"})
"""Absent, nil or 0."""
_ARRAYS: Final = frozenset(bytes([first]) for first in (*range(0x90, 0xA0), 0xDC, 0xDD))
"""The first bytes of arrays."""
_FAULTS: Final = (ValueError, RecursionError, TypeError, OverflowError)
"""The exceptions of decoding."""

_Hash: TypeAlias = int | bytes
_Hashes: TypeAlias = Annotated[list[_Hash], msgspec.Meta(max_length=MAX_EVENT_BLOCKS)]
_Entries: TypeAlias = Annotated[list[Raw], msgspec.Meta(max_length=MAX_EVENTS)]


class Tier(Enum):
    """The memory of a block."""

    FAST = "fast"
    """The GPU's: ready for use."""
    SLOW = "slow"
    """Host memory, a disk or another: loaded before use, which is still cheaper than to compute it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Consecutive blocks that were filled."""

    hashes: tuple[int, ...]
    parent: int | None
    """The block before the first one; None: the prompt begins with them."""
    tokens: NDArray[np.uint64] | None
    """Of all blocks, in order; None if the event has none (a tier that publishes hashes only)."""
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
    """The whole cache was dropped."""


Event: TypeAlias = Stored | Removed | Cleared


class Fault(Enum):
    """Stands for an event that cannot be read."""

    UNKNOWN = "unknown"
    """Its kind is unknown."""
    MALFORMED = "malformed"
    """Its kind is known and it could not be read, or the whole message could not."""


class _MalformedError(Exception):
    pass


class _BatchArray(msgspec.Struct, array_like=True, gc=False):
    ts: Raw
    events: _Entries


class _BatchMap(msgspec.Struct, gc=False):
    events: _Entries


class _StoredArray(msgspec.Struct, array_like=True, tag_field="type", tag="BlockStored", gc=False):
    block_hashes: _Hashes
    parent_block_hash: _Hash | None = None
    token_ids: list[int] | None = None
    block_size: int | None = None
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Annotated[list[Raw], msgspec.Meta(max_length=MAX_EVENT_BLOCKS)] | None = None
    group_idx: Raw = _ABSENT


class _StoredMap(_StoredArray, array_like=False, tag="BlockStored", gc=False):
    kv_cache_spec_kind: str | None = None


class _RemovedArray(msgspec.Struct, array_like=True, tag_field="type", tag="BlockRemoved", gc=False):
    block_hashes: _Hashes
    medium: str | None = None
    group_idx: Raw = _ABSENT


class _RemovedMap(_RemovedArray, array_like=False, tag="BlockRemoved", gc=False):
    kv_cache_spec_kind: str | None = None


class _ClearedArray(msgspec.Struct, array_like=True, tag_field="type", tag="AllBlocksCleared", gc=False):
    pass


class _ClearedMap(_ClearedArray, array_like=False, tag="AllBlocksCleared", gc=False):
    pass


class _KindArray(msgspec.Struct, array_like=True, gc=False):
    type: Raw


class _KindMap(msgspec.Struct, gc=False):
    type: Raw = _ABSENT


_batch_array: Final = msgspec.msgpack.Decoder(_BatchArray).decode
_batch_map: Final = msgspec.msgpack.Decoder(_BatchMap).decode
_event_array: Final = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray).decode
_event_map: Final = msgspec.msgpack.Decoder(_StoredMap | _RemovedMap | _ClearedMap).decode
_kind_array: Final = msgspec.msgpack.Decoder(_KindArray).decode
_kind_map: Final = msgspec.msgpack.Decoder(_KindMap).decode
_extra_parts: Final = msgspec.msgpack.Decoder(
    Annotated[list[Raw], msgspec.Meta(max_length=MAX_EXTRAS)]
).decode
_string: Final = msgspec.msgpack.Decoder(str).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def events_of(payload: bytes) -> Iterator[Event | Fault | None]:
    """Yield one message's events, in order; None is a pause. Little work is done between two of them."""
    try:
        entries = (_batch_array if _is_array(payload) else _batch_map)(payload).events
    except _FAULTS:
        yield Fault.MALFORMED
        return
    for entry in entries:
        try:
            yield from _events(entry)
        except _MalformedError:
            yield Fault.MALFORMED
        yield None


def extra_of_salt(salt: str) -> bytes:
    """Return the first block's `extras` for a request with this `cache_salt`; b"" without one."""
    return _encode([salt]) if salt else b""


def _events(entry: Raw) -> Iterator[Event | Fault]:
    """Yield the event, in several parts if it is long; nothing for one of another KV cache."""
    try:
        event: _StoredArray | _RemovedArray | _ClearedArray = (
            _event_array if _is_array(entry) else _event_map
        )(entry)
    except _FAULTS:
        yield _fault_of(entry)
        return
    if isinstance(event, _ClearedArray):
        yield Cleared()
    elif not _is_of_prefixes(event):
        return
    elif isinstance(event, _StoredArray):
        yield from _stored(event)
    else:
        tier = _tier(event.medium)
        for start in range(0, len(event.block_hashes), MAX_BLOCKS):
            yield Removed(_ints(event.block_hashes[start : start + MAX_BLOCKS]), tier)


def _fault_of(entry: Raw) -> Fault:
    try:
        kind = _text((_kind_array if _is_array(entry) else _kind_map)(entry).type)
    except _FAULTS:
        return Fault.MALFORMED
    return Fault.MALFORMED if kind in _KINDS else Fault.UNKNOWN


def _is_of_prefixes(event: _StoredArray | _RemovedArray) -> bool:
    """Tell whether the event is of the KV cache whose blocks reach back to the prompt's first token.

    Models with several kinds of attention have several caches, and publish the same hashes for each.
    """
    kind: str | None = getattr(event, "kv_cache_spec_kind", None)
    return bytes(event.group_idx) in _FIRST_GROUP if kind is None else kind in _PREFIX_KINDS


def _stored(event: _StoredArray) -> Iterator[Stored]:
    hashes, tokens, extras = event.block_hashes, event.token_ids or (), event.extra_keys or ()
    size, tier, adapter = event.block_size or 0, _tier(event.medium), _adapter(event)
    before = None if event.parent_block_hash is None else _int(event.parent_block_hash)
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
        part = _ints(hashes[start:end])
        ids = _ids(tokens[start * size : end * size]) if tokens else None
        further = [_extra(raw, adapter) for raw in extras[start:end]]
        yield Stored(part, before, ids, size, tier, adapter, tuple(further) if any(further) else ())
        before = part[-1]


def _ints(hashes: Sequence[_Hash]) -> tuple[int, ...]:
    return tuple([_int(entry) for entry in hashes])


def _int(number: _Hash) -> int:
    if isinstance(number, int):
        return number & _LOW_64
    if number:
        return int.from_bytes(number[-8:], "big")
    raise _MalformedError


def _tier(medium: str | None) -> Tier:
    return Tier.FAST if medium is None or medium.upper() in _FAST_TIERS else Tier.SLOW


def _adapter(event: _StoredArray) -> str:
    name, number = event.lora_name, event.lora_id
    if name is not None:
        return name[:MAX_NAME_CHARS]
    return "" if number is None else f"\0{number}"[:MAX_NAME_CHARS]


def _ids(tokens: Sequence[int]) -> NDArray[np.uint64]:
    # Some versions write images in a prompt as negative ids: any number will do.
    for typecode in "Qq":
        try:
            return np.frombuffer(array(typecode, tokens), np.uint64)
        except OverflowError:
            continue
    raise _MalformedError


def _extra(raw: Raw, adapter: str) -> bytes:
    """Return one block's further identity, in our own encoding; b"" without one."""
    if bytes(raw) == _NIL:
        return b""
    if not _is_array(raw):
        raise _MalformedError
    try:
        parts = _extra_parts(raw)
    except _FAULTS:
        # No request's salt has this many parts: it is enough that they differ.
        return bytes(raw)
    keys = [part if (text := _text(part)) is None else text for part in parts]
    # The adapter is part of every block's identity already.
    rest = keys[1:] if adapter and keys[:1] == [adapter] else keys
    return _encode(rest) if rest else b""


def _is_array(raw: bytes | Raw) -> bool:
    return bytes(memoryview(raw)[:1]) in _ARRAYS


def _text(raw: Raw) -> str | None:
    """Return a string; None for anything else."""
    try:
        return _string(raw)
    except _FAULTS:
        return None
