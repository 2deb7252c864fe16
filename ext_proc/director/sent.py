"""Prompts on their way to an endpoint, so that their booking can be taken back. Pure and bounded.

A prompt counts as warm where it was sent from its pick on: requests that come together go together. Its
outcome comes later, from Envoy's access log or from a gateway, with the serial of its pick. A prompt that
another worker has shared is found by its last block, and of equal ones it makes no difference which. One
prompt at one endpoint:

    picked                                       -> sent; `warm` of its blocks were there before
    answered well, or no outcome in KEPT_SECONDS -> all its blocks stay
    refused, failed, or answered by another one  -> the blocks behind `warm` are taken back, but for those
                                                    that another sent prompt shares; that one inherits them

Heirs are those that begin where a block of it ends: by that block they are found. One of them gets all that
is shared, the newest of those that share most, and the others are its heirs from then on. So a block is taken
back when the last of all who shared it is. Good answers are not reported, so a prompt that was answered well
keeps what it shares for as long as it is remembered; nothing older can be taken back by then.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

KEPT_SECONDS: Final = 30.0
"""A refusal that comes later takes nothing back: engines refuse within milliseconds."""
MOST_BLOCKS: Final = 262_144
"""Of all prompts together, some 10 MB; those that were sent first go first."""
MOST_PROMPTS: Final = 8192
AVOIDED_SECONDS: Final = 10.0
"""For this time a request avoids an endpoint that has refused it, if there is another one."""
MOST_REFUSED: Final = 4096


class SentPrompt:
    """One prompt that was sent to one endpoint."""

    __slots__ = ("address", "at", "blocks", "kv_key", "mark", "serial", "session", "session_before", "warm")

    def __init__(
        self,
        address: str,
        blocks: Sequence[int],
        warm: int,
        at: float,
        *,
        serial: int = 0,
        mark: int = 0,
        session: int = 0,
        session_before: str = "",
        kv_key: int = 0,
    ) -> None:
        self.address = address
        self.blocks = blocks
        self.warm = warm
        """Leading blocks that are not its own to take back."""
        self.at = at
        self.serial = serial
        """Of its pick, which identifies it when its outcome is reported; 0: another worker picked."""
        self.mark = mark
        """Of its leading part, where that was new; 0: it was not."""
        self.session = session
        """Digest of its session; 0: it has none, or the session did not follow."""
        self.session_before = session_before
        """Where that was before; empty: nowhere."""
        self.kv_key = kv_key
        """The KV block that the engine is expected to publish; 0: none."""


class SentPrompts:
    """The prompts whose refusal may still be reported. Single-threaded."""

    def __init__(self, *, tracks: bool) -> None:
        self.tracks = tracks
        """Whether outcomes are reported: by Envoys' access log, or by a gateway that has done so once."""
        self._order: deque[SentPrompt] = deque()
        """The one that was sent first first; some of them may be taken back already."""
        self._by_serial: dict[int, SentPrompt] = {}
        self._shared: dict[tuple[str, int], deque[SentPrompt]] = {}
        """What other workers have sent, by address and last block, the first one first."""
        self._heirs: dict[tuple[str, int], dict[int, SentPrompt]] = {}
        """By address and the last block that is not their own, and identity; the newest last."""
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._order)

    def note(self, sent: SentPrompt, *, shared: bool = False) -> None:
        """Remember a prompt, if its outcome is reported; `shared`: another worker has sent it."""
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

    def take_back(self, serial: int, prompt: int, address: str) -> tuple[SentPrompt, int] | None:
        """Return a prompt, and how many of its leading blocks stay; None: it is not remembered.

        `prompt` is its last block, for what another worker has sent.
        """
        gone = self._by_serial.get(serial)
        if gone is None:
            equal = self._shared.get((address, prompt))
            if equal is None:
                return None
            gone = equal[0]
        elif gone.address != address:
            return None
        # It stays in the order, where its blocks are counted.
        self._drop(gone)
        return gone, self._inherited(gone)

    def _drop(self, gone: SentPrompt) -> None:
        """Remove a prompt from all indexes."""
        if gone.serial:
            self._by_serial.pop(gone.serial, None)
        elif gone.blocks and (equal := self._shared.get(key := (gone.address, gone.blocks[-1]))):
            # The first one is the one that is dropped, unless it has been already.
            if equal[0] is gone:
                equal.popleft()
            if not equal:
                del self._shared[key]
        self._remove_heir(gone)

    def _inherited(self, gone: SentPrompt) -> int:
        """Pass shared blocks on to an heir, and return how many leading blocks stay."""
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
    """Which endpoints have refused a request within the last seconds. Bounded."""

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
