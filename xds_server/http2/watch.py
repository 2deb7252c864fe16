"""Which pools go by HTTP/1.1 for now: hears the access log, asks engines, tells the snapshot."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge

from fleet.settings.address import split_host_port
from xds_server.http2.probe import speaks_http2
from xds_server.http2.standing import Http2Standings, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.settings import PoolSettings, Settings
    from xds_server.signals.served import Finished

logger = logging.getLogger(__name__)

_BROKEN: Final = frozenset({"UPE"})
_CUT: Final = frozenset({"UR", "UC"})
_MOST_PROBES: Final = 16
"""At once: a new fleet of a thousand engines is asked in turn."""


@dataclass(frozen=True, slots=True)
class Http2Metrics:
    """What is counted of pools that speak HTTP/2."""

    moved: Gauge
    breaches: Counter

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Http2Metrics:
        """Create the metrics in a registry."""
        return cls(
            Gauge(
                "warmroute_http2_pools_moved",
                "Pools that speak HTTP/2 and are spoken to in HTTP/1.1 for now",
                registry=registry,
            ),
            Counter(
                "warmroute_http2_breaches",
                "Requests over HTTP/2 that ended by a breach of the protocol or without any answer, by pool",
                ["pool"],
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
    ) -> None:
        """`on_change` hears when `moved` may have changed."""
        self.moved: frozenset[str] = frozenset()
        """The pools that go by HTTP/1.1 as of the last tick."""
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
        if finished.cluster not in self._pools or finished.over_http1 or not finished.address:
            return
        seen = _seen(finished)
        if seen is None:
            return
        if seen is not Seen.ANSWERED:
            self._metrics.breaches.labels(finished.cluster).inc()
        if self._standings.heard(finished.address, seen, self._clock()):
            logger.warning("%s speaks HTTP/2 badly: its pool goes by HTTP/1.1", finished.address)
            self._on_change()

    def tick(self, membership: Membership, now: float) -> frozenset[str]:
        """Follow the membership, ask who is due; returns the pools that go by HTTP/1.1."""
        if membership is not self._membership:
            self._membership = membership
            self._standings.follow(
                (endpoint.address, pool.name, *self._trust(pool.name))
                for pool in membership.pools
                if pool.name in self._pools
                for endpoint in pool.endpoints
            )
        if not self._pools and not self.moved:
            return self.moved
        for address in self._standings.due(now):
            task = asyncio.get_running_loop().create_task(self._ask(address), name=f"http2 {address}")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        self.moved = self._standings.moved()
        self._metrics.moved.set(len(self.moved))
        return self.moved

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

    async def _ask(self, address: str) -> None:
        host, port = split_host_port(address)
        async with self._slots:
            timeout = self._standings.settings.probe_timeout_seconds
            good = await speaks_http2(host, port, timeout)
        if self._standings.answered(address, good=good, now=self._clock()):
            logger.info("%s %s HTTP/2", address, "speaks" if good else "does not speak")
            self._on_change()

    def _status(self) -> dict[str, Any]:
        now = self._clock()
        return {
            "moved": sorted(self.moved),
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
