"""The newest picks, so that somebody can ask afterwards why a request went where it went.

What is kept of a request is its `Pick` as it was made and a few words; texts are made when somebody asks.
Nothing of the prompt is kept.
"""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ext_proc.protocol.request import MAX_ID_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ext_proc.pick import Pick
    from fleet.service.admin import Query


_ANSWERED: Final = re.compile(r"(?:generate-tokens|[a-z]+)[-_](?P<whole>(?P<base>.+?)(?:-\d+)?)")
"""An answer's own id as vLLM makes it of `x-request-id`: `chatcmpl-ID`, or `cmpl-ID-0` with a number."""


class _Decision(NamedTuple):
    at: float
    """Unix seconds."""
    request_id: str
    cluster: str
    pick: Pick
    seconds: float


class PickDecisions:
    """A ring of at most `limit` decisions. Single-threaded."""

    def __init__(self, limit: int, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._ring: deque[_Decision] = deque(maxlen=limit)

    @property
    def limit(self) -> int:
        """How many are remembered."""
        return self._ring.maxlen or 0

    def resize(self, limit: int) -> None:
        """Remember so many from now on; the newest stay."""
        if limit != self.limit:
            self._ring = deque(self._ring, maxlen=limit)

    def note(self, pick: Pick, seconds: float, request_id: str, cluster: str) -> None:
        """Remember a decision."""
        self._ring.append(_Decision(self._wall(), request_id, cluster, pick, seconds))

    def view(self, query: Query) -> dict[str, Any]:
        """Newest first, at most `query.limit`; of one request or of one chosen endpoint if it is named."""
        shown: list[dict[str, Any]] = []
        for decision in self._matching(query):
            if len(shown) >= query.limit:
                break
            shown.append(_shown(decision))
        return {"picks": shown}

    def _matching(self, query: Query) -> Iterator[_Decision]:
        asked = request_ids(query.request)
        for decision in reversed(self._ring):
            if query.request and decision.request_id not in asked:
                continue
            if query.endpoint and query.endpoint not in decision.pick.endpoints:
                continue
            yield decision


def request_ids(text: str) -> frozenset[str]:
    """Return which requests are meant: that of this `x-request-id`, or whose answer has this id."""
    found = _ANSWERED.fullmatch(text)
    meant = {text} if found is None else {text, found["whole"], found["base"]}
    return frozenset(request_id[:MAX_ID_CHARS] for request_id in meant)


def _shown(decision: _Decision) -> dict[str, Any]:
    pick = decision.pick
    return {
        "at": datetime.fromtimestamp(decision.at, UTC).isoformat(timespec="milliseconds"),
        "request": decision.request_id or None,
        "pool": decision.cluster or None,
        "reason": pick.reason.value,
        "endpoint": pick.endpoints[0] if pick.endpoints else None,
        "fallbacks": pick.endpoints[1:],
        "matched_share": pick.matched_share if pick.endpoints else None,
        "expected_seconds": pick.expected_seconds,
        "candidates": pick.candidates,
        "considered": [entry._asdict() for entry in pick.considered],
        "prefix": pick.prefix or None,
        "pick_seconds": decision.seconds or None,
        "trace": pick.trace or None,
    }
