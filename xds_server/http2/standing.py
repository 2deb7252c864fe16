"""Whether an engine speaks HTTP/2 and HTTP/1.1: what its Envoys saw, and what it answered to us. Pure.

    UNKNOWN  not heard of. Trusted or not, as its pool's protocol says; asked at once
    GOOD     spoken to in HTTP/2
    BAD      better spoken to in HTTP/1.1, until an answer to us is good; asked after pauses that double

Breaches of the protocol count for a window. A protocol error is nobody else's. Resets and closed connections
may be the engine's own (a restart, a crash): an answer in between forgives them, and before they make an
engine bad it is asked. Who is dead does not answer, and is not bad. Soon after a return from BAD one breach
is enough, and the next pause is longer.

HTTP/1.1 is asked for with each question, because nobody is moved to what it is not known to speak.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from xds_server.http2.ways import Spoken, ways

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet.settings import Http2Settings
    from xds_server.http2.ways import Ways

UNREACHED_SECONDS: Final = 2.0
"""Before an engine is asked again that could not be reached: that says nothing of its HTTP/2."""


class Standing(Enum):
    """What is known of an engine's HTTP/2."""

    UNKNOWN = "unknown"
    GOOD = "good"
    BAD = "bad"


class Question(NamedTuple):
    """Who is to be asked whether it speaks HTTP/1.1, and whether HTTP/2 too."""

    address: str
    pool: str
    http2: bool


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
    """Whether we can ask it for HTTP/2 ourselves; else the next requests do."""
    standing: Standing = Standing.UNKNOWN
    breaches: list[tuple[float, Seen]] = field(default_factory=list)
    pause: float = 0.0
    """The last one; 0: there was none."""
    ask_at: float | None = 0.0
    returned_at: float | None = None
    suspected: bool = False
    """It is asked because its requests were cut."""
    vouched: bool = False
    """It has answered us well since, so it is alive: its cuts are its HTTP/2's."""
    http1: bool | None = None
    """Whether it speaks HTTP/1.1; None: not known."""
    http1_pause: float = 0.0
    http1_at: float | None = 0.0
    """When it is asked for HTTP/1.1, if not before for HTTP/2."""
    asked: Question | None = None


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
        """Take what an Envoy saw of HTTP/2; returns whether the engine has turned bad by it."""
        held = self._engines.get(address)
        if held is None or held.standing is Standing.BAD:
            return False
        oldest = now - self.settings.window_seconds
        if seen is Seen.ANSWERED:
            held.vouched = False
            if held.breaches:
                held.breaches = [
                    (at, what) for at, what in held.breaches if what is Seen.BROKEN and at >= oldest
                ]
            return False
        held.breaches = [entry for entry in held.breaches if entry[0] >= oldest]
        held.breaches.append((now, seen))
        returned = held.returned_at is not None and now - held.returned_at < held.pause
        enough = 1 if returned else self.settings.errors
        if len(held.breaches) < enough:
            return False
        broken = [entry for entry in held.breaches if entry[1] is Seen.BROKEN]
        if len(broken) < enough and held.askable and not held.vouched:
            held.breaches, held.ask_at, held.suspected = broken, now, True
            return False
        self._turn_bad(held, now)
        return True

    def heard_http1(self, address: str, now: float) -> None:
        """Hear that HTTP/1.1 has failed at an engine: it may be another one than the one that was asked."""
        held = self._engines.get(address)
        if held is not None:
            held.http1_at = now

    def answered(self, address: str, *, good: bool | None, http1: bool | None, now: float) -> bool:
        """Take what an engine answered to us; returns whether that is news.

        `good` is its HTTP/2, `http1` its HTTP/1.1; None: it was not reached, or not asked.
        """
        held = self._engines.get(address)
        if held is None:
            return False
        asked, held.asked = held.asked, None
        before = held.standing, held.http1
        self._take_http1(held, now, speaks=http1)
        if good:
            held.vouched, held.suspected = held.suspected, False
            self._turn_good(held, now)
        elif good is not None:
            self._turn_bad(held, now)
        elif asked is not None and asked.http2:
            held.ask_at = now + UNREACHED_SECONDS
        return (held.standing, held.http1) != before

    def due(self, now: float) -> list[Question]:
        """Return who is to be asked now; each is asked once, until its answer has come."""
        found = []
        for address, held in self._engines.items():
            http2, http1 = _passed(held.ask_at, now), _passed(held.http1_at, now)
            if held.asked is not None or not (http2 or http1):
                continue
            if http2:
                held.ask_at = None
            if http2 and not held.askable and held.standing is Standing.BAD:
                self._turn_good(held, now)
            if http1 or held.askable:
                held.http1_at = None
                held.asked = Question(address, held.pool, http2 and held.askable)
                found.append(held.asked)
        return found

    def ways(self) -> Ways:
        """Return by which protocol each pool is to be spoken to."""
        return ways(
            (held.pool, Spoken(_is_bad(held), _is_unknown(held), held.http1))
            for held in self._engines.values()
        )

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
        held.suspected = held.vouched = False
        held.ask_at = now + held.pause

    def _take_http1(self, held: _Engine, now: float, *, speaks: bool | None) -> None:
        """What was known stays known while an engine cannot be reached."""
        if speaks is not None:
            held.http1 = speaks
        if speaks:
            held.http1_pause, held.http1_at = 0.0, None
            return
        longer = min(held.http1_pause * 2, self.settings.most_pause_seconds)
        held.http1_pause = longer or min(UNREACHED_SECONDS, self.settings.most_pause_seconds)
        held.http1_at = now + held.http1_pause

    @staticmethod
    def _turn_good(held: _Engine, now: float) -> None:
        if held.standing is Standing.BAD:
            held.returned_at = now
        held.standing, held.breaches, held.ask_at = Standing.GOOD, [], None


def _is_unknown(held: _Engine) -> bool:
    return held.standing is Standing.UNKNOWN and not held.trusted


def _is_bad(held: _Engine) -> bool:
    return held.standing is Standing.BAD or _is_unknown(held)


def _passed(at: float | None, now: float) -> bool:
    return at is not None and now >= at
