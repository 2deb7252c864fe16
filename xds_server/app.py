"""xds_server's composition root: signals -> weights -> snapshot -> discovery, once a tick."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge

from fleet.names import TYPE_ENDPOINT
from fleet.serving import GrpcServer
from fleet.settings.membership import membership
from fleet.store import FleetView
from xds_server.control import ControlService
from xds_server.discovery.server import DiscoveryService
from xds_server.signals.scraper import Scraper
from xds_server.snapshot.build import build_snapshot
from xds_server.snapshot.snapshot import SnapshotStore
from xds_server.status import StatusViews
from xds_server.trace import trace_update
from xds_server.weigh import Weigher, WeightUpdate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from fleet.settings import Settings
    from fleet.store import FleetStore

logger = logging.getLogger(__name__)

FIRST_SYNC_MARGIN_SECONDS: Final = 0.5
FIRST_SYNC_MOST_SECONDS: Final = 5.0
"""Envoys wait for the first full sync; one engine that hangs must not keep them waiting longer."""


class XdsServer:
    """Everything of xds_server, started and stopped as one."""

    def __init__(
        self,
        settings: Settings,
        store: FleetStore,
        registry: CollectorRegistry,
        provider: TracerProvider,
        *,
        control: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._membership = membership(settings)
        self._store = store
        self._clock = clock
        self._tracer = provider.get_tracer("warmroute.xds_server")
        self._scraper = Scraper(settings.signals, settings.limits, registry, clock)
        self._weigher = Weigher(settings.weights, settings.signals)
        self._snapshots = SnapshotStore()
        self._discovery = DiscoveryService(self._snapshots, registry, settings.limits.xds_streams)
        self._grpc = GrpcServer("xds", settings.xds.address)
        self._discovery.register(self._grpc.server)
        self._control = GrpcServer("control", settings.control.address) if control else None
        if self._control is not None:
            ControlService(store, registry, clock).register(self._control.server)
        self._updates = Counter(
            "warmroute_weight_updates_total", "Published weight updates", registry=registry
        )
        self._faults = Counter(
            "warmroute_tick_faults_total", "Ticks that failed by our fault", registry=registry
        )
        self._blind = Gauge(
            "warmroute_blind_pools",
            "Pools without any fresh signal, whose weights are therefore equal",
            registry=registry,
        )
        self._status = StatusViews(store, self._discovery, registry)
        self._served: tuple[Settings, Mapping[str, int], frozenset[str]] | None = None
        self._wake = asyncio.Event()
        self._draining = False
        self._ticking: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether the first full sync is done and Envoys are answered, until draining begins."""
        return self._snapshots.snapshot is not None and not self._draining

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """What the admin server shows."""
        return self._status.views()

    async def start(self) -> None:
        """Bind and begin; Envoys that connect before the first full sync wait for it."""
        self._scraper.update(self._membership)
        await self._grpc.start()
        if self._control is not None:
            await self._control.start()
        self._ticking = asyncio.create_task(self._tick_for_ever(), name="xds tick")

    async def apply(self, settings: Settings) -> None:
        """Take over changed settings; what cannot be built is refused with the old ones kept."""
        changed = membership(settings)
        build_snapshot(settings, changed, {}, frozenset())
        self._settings = settings
        if changed != self._membership:
            self._membership = changed
            self._scraper.update(changed)
        self._scraper.reconfigure(settings.signals)
        self._weigher.reconfigure(settings.weights, settings.signals)
        self._wake.set()

    async def drain(self) -> None:
        """Send Envoys and workers elsewhere; what they hold stays valid."""
        self._draining = True
        await self._grpc.set_ready(ready=False)
        if self._control is not None:
            await self._control.set_ready(ready=False)
        await self._discovery.drain(self._settings.limits.drain_seconds / 2)

    async def stop(self) -> None:
        """End everything."""
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
        await self._scraper.close()
        for server in (self._grpc, self._control):
            if server is not None:
                await server.stop(0.2)

    async def _tick_for_ever(self) -> None:
        timeout = self._settings.signals.scrape_timeout_seconds + FIRST_SYNC_MARGIN_SECONDS
        await self._scraper.first_sync(min(timeout, FIRST_SYNC_MOST_SECONDS))
        failing = False
        while True:
            try:
                self.tick()
                failing = False
            except Exception:  # the edge of a tick: what Envoys hold stays in force
                self._faults.inc()
                if not failing:
                    logger.exception("ticks fail from here on; Envoys keep what they have")
                failing = True
            if self.ready and not self._wake.is_set():
                await self._announce_ready()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.xds.tick_seconds):
                    await self._wake.wait()

    async def _announce_ready(self) -> None:
        await self._grpc.set_ready(ready=True)
        if self._control is not None:
            await self._control.set_ready(ready=True)

    def tick(self) -> None:
        """Loads to weights to snapshot; Envoys hear of it only if something they act on changed."""
        loads = self._scraper.loads()
        update = self._weigher.weigh(self._membership, loads, self._clock())
        self._blind.set(len(update.blind_pools))
        wanted = (self._settings, update.weights, update.unhealthy)
        if wanted != self._served:
            self._publish(update)
            self._served = wanted
        self._store.publish(FleetView(self._membership, update.weights, loads))

    def _publish(self, update: WeightUpdate) -> None:
        snapshot = build_snapshot(self._settings, self._membership, update.weights, update.unhealthy)
        if not self._snapshots.set(snapshot):
            return
        if update.changed:
            self._updates.inc()
            trace_update(self._tracer, update, snapshot.version(TYPE_ENDPOINT))
