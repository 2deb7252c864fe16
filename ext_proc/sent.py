"""Prompts on their way to an endpoint, so that what was noted of them can be taken back. Pure and bounded.

A prompt counts as warm where it was sent from its pick on: requests that come together go together. Its
outcome is told later, by Envoy's access log or by a gateway. One prompt at one endpoint:

    picked                                       -> noted; `warm` of its blocks were there before
    answered well, or no outcome in KEPT_SECONDS -> all its blocks stay
    refused, failed, or answered by another one  -> the blocks behind `warm` are taken back, but for those
                                                    that another noted prompt shares; that one inherits them

An inherited block is taken back when its last heir is. A good answer is told by nobody, so a prompt that was
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
"""For so long a prompt does not go again to an endpoint that has refused it, if there is another one."""
MOST_REFUSED: Final = 4096


class Noted:
    """One prompt that was sent to one endpoint."""

    __slots__ = ("address", "at", "blocks", "kv_key", "mark", "prompt", "session", "session_before", "warm")

    def __init__(
        self,
        prompt: int,
        address: str,
        blocks: Sequence[int],
        warm: int,
        at: float,
        *,
        mark: int = 0,
        session: int = 0,
        session_before: str = "",
        kv_key: int = 0,
    ) -> None:
        self.prompt = prompt
        """Its digest, by which its outcome is told; 0: nobody tells it, and it only keeps what it shares."""
        self.address = address
        self.blocks = blocks
        self.warm = warm
        """Leading blocks that are not its own to take back."""
        self.at = at
        self.mark = mark
        """Of its leading part, where that was news; 0: it was not."""
        self.session = session
        """Digest of its session; 0: none followed it."""
        self.session_before = session_before
        """Where that was before; empty: nowhere."""
        self.kv_key = kv_key
        """What the engine was expected to tell of it; 0: nothing."""


class Sent:
    """By endpoint, the prompts of which a refusal may still be told. Single-threaded."""

    def __init__(self, *, wanted: bool) -> None:
        self.wanted = wanted
        """Whether anybody tells outcomes: Envoys' access log, or a gateway that has done so once."""
        self._order: deque[Noted] = deque()
        """The one that was sent first first; some of them may be taken back already."""
        self._at: dict[str, dict[int, Noted]] = {}
        """By address and identity."""
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._order)

    def note(self, noted: Noted) -> None:
        """Remember a prompt, if anybody tells what becomes of it."""
        if not self.wanted:
            return
        self._order.append(noted)
        self._at.setdefault(noted.address, {})[id(noted)] = noted
        self._blocks += len(noted.blocks)
        late = noted.at - KEPT_SECONDS
        while self._order[0].at < late or self._blocks > MOST_BLOCKS or len(self._order) > MOST_PROMPTS:
            oldest = self._order.popleft()
            self._blocks -= len(oldest.blocks)
            here = self._at.get(oldest.address, {})
            if here.pop(id(oldest), None) is not None and not here:
                del self._at[oldest.address]
            if not self._order:
                return

    def take_back(self, prompt: int, address: str) -> tuple[Noted, int] | None:
        """Return what was noted of a prompt, and how many of its leading blocks stay; None: nothing was.

        Of several that are equal it is the first one: which of them was meant makes no difference.
        """
        here = self._at.get(address)
        if here is None or not prompt:
            return None
        gone = next((noted for noted in here.values() if noted.prompt == prompt), None)
        if gone is None:
            return None
        # It stays in the order, where its blocks are counted.
        del here[id(gone)]
        blocks, warm = gone.blocks, gone.warm
        if warm >= len(blocks):
            return gone, len(blocks)
        kept, own = warm, blocks[warm]
        for other in here.values():
            theirs = other.blocks
            if len(theirs) > warm and theirs[warm] == own:
                kept = max(kept, _common(blocks, theirs, warm))
                other.warm = min(other.warm, warm)
        return gone, kept


class Refused:
    """Which endpoints have refused a prompt within the last seconds. Bounded."""

    def __init__(self) -> None:
        self._by: OrderedDict[int, dict[str, float]] = OrderedDict()
        """Digest of a prompt to address to when; the prompt that was refused last last."""

    def note(self, prompt: int, address: str, now: float) -> None:
        """Note a refusal."""
        self._by.setdefault(prompt, {})[address] = now
        self._by.move_to_end(prompt)
        if len(self._by) > MOST_REFUSED:
            self._by.popitem(last=False)

    def by(self, prompt: int, now: float) -> Collection[str]:
        """Return who has refused a prompt lately."""
        held = self._by.get(prompt)
        if held is None:
            return ()
        recent = [address for address, at in held.items() if now - at < AVOIDED_SECONDS]
        if not recent:
            del self._by[prompt]
        return recent


def _common(one: Sequence[int], other: Sequence[int], known: int) -> int:
    """Return how many leading blocks two prompts share, who share more than `known`."""
    low, high = known + 1, min(len(one), len(other)) + 1
    while high - low > 1:
        middle = low + high >> 1
        if one[middle - 1] == other[middle - 1]:
            low = middle
        else:
            high = middle
    return low
