"""Which pools go by HTTP/1.1 for now: reads the access log, probes engines, feeds the snapshot."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge

from fleet.service.turns import Turns
from fleet.settings.address import split_host_port
from xds_server.http2.probe import speaks_http1, speaks_http2
from xds_server.http2.protocol_choice import ProtocolChoice
from xds_server.http2.support import Http2Tracker, RequestOutcome
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.settings import PoolSettings, Settings
    from xds_server.access_log.finished import Finished
    from xds_server.http2.support import ProtocolProbe
    from xds_server.tls.engine_tls import EngineTls

logger = logging.getLogger(__name__)

_BROKEN: Final = frozenset({"UPE"})
_CUT: Final = frozenset({"UR", "UC"})
FIRST_ANSWERS_MOST_SECONDS: Final = 1.0
"""Longest time that new settings wait for the first probes."""
_MOST_PROBES: Final = 16
"""At once; the other engines of a large new fleet wait for their turn."""


class Http2Metrics:
    """Metrics of pools that speak HTTP/2."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.moved = Gauge(
            "warmroute_http2_pools_moved",
            "Pools with HTTP/2 in their settings whose requests go by HTTP/1.1 for now",
            registry=registry,
        )
        self.unmovable = Gauge(
            "warmroute_http2_pools_held",
            "Pools with an engine that speaks HTTP/2 badly that stay with it: not all speak HTTP/1.1",
            registry=registry,
        )
        self.breaches = Counter(
            "warmroute_http2_breaches",
            "Requests over HTTP/2 that ended by a breach of the protocol or without any answer, by pool",
            ["pool"],
            registry=registry,
        )
        self.probe_faults = Counter(
            "warmroute_http2_probe_faults",
            "Probes of engines' protocols that failed by a fault of ours",
            registry=registry,
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
        """`on_change` is called when `choice` may change at the next tick."""
        self.choice = ProtocolChoice()
        """As of the last tick."""
        self._engine_tls = engine_tls
        self._metrics = Http2Metrics(registry)
        self._clock = clock
        self._on_change = on_change
        self._tracker = Http2Tracker(settings.upgrades.http2)
        self._pools: dict[str, PoolSettings] = {}
        self._membership: Membership | None = None
        self._probes: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MOST_PROBES)
        self._turns = Turns()
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings."""
        self._tracker.settings = settings.upgrades.http2
        self._pools = {pool.name: pool for pool in settings.pools if pool.protocol in ("h2", "auto")}
        self._membership = None

    def note(self, finished: Finished) -> None:
        """Record a request that an Envoy has finished."""
        if finished.cluster not in self._pools or not finished.address:
            return
        outcome = _outcome_of(finished)
        if outcome is None:
            return
        if finished.over_http1:
            if outcome is not RequestOutcome.ANSWERED:
                self._tracker.record_http1_failure(finished.address, self._clock())
            return
        if outcome is not RequestOutcome.ANSWERED:
            self._metrics.breaches.labels(finished.cluster).inc()
        if self._tracker.record(finished.address, outcome, self._clock()):
            logger.warning("%s of pool %s speaks HTTP/2 badly", finished.address, finished.cluster)
            self._on_change()

    def tick(self, membership: Membership, now: float) -> ProtocolChoice:
        """Follow the membership and start probes; returns which pools go by HTTP/1.1."""
        if membership is not self._membership:
            self._membership = membership
            self._tracker.follow(
                (endpoint.address, pool.name, *self._trust(pool.name))
                for pool in membership.pools
                if pool.name in self._pools
                for endpoint in pool.endpoints
            )
        if not self._pools and self.choice == ProtocolChoice():
            return self.choice
        for probe in self._tracker.start_probes(now):
            task = asyncio.get_running_loop().create_task(
                self._run_probe(probe), name=f"http2 {probe.address}"
            )
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)
        choice = self._tracker.choose_protocols()
        if choice != self.choice:
            self._log_moves(self.choice, choice)
            self.choice = choice
            self._metrics.moved.set(len(choice.moved))
            self._metrics.unmovable.set(len(choice.unmovable))
        return self.choice

    async def first_sync(
        self, membership: Membership, most_seconds: float = FIRST_ANSWERS_MOST_SECONDS
    ) -> None:
        """Wait for first probes before routes depend on them: a restart or reload then changes no route."""
        self.tick(membership, self._clock())
        if self._probes:
            await asyncio.wait(tuple(self._probes), timeout=most_seconds)

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """Path of the admin server to view."""
        return {"/api/v1/http2": self._status}

    async def close(self) -> None:
        """Cancel every probe."""
        for task in tuple(self._probes):
            task.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)

    def _trust(self, pool: str) -> tuple[bool, bool]:
        """Whether its engines are trusted at first, and whether we can probe them: not behind TLS."""
        settings = self._pools[pool]
        return settings.protocol == "h2" or settings.tls is not None, settings.tls is None

    async def _run_probe(self, probe: ProtocolProbe) -> None:
        good = http1 = None
        try:
            async with self._slots:
                good, http1 = await self._probe_engine(probe)
        except Exception:  # the one edge: a fault of ours must not end the probes of an engine
            self._metrics.probe_faults.inc()
            logger.exception("a probe of the protocols of %s failed by a fault of ours", probe.address)
        if self._tracker.record_probe(probe.address, good=good, http1=http1, now=self._clock()):
            spoken = (
                f"{'speaks' if speaks else 'does not speak'} {name}"
                for name, speaks in (("HTTP/2", good), ("HTTP/1.1", http1))
                if speaks is not None
            )
            logger.info("%s of pool %s %s", probe.address, probe.pool, ", ".join(spoken))
            self._on_change()

    async def _probe_engine(self, probe: ProtocolProbe) -> tuple[bool | None, bool | None]:
        """Whether an engine speaks HTTP/2 and HTTP/1.1; None: unknown, or not probed for this."""
        host, port = split_host_port(probe.address)
        timeout = self._tracker.settings.probe_timeout_seconds
        http1_probe = speaks_http1(host, port, timeout, self._engine_tls(probe.pool))
        if not probe.http2:
            return None, await http1_probe
        good, http1 = await asyncio.gather(speaks_http2(host, port, timeout, self._turns), http1_probe)
        return good, http1

    def _log_moves(self, before: ProtocolChoice, choice: ProtocolChoice) -> None:
        for pool in sorted(choice.moved - before.moved):
            level = logging.INFO if self._pools[pool].protocol == "auto" else logging.WARNING
            logger.log(level, "pool %s goes by HTTP/1.1: not all of its engines speak HTTP/2 well", pool)
        for pool in sorted(choice.unmovable - before.unmovable):
            logger.warning(
                "pool %s stays with HTTP/2, which not all of its engines speak well: "
                "not all of them are known to speak HTTP/1.1",
                pool,
            )
        for pool in sorted((before.moved - choice.moved) & self._pools.keys()):
            logger.info("pool %s goes by HTTP/2", pool)

    def _status(self) -> dict[str, Any]:
        now = self._clock()
        return {
            "moved": sorted(self.choice.moved),
            "held": sorted(self.choice.unmovable),
            "fallback_over_http1": sorted(self.choice.fallback),
            "upgrades_over_http1": sorted(self.choice.upgrades),
            "bad": {
                address: {"asked_in_seconds": None if at is None else max(0.0, at - now)}
                for address, at in self._tracker.bad()
            },
        }


def _outcome_of(finished: Finished) -> RequestOutcome | None:
    """What a request shows about its engine's HTTP/2; None: nothing."""
    flags = frozenset(finished.flags)
    if flags & _BROKEN:
        return RequestOutcome.PROTOCOL_ERROR
    if finished.first_byte_seconds is not None:
        return RequestOutcome.ANSWERED
    return RequestOutcome.CUT if flags & _CUT else None
