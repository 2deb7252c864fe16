"""Whether an engine speaks HTTP/2: what its Envoys saw, and what it answered to us. Pure.

    UNKNOWN  not heard of. Trusted or not, as its pool's protocol says; asked at once
    GOOD     spoken to in HTTP/2
    BAD      spoken to in HTTP/1.1, until an answer to us is good; asked after pauses that double

Breaches of the protocol count for a window. Resets and closed connections may be the engine's own (a restart,
a crash), so an answer in between forgives them; a protocol error is nobody else's. Soon after a return from
BAD one breach is enough, and the next pause is longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet.settings import Http2Settings

UNREACHED_SECONDS: Final = 2.0
"""Before an engine is asked again that could not be reached: that says nothing of its HTTP/2."""


class Standing(Enum):
    """What is known of an engine's HTTP/2."""

    UNKNOWN = "unknown"
    GOOD = "good"
    BAD = "bad"


class Seen(Enum):
    """What became of a request over HTTP/2."""

    ANSWERED = "answered"
    BROKEN = "broken"
    """A protocol error."""
    CUT = "cut"
    """Reset, refused or closed before any answer."""


@dataclass(slots=True)
class _Engine:
    pool: str
    trusted: bool
    """Whether it is spoken to in HTTP/2 before it has answered us."""
    askable: bool
    """Whether we can ask it ourselves; else the next requests do."""
    standing: Standing = Standing.UNKNOWN
    breaches: list[tuple[float, Seen]] = field(default_factory=list)
    pause: float = 0.0
    """The last one; 0: there was none."""
    ask_at: float | None = 0.0
    returned_at: float | None = None


class Http2Standings:
    """Follows the engines of pools that speak HTTP/2. `now` never goes back."""

    def __init__(self, settings: Http2Settings) -> None:
        self.settings = settings
        self._engines: dict[str, _Engine] = {}

    def follow(self, engines: Iterable[tuple[str, str, bool, bool]]) -> None:
        """Take who is there now, as address, pool, and whether it is trusted at first and can be asked."""
        before, self._engines = self._engines, {}
        for address, pool, trusted, askable in engines:
            held = before.get(address)
            if held is None or held.pool != pool or held.askable != askable:
                held = _Engine(pool, trusted, askable, ask_at=0.0 if askable else None)
            held.trusted = trusted
            self._engines[address] = held

    def heard(self, address: str, seen: Seen, now: float) -> bool:
        """Take what an Envoy saw; returns whether the engine has turned bad by it."""
        held = self._engines.get(address)
        if held is None or held.standing is Standing.BAD:
            return False
        oldest = now - self.settings.window_seconds
        if seen is Seen.ANSWERED:
            if held.breaches:
                held.breaches = [
                    (at, what) for at, what in held.breaches if what is Seen.BROKEN and at >= oldest
                ]
            return False
        held.breaches = [entry for entry in held.breaches if entry[0] >= oldest]
        held.breaches.append((now, seen))
        returned = held.returned_at is not None and now - held.returned_at < held.pause
        if len(held.breaches) < (1 if returned else self.settings.errors):
            return False
        self._turn_bad(held, now)
        return True

    def answered(self, address: str, *, good: bool | None, now: float) -> bool:
        """Take what an engine answered to us, None if it was not reached; returns whether that is news."""
        held = self._engines.get(address)
        if held is None:
            return False
        if good is None:
            held.ask_at = now + UNREACHED_SECONDS
            return False
        before = held.standing
        if good:
            self._turn_good(held, now)
        else:
            self._turn_bad(held, now)
        return held.standing is not before

    def due(self, now: float) -> list[str]:
        """Return who is to be asked now; each is asked once, until its answer has come."""
        found = []
        for address, held in self._engines.items():
            if held.ask_at is None or now < held.ask_at:
                continue
            held.ask_at = None
            if held.askable:
                found.append(address)
            elif held.standing is Standing.BAD:
                self._turn_good(held, now)
        return found

    def moved(self) -> frozenset[str]:
        """Return the pools that are to be spoken to in HTTP/1.1."""
        return frozenset(held.pool for held in self._engines.values() if _is_bad(held))

    def bad(self) -> Iterator[tuple[str, float | None]]:
        """Engines that are bad, with when they are asked again."""
        for address, held in self._engines.items():
            if held.standing is Standing.BAD:
                yield address, held.ask_at

    def _turn_bad(self, held: _Engine, now: float) -> None:
        settings = self.settings
        relapsed = held.standing is Standing.BAD or (
            held.returned_at is not None and now - held.returned_at < held.pause
        )
        longer = min(held.pause * 2, settings.most_pause_seconds)
        held.pause = longer if relapsed and held.pause else settings.pause_seconds
        held.standing, held.breaches, held.returned_at = Standing.BAD, [], None
        held.ask_at = now + held.pause

    @staticmethod
    def _turn_good(held: _Engine, now: float) -> None:
        if held.standing is Standing.BAD:
            held.returned_at = now
        held.standing, held.breaches, held.ask_at = Standing.GOOD, [], None


def _is_bad(held: _Engine) -> bool:
    return held.standing is Standing.BAD or (held.standing is Standing.UNKNOWN and not held.trusted)
