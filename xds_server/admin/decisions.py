"""The reasons of weights: the newest changes of weights, and each endpoint's verdict."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleet.service.admin import Query
    from xds_server.weights.verdict import Verdict
    from xds_server.weights.weigh import WeightChange, WeightUpdate

_STEP: Final = 128
"""Changes that are explained without a pause."""


class _Decision(NamedTuple):
    at: float
    """Unix seconds."""
    version: str
    """Of the endpoints that carried it, for Envoys without a group."""
    change: WeightChange


class WeightDecisions:
    """A ring of at most `limit` changes of weights. Single-threaded."""

    def __init__(
        self, limit: int, wall: Callable[[], float], verdict: Callable[[str], dict[str, Any] | None]
    ) -> None:
        """`verdict` returns an endpoint's verdict of the last tick as plain data; None: it is not weighed."""
        self._wall = wall
        self._verdict = verdict
        self._ring: deque[_Decision] = deque(maxlen=limit)
        self._steps: Iterator[None] = iter(())

    def resize(self, limit: int) -> None:
        """Change the limit; the newest changes stay."""
        if limit != self._ring.maxlen:
            self._ring = deque(self._ring, maxlen=limit)

    def note(self, update: WeightUpdate, version: str) -> Iterator[None]:
        """Return the steps that remember a published update: an explanation reads the whole pool.

        First ends the steps of the update before, if a newer tick has interrupted them.
        """
        for _ in self._steps:
            pass
        self._steps = self._remember(self._wall(), update, version)
        return self._steps

    def _remember(self, at: float, update: WeightUpdate, version: str) -> Iterator[None]:
        count = len(update.changes)
        for start in range(max(0, count - (self._ring.maxlen or 0)), count, _STEP):
            changes = update.changes[start : start + _STEP]
            self._ring.extend(_Decision(at, version, change) for change in changes)
            yield

    def view(self, query: Query) -> dict[str, Any]:
        """Newest changes first, at most `query.limit`, of one endpoint if it is named, and its verdict.

        Of a request there are neither.
        """
        changes: list[dict[str, Any]] = []
        for decision in self._matching(query):
            if len(changes) >= query.limit:
                break
            changes.append(_shown(decision))
        verdict = self._verdict(query.endpoint) if query.endpoint else None
        return {"weights": changes, "verdict": verdict}

    def _matching(self, query: Query) -> Iterator[_Decision]:
        if query.request:
            return
        for decision in reversed(self._ring):
            if not query.endpoint or decision.change.address == query.endpoint:
                yield decision


def shown_verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data."""
    return {
        "address": verdict.address,
        "pool": verdict.pool,
        "weight": verdict.weight,
        "share": verdict.share,
        "target_share": verdict.target_share,
        "score": verdict.score,
        "factors": dict(verdict.factors),
        "unhealthy": verdict.unhealthy,
        "reason": verdict.reason,
    }


def _shown(decision: _Decision) -> dict[str, Any]:
    change = decision.change
    return {
        "at": moment(decision.at),
        "version": decision.version,
        "address": change.address,
        "before": change.old,
        "weight": change.new,
        "reason": change.reason,
        "score": change.score,
        "factors": dict(change.factors),
        "signals": dict(change.signals),
    }


def moment(at: float) -> str:
    """Unix seconds for people and programs."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
