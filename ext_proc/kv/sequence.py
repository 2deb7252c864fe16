"""Puts one publisher's messages in order: gaps, replays and restarts. A state machine without I/O or clock.

Each message has a sequence number that counts from 0 and begins anew with the engine. PUB sockets drop what
their subscribers cannot take, so numbers may be missing; an engine with a replay socket sends its newest
messages (10,000 in vLLM) again, from a number that it is told. The owner asks `wanted` after every call and
sends that request.

What comes out, in order: payloads to apply, and `Restart`s, before which everything told earlier is void.
A `Restart` says whether from there on the whole story is told, or only what happened lately.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from xxhash import xxh3_64_intdigest

END: Final = (1 << 64) - 1
"""The sequence number that ends a replay: -1 as vLLM and SGLang write it."""
MAX_HELD: Final = 4096
"""Messages that wait for a replay; what comes beyond is asked for again."""
MESSAGE_BYTES: Final = 256
"""What a message that waits costs beside its payload."""
MAX_BYTES: Final = 8 * 1024 * 1024
"""Of messages of one publisher that wait, unless its owner allows fewer."""
MAX_TAIL: Final = 16_384
MAX_FRUITLESS: Final = 3
"""Replays in a row that brought nothing although something is missing."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What was told before is void."""

    whole: bool
    """Whether everything that the engine holds is told from here on."""
    emptied: bool = False
    """Whether it is certain that another process begins, which holds nothing yet."""


Output: TypeAlias = Restart | bytes


