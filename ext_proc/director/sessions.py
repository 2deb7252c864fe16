"""The endpoint of each session's last request: bounded, with expiry. Pure; times are the caller's."""

from __future__ import annotations

from collections import OrderedDict


class Sessions:
    """Digests of sessions to endpoints. About 0.3 KB each."""

    def __init__(self, entries: int, expiry_seconds: float) -> None:
        self.entries = entries
        self.expiry_seconds = expiry_seconds
        self._by_session: OrderedDict[int, tuple[str, float]] = OrderedDict()
        """The longest unused first."""

    def __len__(self) -> int:
        return len(self._by_session)

    def endpoint(self, session: int, now: float) -> str:
        """Return the endpoint of its last request; empty if it is unknown or expired."""
        entry = self._by_session.get(session)
        if entry is None:
            return ""
        address, at = entry
        if now - at > self.expiry_seconds:
            del self._by_session[session]
            return ""
        return address

    def take_back(self, session: int, address: str, before: str, now: float) -> None:
        """Move a session from an endpoint that did not serve its request back to the one `before`."""
        if self.endpoint(session, now) == address != before:
            del self._by_session[session]
            if before:
                self.note(session, before, now)

    def note(self, session: int, address: str, now: float) -> None:
        """Record the endpoint of a request."""
        self._by_session[session] = (address, now)
        self._by_session.move_to_end(session)
        # At most two for each new one: expiry keeps up, and no call takes long.
        for _ in range(2):
            oldest = next(iter(self._by_session))
            if (
                len(self._by_session) <= self.entries
                and now - self._by_session[oldest][1] <= self.expiry_seconds
            ):
                return
            del self._by_session[oldest]
