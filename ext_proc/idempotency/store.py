"""Keys in flight of one worker: bounded, with expiry. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """The right to be the only request with a key."""

    key: str
    token: int
    """0: the claim is not stored, so another request may have the key too."""


class Claims:
    """Keys in flight. A new key replaces no other: a full table lets new requests through."""

    __slots__ = ("_by_key", "_tokens", "entries", "expiry_seconds")

    def __init__(self, entries: int, expiry_seconds: float) -> None:
        self.entries = entries
        self.expiry_seconds = expiry_seconds
        self._by_key: dict[str, tuple[float, int]] = {}
        """Key to when it expires and its token, oldest first."""
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def claim(self, key: str, now: float) -> Claim | None:
        """Return the claim of a new request; None while another one with its key is in flight."""
        entry = self._by_key.get(key)
        if entry is not None:
            if now < entry[0]:
                return None
            del self._by_key[key]
        self._drop_expired(now)
        if len(self._by_key) >= self.entries:
            return Claim(key, 0)
        self._tokens += 1
        self._by_key[key] = (now + self.expiry_seconds, self._tokens)
        return Claim(key, self._tokens)

    def release(self, claim: Claim) -> None:
        """Release the claim of an ended request, unless another request has the key after its expiry."""
        entry = self._by_key.get(claim.key)
        if entry is not None and entry[1] == claim.token:
            del self._by_key[claim.key]

    def _drop_expired(self, now: float) -> None:
        while self._by_key:
            key, (expires_at, _) = next(iter(self._by_key.items()))
            if now < expires_at:
                return
            del self._by_key[key]