class Sequencer:
    """The messages of one publisher, in order."""

    def __init__(self, *, replayable: bool) -> None:
        self.out: deque[Output] = deque()
        """What is to be applied, in order; the owner takes it by `take`."""
        self.limit_bytes = MAX_BYTES
        """Of messages that wait, to be applied or for a replay."""
        self.bytes = 0
        """That wait now."""
        self.wanted: int | None = None
        """From this number on a replay is to be asked for, now; the owner sets None when it has."""
        self.replaying = False
        self.recounting = False
        """Whether what comes out was told long ago, and not only missed by us. The owner applies what a
        replay brings before it tells its end."""
        self.gaps = 0
        self.restarts = 0
        self._replayable = replayable
        self._usable = replayable
        """Whether replays work on this connection."""
        self._next: int | None = None
        self._newest = 0
        """A hash of the message before `_next`."""
        self._tail: dict[int, int] = {}
        """Replayed messages by number, as hashes: the same may still come live."""
        self._held: deque[tuple[int, bytes]] = deque()
        self._overflowed = False
        self._probing = False
        self._answered = False
        self._redo: int | None = None
        """From where the rest of a replay is to be asked for again, once this one has ended."""
        self._fruitless = 0

    @property
    def settled(self) -> bool:
        """Whether all that the engine has told so far is known, as far as it can be."""
        return self._next is not None and not self.replaying

    @property
    def full(self) -> bool:
        """Whether what is published has to wait where it is. During a replay it is dropped, and replayed."""
        return self.bytes >= self.limit_bytes and not self.replaying

    def take(self) -> Output | None:
        """Return what is to be applied next; None: nothing."""
        if not self.out:
            return None
        taken = self.out.popleft()
        if isinstance(taken, bytes):
            self.bytes -= len(taken) + MESSAGE_BYTES
        return taken

    def connected(self) -> None:
        """Begin on a new connection: what happened in between, or before us, is asked for."""
        self._usable = self._replayable
        if not self._usable:
            if self._next is not None:
                self._begin_anew()
        elif self._next:
            # The last message known tells whether this is still the same engine.
            self._ask(self._next - 1, probing=True)
        else:
            self._ask(0)

    def disconnected(self) -> None:
        """End with the connection."""
        self.replaying, self.recounting, self.wanted = False, False, None
        self._forget_held()

    def live(self, number: int, payload: bytes) -> None:
        """Take a message as it is published."""
        if self.replaying:
            self._hold(number, payload)
        else:
            self._order(number, payload)

    def replayed(self, number: int, payload: bytes) -> None:
        """Take a message of a replay; `END` ends it."""
        if not self.replaying:
            return
        if number == END:
            self._end()
            return
        digest = xxh3_64_intdigest(payload)
        if self._probing:
            self._probing = False
            if self._next is not None and number == self._next - 1:
                if digest == self._newest:
                    self._answered = True
                else:
                    self._redo_from_first(emptied=True)
                return
        if self._redo is not None or (self._next is not None and number < self._next):
            return
        if self._answered and number != self._next:
            # The engine's socket dropped a part of the answer: the rest is asked for again.
            self._redo = self._next
            return
        if not self._answered and (self._next is None or number > self._next):
            self.out.append(Restart(whole=number == 0))
        self._answered = True
        self._fruitless = 0
        self._apply(number, payload, digest)
        if len(self._tail) < MAX_TAIL:
            self._tail[number] = digest

    def replay_failed(self) -> None:
        """No answer came, or no more of it."""
        if not self.replaying:
            return
        if self._answered and self._next is not None:
            self._redo = self._next
        elif self._redo is None:
            self._usable = False
        self._end()

    def _end(self) -> None:
        """Go on after a replay with what was held meanwhile."""
        recounting, self.replaying, self.recounting = self.recounting, False, False
        if self._probing:
            # Not even our last message, and nothing newer: it is another engine, if it has answered at all.
            self._redo_from_first(emptied=self._usable)
        if self._redo is not None:
            self._fruitless += 1
            if self._fruitless <= MAX_FRUITLESS and self._ask(self._redo):
                self.recounting |= recounting
                return
        elif self._next is None and self._usable:
            # Nothing was ever published: what comes next is the first.
            self.out.append(Restart(whole=True))
            self._next = 0
        held, overflowed = tuple(self._held), self._overflowed
        self._forget_held()
        for number, payload in held:
            self.live(number, payload)
        if overflowed and not self.replaying and self._next is not None:
            self._ask(self._next)

    def _redo_from_first(self, *, emptied: bool) -> None:
        self._begin_anew(emptied=emptied)
        self.restarts += 1
        self._redo = 0

    def _order(self, number: int, payload: bytes) -> None:
        digest = xxh3_64_intdigest(payload)
        if self._next is not None and number < self._next:
            if self._tail.pop(number, None) == digest:
                return
            if number == self._next - 1 and digest == self._newest:
                return
            self.restarts += 1
            self._begin_anew(emptied=True)
        if self._next is None:
            if number and self._ask(0):
                self._hold(number, payload)
                return
            self.out.append(Restart(whole=number == 0))
        elif number > self._next:
            self.gaps += 1
            if self._fruitless < MAX_FRUITLESS and self._ask(self._next):
                self._fruitless += 1
                self._hold(number, payload)
                return
            self.out.append(Restart(whole=False))
        self._fruitless = 0
        self._apply(number, payload, digest)

    def _apply(self, number: int, payload: bytes, digest: int) -> None:
        self.out.append(payload)
        self.bytes += len(payload) + MESSAGE_BYTES
        self._next, self._newest = number + 1, digest

    def _begin_anew(self, *, emptied: bool = False) -> None:
        self.out.append(Restart(whole=False, emptied=emptied))
        self._next = None
        self._tail.clear()
        self._probing = False

    def _ask(self, start: int, *, probing: bool = False) -> bool:
        if not self._usable:
            return False
        self.wanted, self.replaying, self.recounting = start, True, self._next is None
        self._probing, self._answered, self._redo = probing, False, None
        return True

    def _hold(self, number: int, payload: bytes) -> None:
        size = len(payload) + MESSAGE_BYTES
        if len(self._held) >= MAX_HELD or (self.bytes and self.bytes + size > self.limit_bytes):
            self._overflowed = True
        if not self._overflowed:
            self._held.append((number, payload))
            self.bytes += size

    def _forget_held(self) -> None:
        self.bytes -= sum(len(payload) + MESSAGE_BYTES for _, payload in self._held)
        self._held.clear()
        self._overflowed = False
