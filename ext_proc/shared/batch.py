"""A batch of index additions as bytes: addresses and hashes, nothing of any prompt's text. Pure.

A prompt's blocks are chained hashes, so two prompts that share one block share all before it. An entry names
how many leading blocks it has in common with an earlier entry of its batch and carries the rest only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION: Final = 1
HASH_BYTES: Final = 8
MAX_BATCH_BLOCKS: Final = 4096
"""Of a batch that is written, unless one prompt has more. Each entry has one: it is its most entries."""
_MAX_BLOCKS: Final = 65_536
"""Of one prompt: the most that `limits.prompt_blocks` can be."""
_MAX_BYTES: Final = 1 << 20
"""A larger batch is none of ours, and would take long to read."""


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
    addresses: Annotated[list[str], msgspec.Meta(max_length=MAX_BATCH_BLOCKS)]
    entries: Annotated[list[_Entry], msgspec.Meta(max_length=MAX_BATCH_BLOCKS)]


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


def decode(data: bytes, block_bytes: int, longest: int) -> Iterator[Addition]:
    """Yield a batch's additions, of each prompt the leading `longest` blocks, as fast as they are asked for.

    At most `MAX_BATCH_BLOCKS` of them, with about as many blocks in all: what is beyond is none of ours.

    Raises:
        BatchError: it is no batch, of another version, or of blocks of another size.
    """
    if len(data) > _MAX_BYTES:
        raise BatchError("too large")
    try:
        batch = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BatchError("no batch") from error
    if batch.version != VERSION or batch.block_bytes != block_bytes:
        raise BatchError("of another version or block size")
    before: list[list[int]] = []
    left = MAX_BATCH_BLOCKS + longest
    for entry in batch.entries:
        before.append(_blocks(entry, before, longest))
        left -= len(before[-1])
        if left < 0:
            return
        if entry.address >= len(batch.addresses):
            raise BatchError("an entry without its address")
        yield Addition(batch.addresses[entry.address], before[-1])


def _blocks(entry: _Entry, before: Sequence[list[int]], longest: int) -> list[int]:
    if len(entry.rest) % HASH_BYTES:
        raise BatchError("half a hash")
    common = min(entry.common, longest)
    rest: list[int] = np.frombuffer(entry.rest, "<u8")[: longest - common].tolist()
    if not common:
        return rest
    if entry.earlier >= len(before) or len(before[entry.earlier]) < common:
        raise BatchError("an entry without the one before")
    return [*before[entry.earlier][:common], *rest]


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
