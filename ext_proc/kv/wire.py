"""How KV-event messages are written, as far as they are read: MessagePack, in arrays or maps.

Everything is decoded to fields of known types, and only as far as it is needed: a generic decoder makes a
million objects of a megabyte of empty lists, for which the loop would stand still.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Raw

MAX_EVENTS: Final = 65_536
"""Events of a batch that are read; a longer batch is malformed."""
MAX_EVENT_BLOCKS: Final = 65_536
"""Blocks of an event as it is told."""
MAX_EXTRAS: Final = 16
"""Parts of one block's further identity that are looked into."""
KINDS: Final = frozenset({"BlockStored", "BlockRemoved", "AllBlocksCleared"})
FAULTS: Final = (msgspec.DecodeError, RecursionError, ValueError, TypeError, OverflowError)
"""What decoding raises."""
ABSENT: Final = Raw(b"")
_ARRAYS: Final = frozenset(bytes([first]) for first in (*range(0x90, 0xA0), 0xDC, 0xDD))

Hash: TypeAlias = int | bytes
Hashes: TypeAlias = Annotated[list[Hash], msgspec.Meta(max_length=MAX_EVENT_BLOCKS)]
_Entries: TypeAlias = Annotated[list[Raw], msgspec.Meta(max_length=MAX_EVENTS)]


class _BatchArray(msgspec.Struct, array_like=True, gc=False):
    ts: Raw
    events: _Entries


class _BatchMap(msgspec.Struct, gc=False):
    events: _Entries


class StoredArray(msgspec.Struct, array_like=True, tag_field="type", tag="BlockStored", gc=False):
    """Blocks that were filled, in a row."""

    block_hashes: Hashes
    parent_block_hash: Hash | None = None
    token_ids: list[int] | None = None
    block_size: int | None = None
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Annotated[list[Raw], msgspec.Meta(max_length=MAX_EVENT_BLOCKS)] | None = None
    group_idx: Raw = ABSENT


class StoredMap(StoredArray, array_like=False, tag="BlockStored", gc=False):
    """The same as a map."""

    kv_cache_spec_kind: str | None = None


class RemovedArray(msgspec.Struct, array_like=True, tag_field="type", tag="BlockRemoved", gc=False):
    """Blocks that were evicted."""

    block_hashes: Hashes
    medium: str | None = None
    group_idx: Raw = ABSENT


class RemovedMap(RemovedArray, array_like=False, tag="BlockRemoved", gc=False):
    """The same as a map."""

    kv_cache_spec_kind: str | None = None


class ClearedArray(msgspec.Struct, array_like=True, tag_field="type", tag="AllBlocksCleared", gc=False):
    """Everything was dropped."""


class ClearedMap(ClearedArray, array_like=False, tag="AllBlocksCleared", gc=False):
    """The same as a map."""


class _KindArray(msgspec.Struct, array_like=True, gc=False):
    type: Raw


class _KindMap(msgspec.Struct, gc=False):
    type: Raw = ABSENT


_batch_array: Final = msgspec.msgpack.Decoder(_BatchArray).decode
_batch_map: Final = msgspec.msgpack.Decoder(_BatchMap).decode
_told_array: Final = msgspec.msgpack.Decoder(StoredArray | RemovedArray | ClearedArray).decode
_told_map: Final = msgspec.msgpack.Decoder(StoredMap | RemovedMap | ClearedMap).decode
_kind_array: Final = msgspec.msgpack.Decoder(_KindArray).decode
_kind_map: Final = msgspec.msgpack.Decoder(_KindMap).decode
_extra_parts: Final = msgspec.msgpack.Decoder(
    Annotated[list[Raw], msgspec.Meta(max_length=MAX_EXTRAS)]
).decode
_string: Final = msgspec.msgpack.Decoder(str).decode


def entries_of(payload: bytes) -> list[Raw]:
    """Return a message's events, undecoded. Raises one of `FAULTS`."""
    return (_batch_array if is_array(payload) else _batch_map)(payload).events


def told(entry: Raw) -> StoredArray | RemovedArray | ClearedArray:
    """Return an event; raises one of `FAULTS`, for one of an unknown kind as well."""
    event: StoredArray | RemovedArray | ClearedArray = (_told_array if is_array(entry) else _told_map)(entry)
    return event


def kind_of(entry: Raw) -> str | None:
    """Return the kind of an event that is not understood otherwise. Raises one of `FAULTS`."""
    return text_in((_kind_array if is_array(entry) else _kind_map)(entry).type)


def parts_of(raw: Raw) -> list[Raw]:
    """Return the parts of one block's further identity. Raises one of `FAULTS`, for too many as well."""
    return _extra_parts(raw)


def is_array(raw: bytes | Raw) -> bool:
    """Whether it begins as an array does."""
    return bytes(memoryview(raw)[:1]) in _ARRAYS


def text_in(raw: Raw) -> str | None:
    """Return a string; None for anything else."""
    try:
        return _string(raw)
    except FAULTS:
        return None
