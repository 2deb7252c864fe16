"""Whether an engine speaks HTTP/2 and HTTP/1.1, from its Envoys' requests and from our own probes. Pure.

    UNKNOWN  no probe or request has shown it yet. Trusted or not, as its pool's protocol says; probed at once
    GOOD     gets requests over HTTP/2
    BAD      should get requests over HTTP/1.1 until a probe succeeds; probed after pauses that double

Breaches of the protocol count for a window. A protocol error always has HTTP/2 as its cause. Resets and
closed connections may have another (a restart, a crash): an answer in between clears them, and they turn an
engine bad only after a probe. A dead engine does not answer the probe, so it does not turn bad. Soon after a
return from BAD one breach is enough, and the next pause is longer.

Every probe tests HTTP/1.1 too, because a pool moves only to a protocol that its engines are known to speak.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from xds_server.http2.protocol_choice import EngineProtocols, choose_protocols

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet.settings import Http2Settings
    from xds_server.http2.protocol_choice import ProtocolChoice

UNREACHED_SECONDS: Final = 2.0
"""Until the next probe of an engine that could not be reached, which shows nothing about its HTTP/2."""


class Http2Support(Enum):
    """What is known of an engine's HTTP/2."""

    UNKNOWN = "unknown"
    GOOD = "good"
    BAD = "bad"


class ProtocolProbe(NamedTuple):
    """A probe of one engine for HTTP/1.1."""

    address: str
    pool: str
    http2: bool
    """Whether it tests HTTP/2 too."""


class RequestOutcome(Enum):
    """How a request over HTTP/2 ended."""

    ANSWERED = "answered"
    PROTOCOL_ERROR = "protocol_error"
    CUT = "cut"
    """Reset, refused or closed before any answer."""


@dataclass(slots=True)
class _Engine:
    pool: str
    trusted: bool
    """Whether it gets requests over HTTP/2 before its first probe is over."""
    can_probe: bool
    """Whether we can probe its HTTP/2; otherwise the next requests test it."""
    support: Http2Support = Http2Support.UNKNOWN
    breaches: list[tuple[float, RequestOutcome]] = field(default_factory=list)
    pause: float = 0.0
    """Seconds of the newest pause; 0: there was none."""
    probe_at: float | None = 0.0
    returned_at: float | None = None
    suspected: bool = False
    """Whether it is probed because its requests were cut."""
    alive: bool = False
    """Whether it has passed a probe since, so that further cuts have HTTP/2 as their cause."""
    http1: bool | None = None
    """Whether it speaks HTTP/1.1; None: unknown."""
    http1_pause: float = 0.0
    http1_probe_at: float | None = 0.0
    """When it is probed for HTTP/1.1, unless a probe for HTTP/2 comes first."""
    probe: ProtocolProbe | None = None
    """The probe in flight."""


