"""xds_server's composition root: endpoints -> signals -> weights -> snapshot -> discovery, once a tick."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from fleet.errors import SnapshotError
from fleet.models import tables
from fleet.service.tls import Certificates
from fleet.settings.membership import membership
from fleet.store import FleetView
from xds_server.admin.operators import Operators
from xds_server.admin.status import StatusViews
from xds_server.control.service import ControlService
from xds_server.discovery.arrivals import Arrivals
from xds_server.discovery.csds import ClientStatusService
from xds_server.discovery.progress import Progress
from xds_server.discovery.server import DiscoveryService
from xds_server.doors import Doors
from xds_server.endpoints.fitness import Sleepers, asleep_of, unfit_of
from xds_server.endpoints.keeper import EndpointKeeper
from xds_server.endpoints.roster import Roster, assemble
from xds_server.endpoints.status import with_states
from xds_server.envoy.build import build_snapshot, of_settings
from xds_server.envoy.remaking import Remaking
from xds_server.http2.watch import Http2Watch
from xds_server.signals.passive.missed import missed_of
from xds_server.signals.passive.reach import Reach
from xds_server.signals.ranks import ranks_of
from xds_server.signals.sensing import Sensing
from xds_server.snapshot.groups import group_snapshots
from xds_server.snapshot.snapshot import SnapshotStore
from xds_server.state.last_good import LastGood
from xds_server.state.saver import Saver
from xds_server.state.serving import ServingStatus
from xds_server.telemetry.exposition import ClientExposition, EndpointExposition, TickMetrics
from xds_server.ticker import Staged, Ticker, idle_seconds
from xds_server.tls.secrets import Secrets
from xds_server.weights.weigh import Weigher, WeightUpdate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.service.admin import Query
    from fleet.settings import Settings
    from fleet.store import FleetStore
    from xds_server.access_log.finished import Finished
    from xds_server.endpoints.status import EndpointStatus
    from xds_server.snapshot.snapshot import Resource

logger = logging.getLogger(__name__)

FIRST_SYNC_MOST_SECONDS: Final = 5.0
"""Envoys wait for the first full sync; one engine or source that hangs must not keep them waiting longer."""
FIRST_SYNC_STEP_SECONDS: Final = 0.05
STATIC: Final = "static"


class XdsServer:
    """Everything of xds_server, started and stopped as one.

    The caller refreshes `certificates`; without them, files are read once. Unusable files raise
    `SettingsError`.
    """

    def __init__(
        self,
        settings: Settings,
        store: FleetStore,
        registry: CollectorRegistry,
        provider: TracerProvider,
        *,
        control: bool,
        clock: Callable[[], float] = time.monotonic,
        certificates: Certificates | None = None,
    ) -> None:
        certificates = certificates or Certificates()
        self._secrets = Secrets.of_server(certificates, settings, registry)
        self._settings, self._store, self._clock = settings, store, clock
        self._ticker, self._staged = Ticker(clock), Staged(self._stages)
        tls, reach, request_tick = self._secrets.engine_tls, Reach(), self._ticker.request_tick
        self._keeper = EndpointKeeper(settings, registry, clock, engine_tls=tls, reach=reach)
        self._keeper.on_change = self._secrets.on_change = request_tick
        self._weigher, self._saver = Weigher(settings.weights, settings.signals), Saver(registry)
        self._serving_status = ServingStatus(registry)
        self._snapshots = SnapshotStore(settings.limits.node_groups, registry)
        self._operators = Operators(
            settings,
            provider.get_tracer("warmroute.xds_server"),
            registry,
            self._weigher,
            self._snapshots,
            membership=lambda: None if self._roster is None else self._roster.active,
            leaving=lambda: frozenset() if self._roster is None else self._roster.leaving,
            recompute=self.tick,
        )
        self._http2 = Http2Watch(settings, registry, clock, on_change=request_tick, engine_tls=tls)
        parts = self._operators.requests, self._http2, self._keeper
        self._sensing = Sensing(
            settings,
            store,
            registry,
            clock,
            on_change=self._ticker.on_load_change,
            on_fault=self._keeper.suspect,
            probes=self._keeper,
            reach=reach,
            observers=(*(part.note for part in parts), self._publish_missed),
            engine_tls=tls,
        )
        registry.register(EndpointExposition(store, clock))
        progress = Progress(settings.limits.xds_streams)
        self._arrivals = Arrivals(settings.xds.address, clock)
        self._doors = doors = Doors(settings, certificates, registry)
        self._discovery = DiscoveryService(
            self._snapshots,
            registry,
            settings.limits.xds_streams,
            observers=(progress, self._operators.traces, self._operators.nacks, self._arrivals),
            may_have_keys=doors.may_have_keys,
        )
        clients = ClientStatusService(self._discovery, progress)
        registry.register(ClientExposition(clients.lag))
        self._servers = [doors.xds(self._discovery.register, clients.register, self._sensing.register)]
        if control:
            workers = ControlService(store, registry, clock).register
            self._servers.append(doors.control(workers, self._sensing.register_agents))
        self._metrics, self._sleepers = TickMetrics(registry), Sleepers()
        self._remaking, self._draining = Remaking(request_tick), False
        pages = self._sensing.scraper.signals
        self._status = StatusViews(store, clients, registry, self._statuses, self._serving_now, pages)
        self._roster: Roster | None = None
        self._weights: Mapping[str, int] = {}
        self._served: tuple[object, ...] = ()
        self._ticking: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether the first full sync is done and Envoys are answered, until draining begins."""
        return self._snapshots.snapshot is not None and not self._draining

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """What the admin server shows."""
        parts = (self._status, self._sensing, self._operators, self._http2)
        return {path: view for part in parts for path, view in part.views().items()}

    def queries(self) -> Mapping[str, Callable[[Query], Any]]:
        """The admin server's views that take a query."""
        return self._operators.queries()

    def actions(self) -> Mapping[str, Callable[[Any], Any]]:
        """The changes that the admin server offers to operators."""
        return self._operators.actions()

    async def start(self) -> None:
        """Bind and begin; Envoys that connect before the first full sync wait for it."""
        # The first messages of each Protobuf type are slow: build them before a client waits.
        with contextlib.suppress(SnapshotError):  # The first tick reports it.
            secrets = self._secrets.of(self._settings)
            self._build(self._settings, secrets, membership(self._settings))
        for_envoys, *for_workers = self._servers
        await for_envoys.start()
        state = await self._saver.load(self._settings)
        if state is not None:
            self._keeper.restore(state.discovered)
            self._weigher.restore(state.membership, state.weights, state.unhealthy, self._clock())
            self._sensing.restore_stalled(state.unhealthy)
            self._serving_status.loaded(state)
        await self._operators.load()
        await self._secrets.start()
        await self._keeper.start()
        self._saver.start()
        for server in for_workers:
            await server.start()
        self._ticking = asyncio.create_task(self._tick_for_ever(), name="xds tick")

    async def apply(self, settings: Settings) -> None:
        """Apply changed settings; if they cannot be built, the old ones stay."""
        self._secrets.reconfigure(settings)
        secrets, served = self._secrets.of(settings), self._keeper.membership()
        await asyncio.to_thread(self._build, settings, secrets, served)
        self._http2.reconfigure(settings)
        await self._http2.first_sync(self._keeper.membership())
        self._settings = settings
        self._doors.reconfigure(settings)
        self._snapshots.max_groups = settings.limits.node_groups
        self._keeper.reconfigure(settings)
        self._sensing.reconfigure(settings)
        self._weigher.reconfigure(settings.weights, settings.signals)
        self._operators.reconfigure(settings)
        self._ticker.request_tick()

    def _build(self, settings: Settings, secrets: tuple[Resource, ...], named: Membership) -> None:
        """On any thread: it reads frozen values only. The next tick uses the routes to the `named` models."""
        resources = (*of_settings(settings, self._http2.choice, tables(settings, named)), *secrets)
        build_snapshot(settings, membership(settings), {}, frozenset(), resources=resources)

    async def drain(self) -> None:
        """Send Envoys and workers elsewhere; their configuration stays valid."""
        self._draining = True
        await self._announce(ready=False)
        await self._discovery.drain(self._settings.limits.drain_seconds / 2)

    async def stop(self) -> None:
        """End everything."""
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
        await self._secrets.close()
        await self._sensing.close()
        await self._http2.close()
        await self._keeper.close()
        await self._remaking.close()
        await self._saver.close()
        for server in self._servers:
            await server.stop(0.2)

    async def _tick_for_ever(self) -> None:
        await self._first_sync()
        failing = False
        while True:
            self._ticker.begin()
            try:
                await self._staged.run()
                if self.ready:
                    await self._announce(ready=True)
                    self._arrivals.look()
                failing = False
            except Exception:  # the edge of a tick: Envoys keep their configuration
                self._metrics.faults.inc()
                if not failing:
                    logger.exception("ticks fail from here on; Envoys keep what they have")
                failing = True
            await self._ticker.next(self._settings.xds.tick_seconds, self._idle_seconds())

    def _idle_seconds(self) -> float:
        tick_seconds = self._settings.xds.tick_seconds
        if len(self._servers) > 1 or any(self._store.in_flight().values()):
            return tick_seconds  # Workers need the counts of the others, and an engine may hang.
        return idle_seconds(tick_seconds, self._settings.signals.stale_after_seconds)

    async def _first_sync(self) -> None:
        """Wait until all sources have answered and all endpoints were probed and scraped, or time is over."""
        deadline = self._clock() + FIRST_SYNC_MOST_SECONDS
        synced = False
        while not synced and self._clock() < deadline:
            # Step by step, so that pages are read while slower sources and probes go on.
            synced = await self._keeper.first_sync(FIRST_SYNC_STEP_SECONDS)
            self._sensing.update(self._keeper.membership())
        await self._secrets.first_sync(max(0.0, deadline - self._clock()))
        await self._http2.first_sync(self._keeper.membership(), max(0.0, deadline - self._clock()))
        await self._sensing.scraper.first_sync(max(0.0, deadline - self._clock()))

    async def _announce(self, *, ready: bool) -> None:
        for server in self._servers:
            await server.set_ready(ready=ready)

    def tick(self) -> None:
        """Signals to weights to snapshot; Envoys get a push only if their resources changed."""
        self._staged.now()

    def _stages(self) -> Iterator[None]:
        times = self._operators.tick()
        roster = self._take_roster()
        if roster is None:
            return
        yield
        now = self._clock()
        signals = self._sensing.signals(roster.active, now, self._weigher.in_use)
        yield
        if self._weigher.restored:
            self._weigher.on_answers(self._sensing.scraper.answering())
        times.collected()
        overrides = self._operators.overrides()
        update = self._weigher.weigh(roster.active, signals, now, self._keeper.ramp(now), overrides)
        times.computed()
        yield
        self._metrics.blind.set(len(update.blind_pools))
        self._serving_status.on_last_good(self._keeper.restored_pools() | self._weigher.restored)
        leaving_weights = {
            address: self._weights[address] for address in roster.leaving if address in self._weights
        }
        self._weights = {**update.weights, **leaving_weights} if leaving_weights else update.weights
        secrets = self._secrets.of(roster.settings)
        protocols = self._http2.tick(roster.membership, now)
        models = tables(roster.settings, roster.membership)
        resources = (*self._remaking.resources(roster.settings, protocols, models), *secrets)
        inputs = (roster, self._weights, update.unhealthy, resources)
        remembering: Iterator[None] = iter(())
        if inputs != self._served:
            if self._publish(roster, update, resources):
                remembering = self._operators.published(times, update, signals, now)
            self._served = inputs
        floor = self._sensing.sampling_ratio_floor
        ranks = ranks_of(
            roster.settings,
            roster.active,
            roster.membership,
            self._sensing.scraper.ranks(),
            self._keeper.kept_out(),
        )
        overridden = frozenset(overrides) & roster.active.by_address.keys()
        self._store.publish(
            FleetView(
                roster.active,
                update.weights,
                signals,
                sampling_ratio_floor=floor,
                overridden=overridden,
                ranks=ranks,
            )
        )
        yield
        # Last, so that a fault of an observer costs no weights.
        yield from remembering
        self._sensing.observe(roster.active, signals, now)

    def _serving_now(self) -> Mapping[str, Any]:
        return {**self._serving_status.status(), "clients": self._arrivals.connected}

    def _publish_missed(self, finished: Finished) -> None:
        """Pass a finished request on to workers if the first endpoint of its pick did not answer well."""
        if (missed := missed_of(finished)) is not None:
            self._store.publish_missed(missed)

    def _take_roster(self) -> Roster | None:
        """Return the endpoints to serve now; None until a pool has any."""
        oldest = self._clock() - self._settings.signals.stale_after_seconds
        pages, view = self._sensing.scraper.signals(), self._store.view
        unfit = unfit_of(pages, pages if view is None else view.signals, self._keeper.not_ready(), oldest)
        self._keeper.judge(unfit)
        membership_now, unknown = self._keeper.membership(), self._keeper.unknown_pools()
        self._serving_status.unknown(unknown)
        before, leaving = self._roster, self._keeper.leaving()
        asleep = self._sleepers.update(membership_now, leaving, asleep_of(pages, oldest), unfit)
        drained = self._operators.drained()
        roster = assemble(self._settings, membership_now, leaving | asleep, unknown, before, drained, unfit)
        if roster is not None and (before is None or roster.membership is not before.membership):
            self._sensing.update(roster.membership)
        self._roster = roster
        return roster

    def _statuses(self) -> list[EndpointStatus]:
        """Every endpoint of the keeper, served or not, with the state of those that get no new requests."""
        leaving = frozenset[str]() if self._roster is None else self._roster.leaving
        return with_states(self._keeper.listed(), self._sleepers.now, self._operators.drained() & leaving)

    def _publish(self, roster: Roster, update: WeightUpdate, resources: tuple[Resource, ...]) -> bool:
        """Set the snapshot of the endpoints and all other resources; returns whether it is another one."""
        endpoints = (roster.membership, self._weights, update.unhealthy, roster.leaving)
        snapshot = build_snapshot(roster.settings, *endpoints, roster.undiscovered, resources)
        for_group = group_snapshots(snapshot, roster.settings.weights.topology, *endpoints)
        if not self._snapshots.set(snapshot, for_group):
            return False
        self._saver.offer(self._state(roster, update), roster.settings)
        if update.changed:
            self._metrics.updates.inc()
        return True

    def _state(self, roster: Roster, update: WeightUpdate) -> LastGood:
        static = frozenset(a for a in roster.active.by_address if self._keeper.source_of(a) == STATIC)
        # Without overrides: those have a file and an end of their own.
        return LastGood(roster.active, self._weigher.unforced(), update.unhealthy, static)
