"""A batch of index additions as bytes: addresses and hashes, nothing of any prompt's text. Pure.

A prompt's blocks are chained hashes, so two prompts that share one block share all before it. An entry names
how many leading blocks it has in common with an earlier entry of its batch and carries the rest only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1
HASH_BYTES: Final = 8
_MAX_ENTRIES: Final = 65_536
_MAX_BLOCKS: Final = 65_536
"""Of one prompt: the most that `limits.prompt_blocks` can be."""


class Addition(NamedTuple):
    """A prompt's leading blocks and the endpoint that is warm for them now."""

    address: str
    blocks: Sequence[int]


class BatchError(ValueError):
    """The bytes are no batch that this version understands."""


class _Entry(msgspec.Struct, array_like=True):
    address: Annotated[int, msgspec.Meta(ge=0)]
    earlier: Annotated[int, msgspec.Meta(ge=0)]
    """Which entry its first `common` blocks are taken from."""
    common: Annotated[int, msgspec.Meta(ge=0, le=_MAX_BLOCKS)]
    rest: Annotated[bytes, msgspec.Meta(max_length=_MAX_BLOCKS * HASH_BYTES)]
    """The other hashes, 8 bytes each, lowest byte first."""


class _Batch(msgspec.Struct, array_like=True):
    version: int
    block_bytes: int
    """Bytes of prompt in a block: hashes of blocks of another size mean nothing here."""
    addresses: Annotated[list[str], msgspec.Meta(max_length=_MAX_ENTRIES)]
    entries: Annotated[list[_Entry], msgspec.Meta(max_length=_MAX_ENTRIES)]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Batch).decode


def encode(additions: Sequence[Addition], block_bytes: int) -> bytes:
    """Return a batch as bytes."""
    addresses: dict[str, int] = {}
    entries: list[_Entry] = []
    newest: dict[int, int] = {}
    """First block to the newest entry that begins with it."""
    for position, (address, blocks) in enumerate(additions):
        number = addresses.setdefault(address, len(addresses))
        earlier = newest.get(blocks[0], position) if blocks else position
        common = 0 if earlier == position else _common(additions[earlier].blocks, blocks)
        rest = np.fromiter(blocks[common:], "<u8", len(blocks) - common).tobytes()
        entries.append(_Entry(number, 0 if earlier == position else earlier, common, rest))
        if blocks:
            newest[blocks[0]] = position
    return _encode(_Batch(VERSION, block_bytes, list(addresses), entries))


def decode(data: bytes, block_bytes: int, most_blocks: int) -> list[Addition]:
    """Return a batch's additions; of one with more than `most_blocks` blocks in all, those before.

    Raises:
        BatchError: it is no batch, of another version, or of blocks of another size.
    """
    try:
        batch = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BatchError("no batch") from error
    if batch.version != VERSION or batch.block_bytes != block_bytes:
        raise BatchError("of another version or block size")
    additions: list[Addition] = []
    left = most_blocks
    for entry in batch.entries:
        blocks = _blocks(entry, additions)
        left -= len(blocks)
        if left < 0:
            break
        if entry.address >= len(batch.addresses):
            raise BatchError("an entry without its address")
        additions.append(Addition(batch.addresses[entry.address], blocks))
    return additions


def _blocks(entry: _Entry, before: Sequence[Addition]) -> list[int]:
    if len(entry.rest) % HASH_BYTES:
        raise BatchError("half a hash")
    rest: list[int] = np.frombuffer(entry.rest, "<u8").tolist()
    if not entry.common:
        return rest
    if entry.earlier >= len(before) or len(before[entry.earlier].blocks) < entry.common:
        raise BatchError("an entry without the one before")
    return [*before[entry.earlier].blocks[: entry.common], *rest]


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading blocks are the same: equal at one place is equal at all before."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[middle - 1] == right[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
