"""Which pools go by HTTP/1.1 for now: hears the access log, asks engines, tells the snapshot."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge

from fleet.settings.address import split_host_port
from xds_server.http2.probe import speaks_http2
from xds_server.http2.probe_http1 import speaks_http1
from xds_server.http2.standing import Http2Standings, Seen
from xds_server.http2.ways import Ways
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.settings import PoolSettings, Settings
    from xds_server.access_log.finished import Finished
    from xds_server.http2.standing import Question
    from xds_server.tls.engine_tls import EngineTls

logger = logging.getLogger(__name__)

_BROKEN: Final = frozenset({"UPE"})
_CUT: Final = frozenset({"UR", "UC"})
FIRST_ANSWERS_MOST_SECONDS: Final = 1.0
"""New settings wait no longer for engines to say which protocols they speak."""
_MOST_PROBES: Final = 16
"""At once: a new fleet of a thousand engines is asked in turn."""


@dataclass(frozen=True, slots=True)
class Http2Metrics:
    """What is counted of pools that speak HTTP/2."""

    moved: Gauge
    held: Gauge
    breaches: Counter
    probe_faults: Counter

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Http2Metrics:
        """Create the metrics in a registry."""
        return cls(
            Gauge(
                "warmroute_http2_pools_moved",
                "Pools that speak HTTP/2 and are spoken to in HTTP/1.1 for now",
                registry=registry,
            ),
            Gauge(
                "warmroute_http2_pools_held",
                "Pools with an engine that speaks HTTP/2 badly that stay with it: not all speak HTTP/1.1",
                registry=registry,
            ),
            Counter(
                "warmroute_http2_breaches",
                "Requests over HTTP/2 that ended by a breach of the protocol or without any answer, by pool",
                ["pool"],
                registry=registry,
            ),
            Counter(
                "warmroute_http2_probe_faults",
                "Questions to engines, which protocols they speak, that failed by a fault of ours",
                registry=registry,
            ),
        )


class Http2Watch:
    """Moves pools to HTTP/1.1 and back. All calls come from one event loop."""

    def __init__(
        self,
        settings: Settings,
        registry: CollectorRegistry,
        clock: Callable[[], float],
        *,
        on_change: Callable[[], None],
        engine_tls: EngineTls = plaintext,
    ) -> None:
        """`on_change` hears when `ways` may have changed."""
        self.ways = Ways()
        """Which pools go by HTTP/1.1 as of the last tick."""
        self._engine_tls = engine_tls
        self._metrics = Http2Metrics.of(registry)
        self._clock = clock
        self._on_change = on_change
        self._standings = Http2Standings(settings.upgrades.http2)
        self._pools: dict[str, PoolSettings] = {}
        self._membership: Membership | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MOST_PROBES)
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Take over changed settings."""
        self._standings.settings = settings.upgrades.http2
        self._pools = {pool.name: pool for pool in settings.pools if pool.protocol in ("h2", "auto")}
        self._membership = None

    def note(self, finished: Finished) -> None:
        """Hear of a request that an Envoy has finished."""
        if finished.cluster not in self._pools or not finished.address:
            return
        seen = _seen(finished)
        if seen is None:
            return
        if finished.over_http1:
            if seen is not Seen.ANSWERED:
                self._standings.heard_http1(finished.address, self._clock())
            return
        if seen is not Seen.ANSWERED:
            self._metrics.breaches.labels(finished.cluster).inc()
        if self._standings.heard(finished.address, seen, self._clock()):
            logger.warning("%s of pool %s speaks HTTP/2 badly", finished.address, finished.cluster)
            self._on_change()

    def tick(self, membership: Membership, now: float) -> Ways:
        """Follow the membership, ask who is due; returns which pools go by HTTP/1.1."""
        if membership is not self._membership:
            self._membership = membership
            self._standings.follow(
                (endpoint.address, pool.name, *self._trust(pool.name))
                for pool in membership.pools
                if pool.name in self._pools
                for endpoint in pool.endpoints
            )
        if not self._pools and self.ways == Ways():
            return self.ways
        for question in self._standings.due(now):
            task = asyncio.get_running_loop().create_task(
                self._ask(question), name=f"http2 {question.address}"
            )
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        found = self._standings.ways()
        if found != self.ways:
            self._tell(self.ways, found)
            self.ways = found
            self._metrics.moved.set(len(found.moved))
            self._metrics.held.set(len(found.held))
        return self.ways

    async def first_sync(
        self, membership: Membership, most_seconds: float = FIRST_ANSWERS_MOST_SECONDS
    ) -> None:
        """Ask who is due before routes rest on it, so that restarts and new settings change no route."""
        self.tick(membership, self._clock())
        if self._asking:
            await asyncio.wait(tuple(self._asking), timeout=most_seconds)

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """What the admin server shows: path to view."""
        return {"/api/v1/http2": self._status}

    async def close(self) -> None:
        """End every question."""
        for task in tuple(self._asking):
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def _trust(self, pool: str) -> tuple[bool, bool]:
        """Whether its engines are trusted at first, and whether we can ask them: not behind TLS."""
        held = self._pools[pool]
        return held.protocol == "h2" or held.tls is not None, held.tls is None

    async def _ask(self, question: Question) -> None:
        good = http1 = None
        try:
            async with self._slots:
                good, http1 = await self._answers(question)
        except Exception:  # the one edge: a fault of ours must not end the questions to an engine
            self._metrics.probe_faults.inc()
            logger.exception(
                "asking %s which protocols it speaks failed by a fault of ours", question.address
            )
        if self._standings.answered(question.address, good=good, http1=http1, now=self._clock()):
            spoken = (
                f"{'speaks' if known else 'does not speak'} {name}"
                for name, known in (("HTTP/2", good), ("HTTP/1.1", http1))
                if known is not None
            )
            logger.info("%s of pool %s %s", question.address, question.pool, ", ".join(spoken))
            self._on_change()

    async def _answers(self, question: Question) -> tuple[bool | None, bool | None]:
        """Whether an engine speaks HTTP/2 and HTTP/1.1; None: not known, or not asked."""
        host, port = split_host_port(question.address)
        timeout = self._standings.settings.probe_timeout_seconds
        asking_http1 = speaks_http1(host, port, timeout, self._engine_tls(question.pool))
        if not question.http2:
            return None, await asking_http1
        good, http1 = await asyncio.gather(speaks_http2(host, port, timeout), asking_http1)
        return good, http1

    def _tell(self, before: Ways, found: Ways) -> None:
        for pool in sorted(found.moved - before.moved):
            level = logging.INFO if self._pools[pool].protocol == "auto" else logging.WARNING
            logger.log(level, "pool %s goes by HTTP/1.1: not all of its engines speak HTTP/2 well", pool)
        for pool in sorted(found.held - before.held):
            logger.warning(
                "pool %s stays with HTTP/2, which not all of its engines speak well: "
                "not all of them are known to speak HTTP/1.1",
                pool,
            )
        for pool in sorted((before.moved - found.moved) & self._pools.keys()):
            logger.info("pool %s goes by HTTP/2", pool)

    def _status(self) -> dict[str, Any]:
        now = self._clock()
        return {
            "moved": sorted(self.ways.moved),
            "held": sorted(self.ways.held),
            "fallback_over_http1": sorted(self.ways.fallback),
            "upgrades_over_http1": sorted(self.ways.upgrades),
            "bad": {
                address: {"asked_in_seconds": None if at is None else max(0.0, at - now)}
                for address, at in self._standings.bad()
            },
        }


def _seen(finished: Finished) -> Seen | None:
    """What a request tells of its engine's HTTP/2; None: nothing."""
    flags = frozenset(finished.flags)
    if flags & _BROKEN:
        return Seen.BROKEN
    if finished.first_byte_seconds is not None:
        return Seen.ANSWERED
    return Seen.CUT if flags & _CUT else None
