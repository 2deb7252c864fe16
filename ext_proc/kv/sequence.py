"""Puts one publisher's messages in order: gaps, replays and restarts. A state machine without I/O or clock.

Each message has a sequence number that counts from 0 and restarts with the engine. PUB sockets drop messages
that their subscribers cannot take, so numbers may be missing. An engine with a replay socket sends its newest
messages (10,000 in vLLM) again, from a requested number on. The owner checks `replay_from` after every call
and sends that request.

The output, in order: payloads to apply, and `Restart`s, which void everything before them. A `Restart` tells
whether the messages from there on are the whole history, or only its recent part.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from xxhash import xxh3_64_intdigest

END: Final = (1 << 64) - 1
"""The sequence number that ends a replay: -1 as vLLM and SGLang write it."""
MAX_DEFERRED: Final = 4096
"""Messages that wait for a replay; later ones are requested again."""
MESSAGE_BYTES: Final = 256
"""What a waiting message takes in addition to its payload."""
MAX_BYTES: Final = 8 * 1024 * 1024
"""Of one publisher's waiting messages, unless its owner allows fewer."""
MAX_TAIL: Final = 16_384
MAX_FRUITLESS: Final = 3
"""Replays in a row that brought nothing although a message is missing."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Everything before is void."""

    whole: bool
    """Whether the following messages tell all of the engine's blocks."""
    emptied: bool = False
    """Whether another process certainly begins, with an empty cache."""


Output: TypeAlias = Restart | bytes


