"""KV-cache event batches of vLLM and SGLang to events, from any of their encodings. Never raises on bytes.

A batch is an array `[ts, events, data_parallel_rank?]`, or a map with these names. An event is an array that
begins with its kind (vLLM up to 0.20) or a map with its kind under `type` (vLLM from 0.24 on, SGLang).
Hashes are unsigned integers, signed ones (SGLang), or bytes; all become the low 64 bits, unsigned, which is
how vLLM itself shortens them. Source: vllm/distributed/kv_events.py, sglang/srt/disaggregation/kv_events.py.

What other versions add to an event is passed over, as are events of other kinds; these are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MAX_EVENTS: Final = 65_536
"""Events of a batch that are read; a longer batch is malformed."""
MAX_BLOCKS: Final = 256
"""Blocks of one `Stored`; longer ones come as several, so that each is little work."""
MAX_BLOCK_TOKENS: Final = 65_536
MAX_NAME_CHARS: Final = 256
_LOW_64: Final = (1 << 64) - 1
_STORED: Final = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
    "extra_keys", "group_idx",
)  # fmt: skip
_REMOVED: Final = ("block_hashes", "medium", "group_idx")
_PREFIX_KINDS: Final = frozenset({"full_attention", "mla_attention"})
"""Kinds of KV cache whose blocks say how much of a prefix is held; a sliding window's say less."""
_FAST_TIERS: Final = frozenset({"", "GPU"})


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


@dataclass(frozen=True, slots=True)
class Batch:
    """What one message told."""

    events: tuple[Event, ...] = ()
    unknown: int = 0
    """Events of kinds that are not known here."""
    malformed: int = 0
    """Events that could not be read although their kind is known; 1 for a batch that could not."""


class _MalformedError(Exception):
    pass


_decode: Final = msgspec.msgpack.Decoder().decode
_encode: Final = msgspec.msgpack.Encoder().encode


def decode_batch(payload: bytes) -> Batch:
    """Read one message's payload."""
    try:
        told = _decode(payload)
    except (msgspec.DecodeError, RecursionError, ValueError, TypeError, OverflowError):
        return Batch(malformed=1)
    listed = told.get("events") if isinstance(told, dict) else None
    if isinstance(told, list) and len(told) > 1:
        listed = told[1]
    if not isinstance(listed, list) or len(listed) > MAX_EVENTS:
        return Batch(malformed=1)
    events: list[Event] = []
    unknown = malformed = 0
    for entry in listed:
        try:
            read = _event(entry)
        except _MalformedError:
            malformed += 1
            continue
        if read is None:
            unknown += 1
        else:
            events += read
    return Batch(tuple(events), unknown, malformed)


def extra_of_salt(salt: str) -> bytes:
    """Return what the first block's `extras` are for a request with this `cache_salt`; b"" without one."""
    return _encode([salt]) if salt else b""


def _event(entry: object) -> list[Event] | None:
    """Return the event, in several parts if it is long, [] for one to ignore; None: an unknown kind."""
    if isinstance(entry, dict):
        kind, fields = entry.get("type"), entry
    elif isinstance(entry, list) and entry:
        kind = entry[0]
        names = _STORED if kind == "BlockStored" else _REMOVED
        fields = dict(zip(names, entry[1:], strict=False))
    else:
        raise _MalformedError
    if kind == "BlockStored":
        return list(_stored(fields))
    if kind == "BlockRemoved":
        if not _counts(fields):
            return []
        return [Removed(_hashes(fields), _tier(fields))]
    return [Cleared()] if kind == "AllBlocksCleared" else None


def _counts(fields: dict[Any, Any]) -> bool:
    """Tell whether the event is of the KV cache whose blocks reach back to the prompt's first token.

    Models that mix kinds of attention have several caches, and tell the same hashes of each.
    """
    kind = fields.get("kv_cache_spec_kind")
    return kind in _PREFIX_KINDS if isinstance(kind, str) else not fields.get("group_idx")


def _stored(fields: dict[Any, Any]) -> Iterator[Stored]:
    if not _counts(fields):
        return
    hashes, parent = _hashes(fields), fields.get("parent_block_hash")
    before = None if parent is None else _hash(parent)
    size, tier, adapter = fields.get("block_size"), _tier(fields), _adapter(fields)
    tokens = _tokens(fields.get("token_ids"))
    if tokens is None:
        yield Stored(hashes, before, None, 0, tier, adapter)
        return
    if not isinstance(size, int) or not 0 < size <= MAX_BLOCK_TOKENS or len(tokens) != size * len(hashes):
        raise _MalformedError
    extras = _extras(fields.get("extra_keys"), len(hashes), adapter)
    for start in range(0, len(hashes), MAX_BLOCKS):
        end = start + MAX_BLOCKS
        yield Stored(
            hashes[start:end],
            hashes[start - 1] if start else before,
            tokens[start * size : end * size],
            size,
            tier,
            adapter,
            extras[start:end],
        )


def _hashes(fields: dict[Any, Any]) -> tuple[int, ...]:
    listed = fields.get("block_hashes")
    if not isinstance(listed, list):
        raise _MalformedError
    return tuple([_hash(entry) for entry in listed])


def _hash(told: object) -> int:
    if type(told) is int:
        return told & _LOW_64
    if isinstance(told, bytes) and told:
        return int.from_bytes(told[-8:], "big")
    raise _MalformedError


def _tier(fields: dict[Any, Any]) -> Tier:
    medium = fields.get("medium")
    if medium is None:
        return Tier.FAST
    if not isinstance(medium, str):
        raise _MalformedError
    return Tier.FAST if medium.upper() in _FAST_TIERS else Tier.SLOW


def _adapter(fields: dict[Any, Any]) -> str:
    name, number = fields.get("lora_name"), fields.get("lora_id")
    if isinstance(name, str):
        return name[:MAX_NAME_CHARS]
    return "" if number is None else f"\0{number}"[:MAX_NAME_CHARS]


def _tokens(told: object) -> NDArray[np.uint64] | None:
    if told is None or told == []:
        return None
    try:
        tokens = np.array(told)
    except (ValueError, TypeError, OverflowError):
        raise _MalformedError from None
    # Images stand in a prompt as negative ids in some versions: any number will do.
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise _MalformedError
    return tokens.astype(np.uint64)


def _extras(told: object, count: int, adapter: str) -> tuple[bytes, ...]:
    if told is None or told == []:
        return ()
    if not isinstance(told, list) or len(told) != count:
        raise _MalformedError
    extras = []
    for keys in told:
        if keys is None:
            extras.append(b"")
            continue
        if not isinstance(keys, list):
            raise _MalformedError
        # The adapter is part of every block's identity already.
        rest = keys[1:] if adapter and keys[:1] == [adapter] else keys
        try:
            extras.append(_encode(rest) if rest else b"")
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise _MalformedError from None
    return tuple(extras) if any(extras) else ()
