"""Keys of TLS session tickets, one ring a listener: a client resumes at any Envoy that has them.

Rule
    A ring holds the key in use, the next one and the one before: Envoys that already use the next key and
    those that still use the last one understand each other's tickets. Keys are drawn at random, live in
    memory only and are never those of another start, so what was recorded cannot be read once they are gone.
    With other keys a handshake is a full one; it never fails.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

KEY_BYTES: Final = 80
"""Envoy's: name, HMAC key and AES key."""
TURN_SECONDS: Final = 8 * 3600.0
"""A key is in use for this long, and accepted for the same time before and after."""


@dataclass(frozen=True, slots=True, repr=False)
class _Ring:
    keys: tuple[bytes, ...]
    """In use, next, before: Envoy makes tickets with the first one and reads those of all."""
    turns_at: float


class Tickets:
    """The rings of all listeners that share tickets."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._clock = clock
        self._draw = draw
        self._rings: dict[str, _Ring] = {}

    def of(self, listener: str) -> tuple[bytes, ...]:
        """The keys now: the same object until the ring turns."""
        now = self._clock()
        ring = self._rings.get(listener)
        if ring is None:
            ring = self._rings[listener] = _Ring((self._new(), self._new()), now + TURN_SECONDS)
        elif now >= ring.turns_at:
            used, following = ring.keys[:2]
            ring = self._rings[listener] = _Ring((following, self._new(), used), now + TURN_SECONDS)
        return ring.keys

    def keep_only(self, listeners: Collection[str]) -> None:
        """Forget the keys of all others."""
        for name in self._rings.keys() - set(listeners):
            del self._rings[name]

    def _new(self) -> bytes:
        return self._draw(KEY_BYTES)