class Http2Tracker:
    """Follows the engines of pools that speak HTTP/2. `now` never goes back."""

    def __init__(self, settings: Http2Settings) -> None:
        self.settings = settings
        self._engines: dict[str, _Engine] = {}

    def follow(self, engines: Iterable[tuple[str, str, bool, bool]]) -> None:
        """Replace the engines, given as address, pool, `trusted` and `can_probe`."""
        previous, self._engines = self._engines, {}
        for address, pool, trusted, can_probe in engines:
            engine = previous.get(address)
            if engine is None or engine.pool != pool or engine.can_probe != can_probe:
                engine = _Engine(pool, trusted, can_probe, probe_at=0.0 if can_probe else None)
            engine.trusted = trusted
            self._engines[address] = engine

    def record(self, address: str, outcome: RequestOutcome, now: float) -> bool:
        """Record how a client's request over HTTP/2 ended; returns whether the engine turns bad by it."""
        engine = self._engines.get(address)
        if engine is None or engine.support is Http2Support.BAD:
            return False
        oldest = now - self.settings.window_seconds
        if outcome is RequestOutcome.ANSWERED:
            engine.alive = False
            if engine.breaches:
                engine.breaches = [breach for breach in _protocol_errors(engine) if breach[0] >= oldest]
            return False
        engine.breaches = [breach for breach in engine.breaches if breach[0] >= oldest]
        engine.breaches.append((now, outcome))
        returned = engine.returned_at is not None and now - engine.returned_at < engine.pause
        enough = 1 if returned else self.settings.errors
        if len(engine.breaches) < enough:
            return False
        errors = _protocol_errors(engine)
        if len(errors) < enough and engine.can_probe and not engine.alive:
            engine.breaches, engine.probe_at, engine.suspected = errors, now, True
            return False
        self._turn_bad(engine, now)
        return True

    def record_http1_failure(self, address: str, now: float) -> None:
        """Probe HTTP/1.1 again after a failed request: another engine may have taken the address."""
        engine = self._engines.get(address)
        if engine is not None:
            engine.http1_probe_at = now

    def record_probe(self, address: str, *, good: bool | None, http1: bool | None, now: float) -> bool:
        """Record a probe's result; returns whether it changes what is known.

        `good` is its HTTP/2, `http1` its HTTP/1.1; None: it was not reached, or not probed for this.
        """
        engine = self._engines.get(address)
        if engine is None:
            return False
        probe, engine.probe = engine.probe, None
        previous = engine.support, engine.http1
        self._take_http1(engine, now, speaks=http1)
        if good:
            engine.alive, engine.suspected = engine.suspected, False
            self._turn_good(engine, now)
        elif good is not None:
            self._turn_bad(engine, now)
        elif probe is not None and probe.http2:
            engine.probe_at = now + UNREACHED_SECONDS
        return (engine.support, engine.http1) != previous

    def start_probes(self, now: float) -> list[ProtocolProbe]:
        """Return the probes to send now; an engine has one in flight at most."""
        probes = []
        for address, engine in self._engines.items():
            http2, http1 = _is_over(engine.probe_at, now), _is_over(engine.http1_probe_at, now)
            if engine.probe is not None or not (http2 or http1):
                continue
            if http2:
                engine.probe_at = None
            if http2 and not engine.can_probe and engine.support is Http2Support.BAD:
                self._turn_good(engine, now)
            if http1 or engine.can_probe:
                engine.http1_probe_at = None
                engine.probe = ProtocolProbe(address, engine.pool, http2 and engine.can_probe)
                probes.append(engine.probe)
        return probes

    def choose_protocols(self) -> ProtocolChoice:
        """Return the protocol of each pool's requests."""
        return choose_protocols(
            (engine.pool, EngineProtocols(_is_bad(engine), _is_unknown(engine), engine.http1))
            for engine in self._engines.values()
        )

    def bad(self) -> Iterator[tuple[str, float | None]]:
        """Addresses of bad engines, each with the time of its next probe."""
        for address, engine in self._engines.items():
            if engine.support is Http2Support.BAD:
                yield address, engine.probe_at

    def _turn_bad(self, engine: _Engine, now: float) -> None:
        settings = self.settings
        relapsed = engine.support is Http2Support.BAD or (
            engine.returned_at is not None and now - engine.returned_at < engine.pause
        )
        longer = min(engine.pause * 2, settings.most_pause_seconds)
        engine.pause = longer if relapsed and engine.pause else settings.pause_seconds
        engine.support, engine.breaches, engine.returned_at = Http2Support.BAD, [], None
        engine.suspected = engine.alive = False
        engine.probe_at = now + engine.pause

    def _take_http1(self, engine: _Engine, now: float, *, speaks: bool | None) -> None:
        """Keep the last result while an engine cannot be reached."""
        if speaks is not None:
            engine.http1 = speaks
        if speaks:
            engine.http1_pause, engine.http1_probe_at = 0.0, None
            return
        longer = min(engine.http1_pause * 2, self.settings.most_pause_seconds)
        engine.http1_pause = longer or min(UNREACHED_SECONDS, self.settings.most_pause_seconds)
        engine.http1_probe_at = now + engine.http1_pause

    @staticmethod
    def _turn_good(engine: _Engine, now: float) -> None:
        if engine.support is Http2Support.BAD:
            engine.returned_at = now
        engine.support, engine.breaches, engine.probe_at = Http2Support.GOOD, [], None


def _protocol_errors(engine: _Engine) -> list[tuple[float, RequestOutcome]]:
    return [breach for breach in engine.breaches if breach[1] is RequestOutcome.PROTOCOL_ERROR]


def _is_unknown(engine: _Engine) -> bool:
    return engine.support is Http2Support.UNKNOWN and not engine.trusted


def _is_bad(engine: _Engine) -> bool:
    return engine.support is Http2Support.BAD or _is_unknown(engine)


def _is_over(at: float | None, now: float) -> bool:
    return at is not None and now >= at
