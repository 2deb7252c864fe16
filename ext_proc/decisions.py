"""The newest decisions, which explain afterwards why a request went where it went.

Results are kept as they were made; texts are made on demand. Nothing of the prompt is kept.
"""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ext_proc.protocol.attributes import MAX_ID_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ext_proc.pick.result import Considered, Decision, PickResult
    from fleet.service.admin import Query


_ANSWERED: Final = re.compile(r"(?:generate-tokens|[a-z]+)[-_](?P<whole>(?P<base>.+?)(?:-\d+)?)")
"""An answer's own id as vLLM makes it of `x-request-id`: `chatcmpl-ID`, or `cmpl-ID-0` with a number."""


class _Entry(NamedTuple):
    at: float
    """Unix seconds."""
    request_id: str
    cluster: str
    result: PickResult
    candidates: int
    considered: Sequence[Considered]
    seconds: float
    trace: str


class PickDecisions:
    """A ring of at most `limit` decisions. Single-threaded."""

    def __init__(self, limit: int, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._ring: deque[_Entry] = deque(maxlen=limit)

    @property
    def limit(self) -> int:
        """How many are remembered."""
        return self._ring.maxlen or 0

    def resize(self, limit: int) -> None:
        """Remember so many from now on; the newest stay."""
        if limit != self.limit:
            self._ring = deque(self._ring, maxlen=limit)

    def note(
        self, decision: Decision, seconds: float, *, request_id: str, cluster: str, trace: str = ""
    ) -> None:
        """Remember a decision; `seconds` is what it took, `trace` the traceparent of its span."""
        self._ring.append(
            _Entry(
                self._wall(),
                request_id,
                cluster,
                decision.result,
                decision.candidates,
                decision.considered,
                seconds,
                trace,
            )
        )

    def view(self, query: Query) -> dict[str, Any]:
        """Newest first, at most `query.limit`; of one request or of one chosen endpoint if it is named."""
        shown: list[dict[str, Any]] = []
        for entry in self._matching(query):
            if len(shown) >= query.limit:
                break
            shown.append(_shown(entry))
        return {"picks": shown}

    def _matching(self, query: Query) -> Iterator[_Entry]:
        ids = request_ids(query.request)
        for entry in reversed(self._ring):
            if query.request and entry.request_id not in ids:
                continue
            if query.endpoint and query.endpoint not in entry.result.endpoints:
                continue
            yield entry


def request_ids(text: str) -> frozenset[str]:
    """Return which requests are meant: that of this `x-request-id`, or whose answer has this id."""
    match = _ANSWERED.fullmatch(text)
    ids = {text} if match is None else {text, match["whole"], match["base"]}
    return frozenset(request_id[:MAX_ID_CHARS] for request_id in ids)


def _shown(entry: _Entry) -> dict[str, Any]:
    result = entry.result
    return {
        "at": datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds"),
        "request": entry.request_id or None,
        "pool": entry.cluster or None,
        "reason": result.reason.value,
        "endpoint": result.endpoints[0] if result.endpoints else None,
        "rank": result.rank or None,
        "refused_with": result.refusal.status if result.refusal else None,
        "fallbacks": result.endpoints[1:],
        "matched_share": result.matched_share if result.endpoints else None,
        "expected_seconds": result.expected_seconds,
        "candidates": entry.candidates,
        "considered": [msgspec.structs.asdict(considered) for considered in entry.considered],
        "prefix": result.prefix or None,
        "pick_seconds": entry.seconds or None,
        "trace": entry.trace or None,
    }