class Sequencer:
    """The messages of one publisher, in order."""

    def __init__(self, *, replayable: bool) -> None:
        self.out: deque[Output] = deque()
        """What is to be applied, in order; the owner uses `take`."""
        self.limit_bytes = MAX_BYTES
        """Of messages that wait, to be applied or for a replay."""
        self.waiting_bytes = 0
        self.replay_from: int | None = None
        """Request a replay from this number on, now; the owner sets None when it has."""
        self.replaying = False
        self.reads_history = False
        """Whether the output is old, and not only missed by us. The owner applies the messages of a replay
        before it reports the replay's end."""
        self.counts: Counter[str] = Counter()
        """Of `gap` and `restart`."""
        self._replayable = replayable
        self._replay_works = replayable
        """On this connection."""
        self._next: int | None = None
        self._last_digest = 0
        """Of the message before `_next`."""
        self._tail: dict[int, int] = {}
        """Replayed messages by number, as digests: the same may still come live."""
        self._deferred: deque[tuple[int, bytes]] = deque()
        self._overflowed = False
        self._probing = False
        self._answered = False
        self._retry_from: int | None = None
        """Where the rest of a replay is to be requested again, once this one has ended."""
        self._fruitless = 0

    @property
    def settled(self) -> bool:
        """Whether everything that the engine has published is in the output, as far as possible."""
        return self._next is not None and not self.replaying

    @property
    def full(self) -> bool:
        """Whether the socket is to be left unread. During a replay, messages are dropped and replayed."""
        return self.waiting_bytes >= self.limit_bytes and not self.replaying

    def take(self) -> Output | None:
        """Return what is to be applied next; None: nothing."""
        if not self.out:
            return None
        output = self.out.popleft()
        if isinstance(output, bytes):
            self.waiting_bytes -= len(output) + MESSAGE_BYTES
        return output

    def connect(self) -> None:
        """Begin on a new connection, and request the messages from before it."""
        self._replay_works = self._replayable
        if not self._replay_works:
            if self._next is not None:
                self._void()
        elif self._next:
            # The last known message shows whether this is still the same engine.
            self._request(self._next - 1, probing=True)
        else:
            self._request(0)

    def disconnect(self) -> None:
        """End with the connection."""
        self.replaying, self.reads_history, self.replay_from = False, False, None
        self._drop_deferred()

    def live(self, number: int, payload: bytes) -> None:
        """Take a message as it is published."""
        if self.replaying:
            self._defer(number, payload)
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
                if digest == self._last_digest:
                    self._answered = True
                else:
                    self._restart_from_first(emptied=True)
                return
        if self._retry_from is not None or (self._next is not None and number < self._next):
            return
        if self._answered and number != self._next:
            # The engine's socket dropped a part of the answer: the rest is requested again.
            self._retry_from = self._next
            return
        if not self._answered and (self._next is None or number > self._next):
            self.out.append(Restart(whole=number == 0))
        self._answered = True
        self._fruitless = 0
        self._emit(number, payload, digest)
        if len(self._tail) < MAX_TAIL:
            self._tail[number] = digest

    def replay_failed(self) -> None:
        """No answer came, or no more of it."""
        if not self.replaying:
            return
        if self._answered and self._next is not None:
            self._retry_from = self._next
        elif self._retry_from is None:
            self._replay_works = False
        self._end()

    def _end(self) -> None:
        """Continue after a replay with the deferred messages."""
        history, self.replaying, self.reads_history = self.reads_history, False, False
        if self._probing:
            # Neither our last message nor a newer one: another engine, if it has answered at all.
            self._restart_from_first(emptied=self._replay_works)
        if self._retry_from is not None:
            self._fruitless += 1
            if self._fruitless <= MAX_FRUITLESS and self._request(self._retry_from):
                self.reads_history |= history
                return
        elif self._next is None and self._replay_works:
            # The engine has published nothing: the next message is the first.
            self.out.append(Restart(whole=True))
            self._next = 0
        deferred, overflowed = tuple(self._deferred), self._overflowed
        self._drop_deferred()
        for number, payload in deferred:
            self.live(number, payload)
        if overflowed and not self.replaying and self._next is not None:
            self._request(self._next)

    def _order(self, number: int, payload: bytes) -> None:
        digest = xxh3_64_intdigest(payload)
        if self._next is not None and number < self._next:
            if self._tail.pop(number, None) == digest:
                return
            if number == self._next - 1 and digest == self._last_digest:
                return
            self.counts["restart"] += 1
            self._void(emptied=True)
        if self._next is None:
            if number and self._request(0):
                self._defer(number, payload)
                return
            self.out.append(Restart(whole=number == 0))
        elif number > self._next:
            self.counts["gap"] += 1
            if self._fruitless < MAX_FRUITLESS and self._request(self._next):
                self._fruitless += 1
                self._defer(number, payload)
                return
            self.out.append(Restart(whole=False))
        self._fruitless = 0
        self._emit(number, payload, digest)

    def _emit(self, number: int, payload: bytes, digest: int) -> None:
        self.out.append(payload)
        self.waiting_bytes += len(payload) + MESSAGE_BYTES
        self._next, self._last_digest = number + 1, digest

    def _void(self, *, emptied: bool = False) -> None:
        self.out.append(Restart(whole=False, emptied=emptied))
        self._next = None
        self._tail.clear()
        self._probing = False

    def _restart_from_first(self, *, emptied: bool) -> None:
        self._void(emptied=emptied)
        self.counts["restart"] += 1
        self._retry_from = 0

    def _request(self, start: int, *, probing: bool = False) -> bool:
        if not self._replay_works:
            return False
        self.replay_from, self.replaying, self.reads_history = start, True, self._next is None
        self._probing, self._answered, self._retry_from = probing, False, None
        return True

    def _defer(self, number: int, payload: bytes) -> None:
        size = len(payload) + MESSAGE_BYTES
        beyond_bytes = self.waiting_bytes and self.waiting_bytes + size > self.limit_bytes
        if len(self._deferred) >= MAX_DEFERRED or beyond_bytes:
            self._overflowed = True
        if not self._overflowed:
            self._deferred.append((number, payload))
            self.waiting_bytes += size

    def _drop_deferred(self) -> None:
        self.waiting_bytes -= sum(len(payload) + MESSAGE_BYTES for _, payload in self._deferred)
        self._deferred.clear()
        self._overflowed = False
