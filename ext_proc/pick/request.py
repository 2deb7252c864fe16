"""The input of a pick: one prompt, as filters, cost terms and pickers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ext_proc.prompt.blocks import units

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.subset import Subset
    from ext_proc.prefix.popularity import Popularity

WINDOW_SECONDS: Final = 30.0
"""The time over which requests are counted."""
_HASH_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


class PickRequest(msgspec.Struct, frozen=True):
    """One prompt for one pool."""

    leading_hash: int
    """64-bit hash of the leading block (of the whole text when it is shorter than a block)."""
    blocks: Sequence[int]
    """Chained hashes of the prompt's full blocks."""
    text_bytes: int
    matched: NDArray[np.int64]
    """How many of the blocks each endpoint of the pool holds, in the pool's order; at most all."""
    now: float
    """Seconds on the director's clock."""
    explain: bool = False
    """Whether the decision should list more endpoints than it names."""
    popularity: Popularity | None = None
    """How many recent requests shared its leading blocks; None: nobody counts."""
    session: str = ""
    """The endpoint of the session's last request; empty: none is known."""
    adapter: str = ""
    """What an engine may have to load first; empty: nothing."""
    leading_mark: int = 0
    """Of the leading part of a prompt of a block or more, if no endpoint holds any of it; otherwise 0."""
    earlier_holders: Sequence[str] = ()
    """Endpoints that had that part some time ago."""
    edges: tuple[int, int] | None = None
    """The least and the most of `matched`; None: not computed."""
    prompt: int = 0
    """64-bit digest of the whole prompt, as far as it fills blocks."""
    refused_by: Collection[str] = ()
    """Endpoints that have refused this very request within the last seconds."""
    request: int = 0
    """64-bit digest of the whole request."""
    serial: int = 0
    """Of the result; see `PickResult`."""
    headers_only: bool = False
    """Whether no body could be read, so that headers alone decide."""
    pool: str = ""
    model: str = ""
    pinned: str = ""
    """The endpoint that it has to go to, if that is a candidate: of stored state, or of a hard session."""
    stored: bool = False
    """Whether the first of these holds."""
    subset: Subset | None = None
    """The endpoints that the gateway allows; None: all."""
    too_short: float = 0.0
    """The longest context among the pool's, in tokens, that cannot hold the prompt; 0: none is known."""
    session_digest: int = 0
    """Of the session's name; 0: the request names none."""
    identity: bytes = b""
    """What makes prefixes equal, apart from the text."""
    text: bytes = b""
    """The canonical prompt."""
    cut_blocks: Sequence[int] = ()
    """Of the same prompt, if only the leading part of its body were there; empty: the same, or not needed."""
    kv_keys: NDArray[np.uint64] | None = None
    """Of the prompt's prefixes, where the pool's engines publish KV events."""
    kv_shape: int = 0
    """Of the same prompt, see `ext_proc.kv.lookup.shape_of`."""

    @property
    def prefix(self) -> str:
        """The leading hash, as metadata carries it: fixed length, whatever the prompt holds."""
        return f"{self.leading_hash & _HASH_MASK:016x}"

    def share_of(self, matched: int) -> float:
        """Return the share of the blocks' text that this number of leading ones has."""
        return units(matched) / units(len(self.blocks)) if matched else 0.0

    def next_hash(self, matched: int) -> int:
        """Hash of the first block after `matched` leading ones: the next one to compute, and to keep."""
        if not self.blocks:
            return self.leading_hash
        return self.blocks[min(matched, len(self.blocks) - 1)]
