"""Prompts on their way to an endpoint, so that what was noted of them can be taken back. Pure and bounded.

A prompt counts as warm where it was sent from its pick on: requests that come together go together. Its
outcome is told later, by Envoy's access log or by a gateway, by the serial of its pick. What another worker
has shared goes by its last block, and of equal ones it makes no difference which. One prompt at one endpoint:

    picked                                       -> noted; `warm` of its blocks were there before
    answered well, or no outcome in KEPT_SECONDS -> all its blocks stay
    refused, failed, or answered by another one  -> the blocks behind `warm` are taken back, but for those
                                                    that another noted prompt shares; that one inherits them

Who may inherit are those that begin where a block of it ends: by that block they are found. One of them gets
all that is shared, the newest of those that share most, and the others are its heirs from then on. So a block
is taken back when the last of all who shared it is. A good answer is told by nobody, so a prompt that was
answered well keeps what it shares for as long as it is noted; nothing older can be taken back by then.
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
"""For so long a request does not go again to an endpoint that has refused it, if there is another one."""
MOST_REFUSED: Final = 4096


class Noted:
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
        """Of its pick, by which its outcome is told; 0: it is none of this worker's picks."""
        self.mark = mark
        """Of its leading part, where that was news; 0: it was not."""
        self.session = session
        """Digest of its session; 0: none followed it."""
        self.session_before = session_before
        """Where that was before; empty: nowhere."""
        self.kv_key = kv_key
        """What the engine was expected to tell of it; 0: nothing."""


class Sent:
    """The prompts of which a refusal may still be told. Single-threaded."""

    def __init__(self, *, wanted: bool) -> None:
        self.wanted = wanted
        """Whether anybody tells outcomes: Envoys' access log, or a gateway that has done so once."""
        self._order: deque[Noted] = deque()
        """The one that was sent first first; some of them may be taken back already."""
        self._by_serial: dict[int, Noted] = {}
        self._shared: dict[tuple[str, int], deque[Noted]] = {}
        """What other workers have sent, by address and last block, the first one first."""
        self._heirs: dict[tuple[str, int], dict[int, Noted]] = {}
        """By address and the last block that is not their own, and identity; the newest last."""
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._order)

    def note(self, noted: Noted, *, shared: bool = False) -> None:
        """Remember a prompt, if anybody tells what becomes of it; `shared`: another worker has sent it."""
        if not self.wanted:
            return
        self._order.append(noted)
        if noted.serial:
            self._by_serial[noted.serial] = noted
        elif shared:
            self._shared.setdefault((noted.address, noted.blocks[-1]), deque()).append(noted)
        self._make_heir(noted)
        self._blocks += len(noted.blocks)
        late = noted.at - KEPT_SECONDS
        while self._order[0].at < late or self._blocks > MOST_BLOCKS or len(self._order) > MOST_PROMPTS:
            oldest = self._order.popleft()
            self._blocks -= len(oldest.blocks)
            self._drop(oldest)
            if not self._order:
                return

    def take_back(self, serial: int, prompt: int, address: str) -> tuple[Noted, int] | None:
        """Return what was noted of a prompt, and how many of its leading blocks stay; None: nothing was.

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

    def _drop(self, gone: Noted) -> None:
        """Find it no more."""
        if gone.serial:
            self._by_serial.pop(gone.serial, None)
        elif gone.blocks and (equal := self._shared.get(key := (gone.address, gone.blocks[-1]))):
            # The first one is the one that is dropped, unless it has been already.
            if equal[0] is gone:
                equal.popleft()
            if not equal:
                del self._shared[key]
        self._be_no_heir(gone)

    def _inherited(self, gone: Noted) -> int:
        """Let an heir inherit what it shares, and return how many leading blocks stay."""
        address, blocks = gone.address, gone.blocks
        for depth in range(len(blocks), gone.warm, -1):
            heirs = self._heirs.get((address, blocks[depth - 1]))
            if heirs:
                heir = heirs[next(reversed(heirs))]
                self._be_no_heir(heir)
                heir.warm = gone.warm
                self._make_heir(heir)
                return depth
        return min(gone.warm, len(blocks))

    def _make_heir(self, noted: Noted) -> None:
        if 0 < noted.warm <= len(noted.blocks):
            key = noted.address, noted.blocks[noted.warm - 1]
            self._heirs.setdefault(key, {})[id(noted)] = noted

    def _be_no_heir(self, noted: Noted) -> None:
        if 0 < noted.warm <= len(noted.blocks):
            heirs = self._heirs.get(key := (noted.address, noted.blocks[noted.warm - 1]))
            if heirs is not None and heirs.pop(id(noted), None) is not None and not heirs:
                del self._heirs[key]


class Refused:
    """Which endpoints have refused a request within the last seconds. Bounded."""

    def __init__(self) -> None:
        self._by: OrderedDict[int, dict[str, float]] = OrderedDict()
        """Digest of a request to address to when; the one that was refused last last."""

    def note(self, request: int, address: str, now: float) -> None:
        """Note a refusal."""
        self._by.setdefault(request, {})[address] = now
        self._by.move_to_end(request)
        if len(self._by) > MOST_REFUSED:
            self._by.popitem(last=False)

    def by(self, request: int, now: float) -> Collection[str]:
        """Return who has refused a request lately."""
        held = self._by.get(request)
        if held is None:
            return ()
        recent = [address for address, at in held.items() if now - at < AVOIDED_SECONDS]
        if not recent:
            del self._by[request]
        return recent
