"""Keys in flight, as far as one worker knows them: bounded, and forgotten in time. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """The right to be the one request with a key."""

    key: str
    token: int
    """0: nobody remembers it, so another one may have the key too."""


class Flights:
    """Who is in flight. Nothing is ever thrown out for a newcomer: a full table lets newcomers through."""

    __slots__ = ("_held", "_tokens", "entries", "expiry_seconds")

    def __init__(self, entries: int, expiry_seconds: float) -> None:
        self.entries = entries
        self.expiry_seconds = expiry_seconds
        self._held: dict[str, tuple[float, int]] = {}
        """Key to when it expires and whose it is, oldest first."""
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._held)

    def claim(self, key: str, now: float) -> Claim | None:
        """Return the claim of a request that begins; None while another one with its key is in flight."""
        held = self._held.get(key)
        if held is not None:
            if now < held[0]:
                return None
            del self._held[key]
        self._drop_expired(now)
        if len(self._held) >= self.entries:
            return Claim(key, 0)
        self._tokens += 1
        self._held[key] = (now + self.expiry_seconds, self._tokens)
        return Claim(key, self._tokens)

    def release(self, claim: Claim) -> None:
        """The request has ended. Of a key that has expired and is another request's now, nothing changes."""
        held = self._held.get(claim.key)
        if held is not None and held[1] == claim.token:
            del self._held[claim.key]

    def _drop_expired(self, now: float) -> None:
        while self._held:
            key, (expires_at, _) = next(iter(self._held.items()))
            if now < expires_at:
                return
            del self._held[key]
