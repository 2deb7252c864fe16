"""Where a session's last request went: a bounded memory with expiry. Pure; times are the caller's."""

from __future__ import annotations

from collections import OrderedDict


class Sessions:
    """By a digest of what names the session, the endpoint of its last request. About 0.3 KB each."""

    def __init__(self, entries: int, expiry_seconds: float) -> None:
        self.entries = entries
        self.expiry_seconds = expiry_seconds
        self._by_session: OrderedDict[int, tuple[str, float]] = OrderedDict()
        """The one that was silent for longest first."""

    def __len__(self) -> int:
        return len(self._by_session)

    def endpoint(self, session: int, now: float) -> str:
        """Return where its last request went; empty when it is unknown, or was silent for too long."""
        entry = self._by_session.get(session)
        if entry is None:
            return ""
        address, at = entry
        if now - at > self.expiry_seconds:
            del self._by_session[session]
            return ""
        return address

    def take_back(self, session: int, address: str, before: str, now: float) -> None:
        """Note that its last request did not stay where it went; `before` is where the one before it was."""
        if self.endpoint(session, now) == address != before:
            del self._by_session[session]
            if before:
                self.note(session, before, now)

    def note(self, session: int, address: str, now: float) -> None:
        """Note where a request went."""
        self._by_session[session] = (address, now)
        self._by_session.move_to_end(session)
        # Two at most for each that comes: expiry keeps up, and no call takes long.
        for _ in range(2):
            oldest = next(iter(self._by_session))
            if (
                len(self._by_session) <= self.entries
                and now - self._by_session[oldest][1] <= self.expiry_seconds
            ):
                return
            del self._by_session[oldest]
