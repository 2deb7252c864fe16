"""Prompts on their way to an endpoint, so that their booking can be taken back. Pure and bounded.

A prompt counts as warm at its endpoint from its pick on, so that simultaneous requests stay together. Its
outcome comes later, from Envoy's access log or from a gateway, with the serial of its pick. A prompt of
another worker is identified by its last block, so equal prompts are interchangeable. One prompt at one
endpoint:

    picked                                       -> sent; `warm` of its blocks were there before
    answered well, or no outcome in KEPT_SECONDS -> all its blocks stay
    refused, failed, or answered by another one  -> the blocks behind `warm` are taken back, but for those
                                                    that another sent prompt shares; that one inherits them

Its heirs are the prompts whose own blocks begin at the end of one of its blocks, which is their key. The
newest of those that share most inherits the shared blocks, and the others become its heirs. So a block is
taken back with the last prompt that shared it. Good answers are not reported, so a prompt with a good answer
keeps its shared blocks as long as it is remembered; nothing older can be taken back by then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

KEPT_SECONDS: Final = 30.0
"""A refusal that comes later takes nothing back: engines refuse within milliseconds."""
MOST_BLOCKS: Final = 262_144
"""Of all prompts together, some 10 MB; the oldest prompts go first."""
MOST_PROMPTS: Final = 8192
AVOIDED_SECONDS: Final = 10.0
"""A request avoids an endpoint that has refused it for this time, if there is another one."""
MOST_REFUSED: Final = 4096


class SentPrompt(msgspec.Struct, eq=False, gc=False):
    """One prompt that was sent to one endpoint."""

    address: str
    blocks: Sequence[int]
    warm: int
    """Leading blocks that others have sent before."""
    at: float
    serial: int = 0
    """Of its pick, which identifies it in the report of its outcome; 0: another worker picked."""
    mark: int = 0
    """Of its leading part, if that was new; otherwise 0."""
    session: int = 0
    """Digest of its session; 0 without a session, or if the session did not follow."""
    session_before: str = ""
    """The session's endpoint before; empty without one."""
    kv_key: int = 0
    """The KV block that the engine is expected to publish; 0: none."""


class SentPrompts:
    """Prompts without a certain outcome. Single-threaded."""

    def __init__(self, *, tracks: bool) -> None:
        self.tracks = tracks
        """Whether Envoys' access log, or a gateway, reports outcomes."""
        self._order: deque[SentPrompt] = deque()
        """The oldest first; some of them may be taken back already."""
        self._by_serial: dict[int, SentPrompt] = {}
        self._shared: dict[tuple[str, int], deque[SentPrompt]] = {}
        """Prompts of other workers by address and last block, the oldest first."""
        self._heirs: dict[tuple[str, int], dict[int, SentPrompt]] = {}
        """By address and the last block that is not their own, then by identity; the newest last."""
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._order)

    def note(self, sent: SentPrompt, *, shared: bool = False) -> None:
        """Remember a prompt, if outcomes are reported; `shared`: another worker has sent it."""
        if not self.tracks:
            return
        self._order.append(sent)
        if sent.serial:
            self._by_serial[sent.serial] = sent
        elif shared:
            self._shared.setdefault((sent.address, sent.blocks[-1]), deque()).append(sent)
        self._add_heir(sent)
        self._blocks += len(sent.blocks)
        late = sent.at - KEPT_SECONDS
        while self._order[0].at < late or self._blocks > MOST_BLOCKS or len(self._order) > MOST_PROMPTS:
            oldest = self._order.popleft()
            self._blocks -= len(oldest.blocks)
            self._drop(oldest)
            if not self._order:
                return

    def take_back(self, serial: int, prompt: int, names: Sequence[str]) -> tuple[SentPrompt, int] | None:
        """Return a prompt, and the number of its leading blocks that stay; None: it is not remembered.

        `prompt` is its last block, which identifies a prompt of another worker. `names` are those of its
        endpoint, or of the endpoint's ranks.
        """
        gone = self._by_serial.get(serial)
        if gone is None:
            equal = next((same for name in names if (same := self._shared.get((name, prompt)))), None)
            if equal is None:
                return None
            gone = equal[0]
        elif gone.address not in names:
            return None
        # It stays in the order, where its blocks are counted.
        self._drop(gone)
        return gone, self._inherited(gone)

    def _drop(self, gone: SentPrompt) -> None:
        """Remove a prompt from all indexes."""
        if gone.serial:
            self._by_serial.pop(gone.serial, None)
        elif gone.blocks and (equal := self._shared.get(key := (gone.address, gone.blocks[-1]))):
            # The prompt to drop is the oldest, unless it is dropped already.
            if equal[0] is gone:
                equal.popleft()
            if not equal:
                del self._shared[key]
        self._remove_heir(gone)

    def _inherited(self, gone: SentPrompt) -> int:
        """Pass shared blocks on to an heir, and return the number of leading blocks that stay."""
        address, blocks = gone.address, gone.blocks
        for depth in range(len(blocks), gone.warm, -1):
            heirs = self._heirs.get((address, blocks[depth - 1]))
            if heirs:
                heir = heirs[next(reversed(heirs))]
                self._remove_heir(heir)
                heir.warm = gone.warm
                self._add_heir(heir)
                return depth
        return min(gone.warm, len(blocks))

    def _add_heir(self, sent: SentPrompt) -> None:
        if 0 < sent.warm <= len(sent.blocks):
            key = sent.address, sent.blocks[sent.warm - 1]
            self._heirs.setdefault(key, {})[id(sent)] = sent

    def _remove_heir(self, sent: SentPrompt) -> None:
        if 0 < sent.warm <= len(sent.blocks):
            heirs = self._heirs.get(key := (sent.address, sent.blocks[sent.warm - 1]))
            if heirs is not None and heirs.pop(id(sent), None) is not None and not heirs:
                del self._heirs[key]


class RecentRefusals:
    """Endpoints that have refused a request within the last seconds. Bounded."""

    def __init__(self) -> None:
        self._by: OrderedDict[int, dict[str, float]] = OrderedDict()
        """Digest of a request to address to time; the latest refusal last."""

    def note(self, request: int, address: str, now: float) -> None:
        """Note a refusal."""
        self._by.setdefault(request, {})[address] = now
        self._by.move_to_end(request)
        if len(self._by) > MOST_REFUSED:
            self._by.popitem(last=False)

    def by(self, request: int, now: float) -> Collection[str]:
        """Return the endpoints that have refused a request lately."""
        refusals = self._by.get(request) if self._by else None
        if refusals is None:
            return ()
        recent = [address for address, at in refusals.items() if now - at < AVOIDED_SECONDS]
        if not recent:
            del self._by[request]
        return recent
