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

VERSION: Final = 2
HASH_BYTES: Final = 8
MAX_BATCH_BLOCKS: Final = 4096
"""Limit of a written batch, unless one prompt has more. Each entry has a block, so it limits entries too."""
_MAX_BLOCKS: Final = 65_536
"""Of one prompt: the maximum of `limits.prompt_blocks`."""
_MAX_BYTES: Final = 1 << 20
"""No worker writes a larger batch, and reading it would take long."""


class Addition(NamedTuple):
    """A prompt's leading blocks, and the endpoint that is warm for them now."""

    address: str
    blocks: Sequence[int]


class BatchError(ValueError):
    """The bytes are no batch of this version."""


class _Entry(msgspec.Struct, array_like=True):
    address: Annotated[int, msgspec.Meta(ge=0)]
    earlier: Annotated[int, msgspec.Meta(ge=0)]
    """The entry with its first `common` blocks."""
    common: Annotated[int, msgspec.Meta(ge=0, le=_MAX_BLOCKS)]
    rest: Annotated[bytes, msgspec.Meta(max_length=_MAX_BLOCKS * HASH_BYTES)]
    """The other hashes, 8 bytes each, lowest byte first."""


class _Batch(msgspec.Struct, array_like=True):
    version: int
    block_bytes: int
    """Bytes of prompt in a block; hashes of blocks of another size mean nothing here."""
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
    """Yield a batch's additions one by one, each with at most `longest` leading blocks.

    It yields at most `MAX_BATCH_BLOCKS` additions with about as many blocks in all, as a worker writes them.

    Raises:
        BatchError: the data is no batch, or one of another version or block size.
    """
    if len(data) > _MAX_BYTES:
        raise BatchError("too large")
    try:
        batch = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BatchError("no batch") from error
    if batch.version != VERSION or batch.block_bytes != block_bytes:
        raise BatchError("of another version or block size")
    earlier: list[list[int]] = []
    remaining = MAX_BATCH_BLOCKS + longest
    for entry in batch.entries:
        earlier.append(_blocks(entry, earlier, longest))
        remaining -= len(earlier[-1])
        if remaining < 0:
            return
        if entry.address >= len(batch.addresses):
            raise BatchError("an entry without its address")
        yield Addition(batch.addresses[entry.address], earlier[-1])


def _blocks(entry: _Entry, earlier: Sequence[list[int]], longest: int) -> list[int]:
    if len(entry.rest) % HASH_BYTES:
        raise BatchError("half a hash")
    common = min(entry.common, longest)
    rest: list[int] = np.frombuffer(entry.rest, "<u8")[: longest - common].tolist()
    if not common:
        return rest
    if entry.earlier >= len(earlier) or len(earlier[entry.earlier]) < common:
        raise BatchError("an entry without its earlier one")
    return [*earlier[entry.earlier][:common], *rest]


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the number of equal leading blocks: equal hashes at one place mean equal ones before it."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[middle - 1] == right[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
