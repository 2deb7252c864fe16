"""ext_proc's composition root: one worker, on a store that xds_server fills, near or far."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any, Final

from ext_proc.director.director import Director
from ext_proc.follower import Follower
from ext_proc.grpcio import GrpcioService
from ext_proc.idempotency.guard import Idempotency
from ext_proc.kv.service import KvEvents
from ext_proc.processor import ExternalProcessor
from ext_proc.prompt.blocks import blocks_within
from ext_proc.server import (
    HEALTH_NAMES,
    LAST_SECONDS,
    LEADING_SERVICE,
    SERVICE,
    ExtProcService,
)
from ext_proc.shared.index import SharedIndex, SharedMetrics
from fleet.lane.budget import STREAMS, UNREAD_BYTES, Budget
from fleet.lane.metrics import LaneMetrics
from fleet.lane.server import LaneServer
from fleet.service.credentials import Dialler, certificate_provider, gate_of, grpc_gate, grpc_server
from fleet.service.serving import GrpcServer
from fleet.service.tls import Certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from ext_proc.unread import UnreadReplies
    from fleet.service.admin import Query
    from fleet.settings import Settings
    from fleet.store import FleetStore, Missed, Placement

MESSAGE_BYTES: Final = 48 * 1024 * 1024
"""Of messages of more than 64 KiB that have not arrived whole; further ones wait."""


class ExtProcServer:
    """One ext_proc worker."""

    def __init__(
        self,
        settings: Settings,
        store: FleetStore,
        registry: CollectorRegistry,
        provider: TracerProvider,
        *,
        follow: bool,
        clock: Callable[[], float] = time.monotonic,
        certificates: Certificates | None = None,
    ) -> None:
        """The owner of `certificates` renews them; without them, files are read once.

        Raises:
            SettingsError: certificate files cannot be used.
        """
        certificates = certificates or Certificates()
        self._settings = settings
        self._store = store
        self._worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._kv = KvEvents(settings, store, registry, clock)
        self._director = Director(store, settings, registry, clock, self._kv.lookup)
        self._kv.view.on_emptied = self._director.pools.emptied
        self._keys = Idempotency(settings, registry, clock, self._worker)
        self._processor = ExternalProcessor(
            self._director, self._keys, provider.get_tracer("warmroute.ext_proc"), registry
        )
        self._service, self._grpc, self._unread = self._servers(settings, certificates, registry)
        self._limit_memory()
        store.on_missed(self._missed)
        store.on_placed(self._placed)
        self._shared = self._shared_index(settings, SharedMetrics.on(registry), clock)
        control_tls = settings.tls.workers if settings.tls.control is not None else None
        self._follower = (
            Follower(
                settings.control.address,
                self._worker,
                store,
                self._director.traffic.snapshot,
                registry,
                clock,
                Dialler.of(settings.control.address, control_tls, "tls.workers", certificates),
                self._director.traffic.booked,
            )
            if follow
            else None
        )
        placed = store.publish_placed if self._follower is None else self._follower.place
        self._director.places.on_placed = placed
        self._warm = self._draining = False
        self._tasks: list[asyncio.Task[None]] = []

    def _servers(
        self, settings: Settings, certificates: Certificates, registry: CollectorRegistry
    ) -> tuple[ExtProcService, LaneServer | GrpcServer, Budget | UnreadReplies]:
        """Make the service, the server that carries it, and what counts unread replies."""
        address, connections = settings.ext_proc.address, settings.connections
        if settings.ext_proc.transport_in_force == "lane":
            service = ExtProcService(self._processor)
            lane = LaneServer(
                "ext_proc",
                address,
                connections,
                service.methods,
                health=HEALTH_NAMES,
                tls=certificate_provider(certificates, settings, "ext_proc"),
                budget=Budget(MESSAGE_BYTES),
                gate=gate_of(certificates, settings, "ext_proc"),
                metrics=LaneMetrics.on(registry, "ext_proc"),
            )
            return service, lane, lane.budget
        carried = GrpcioService(self._processor)
        server = GrpcServer(
            "ext_proc",
            address,
            connections,
            health=HEALTH_NAMES,
            credentials=grpc_server(certificates, settings, "ext_proc"),
            gate=grpc_gate(certificates, settings, "ext_proc"),
            # A stream that ends with an error fails a request, so the service limits first messages itself.
            apart=(SERVICE, LEADING_SERVICE),
        )
        carried.register(server.server)
        return carried, server, carried.unread

    def _limit_memory(self) -> None:
        """Leave room for all streams, and for bodies that wait for their picks: all may leave at once."""
        self._unread.unread_bytes = self._processor.buffered.limit + UNREAD_BYTES
        if isinstance(self._unread, Budget):
            self._unread.most_streams = max(STREAMS, 2 * self._settings.limits.ext_proc_streams)

    @property
    def ready(self) -> bool:
        """Whether there is a fleet and the shared index has been read; False once draining begins."""
        return self._warm and not self._draining

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """Return the views of the admin server."""
        return {"/api/v1/picks": self._director.status, "/api/v1/kv_events": self._kv.status}

    def queries(self) -> Mapping[str, Callable[[Query], Any]]:
        """Return the queries of the admin server."""
        decisions, kv = self._processor.decisions.view, self._kv.query
        return {"/api/v1/decisions": lambda query: {**decisions(query), **kv(query)}}

    def actions(self) -> Mapping[str, Callable[[Any], Any]]:
        """Return the actions of the admin server: none."""
        return {}

    async def start(self) -> None:
        """Bind and begin. Envoy's health check passes once there is a fleet."""
        await self._grpc.start()
        await self._kv.start()
        self._tasks.append(asyncio.create_task(self._announce_ready(), name="ext_proc ready"))
        if self._follower is not None:
            self._tasks.append(asyncio.create_task(self._follower.run(), name="ext_proc follower"))
        else:
            self._tasks.append(asyncio.create_task(self._report(), name="ext_proc report"))

    async def apply(self, settings: Settings) -> None:
        """Apply changed settings."""
        self._settings = settings
        if self._grpc.gate is not None:
            self._grpc.gate.reconfigure(settings.tls.roles)
        self._processor.reconfigure(settings)
        self._limit_memory()
        await self._kv.apply(settings)

    async def drain(self) -> None:
        """Fail Envoy's health check, so that new requests pass this worker by; picks go on meanwhile."""
        self._draining = True
        await self._grpc.set_ready(ready=False)
        await asyncio.sleep(self._settings.limits.drain_seconds / 2)

    async def stop(self) -> None:
        """Stop all tasks and servers."""
        if self._shared is not None:
            await self._shared.stop()
        await self._kv.stop()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._service.close(self._settings.limits.drain_seconds / 2)
        await self._keys.close()
        await self._grpc.stop(LAST_SECONDS)

    def _shared_index(
        self, settings: Settings, metrics: SharedMetrics, clock: Callable[[], float]
    ) -> SharedIndex | None:
        """Return this worker's part in the shared index, if one is configured."""
        if not settings.ext_proc.shared.url.get_secret_value():
            return None
        director = self._director
        shared = SharedIndex(
            settings.ext_proc.shared,
            self._worker,
            lambda: director.settings.ext_proc.pick.block_bytes,
            director.take_remote,
            metrics,
            prompt_blocks=lambda: blocks_within(director.settings.limits.prompt_blocks),
            clock=clock,
        )
        director.warmth.on_added = shared.publish
        return shared

    def _missed(self, missed: Missed) -> None:
        """Pass a missed pick to the director. The edge for faults of ours."""
        try:
            self._director.missed(missed)
        except Exception as error:  # noqa: BLE001 - counted and logged there
            self._processor.faults.note(error)

    def _placed(self, placement: Placement) -> None:
        """Take a placement, which may be this worker's own."""
        self._director.places.take(placement)

    async def _announce_ready(self) -> None:
        if self._store.view is None:
            await self._store.changed()
        if self._shared is not None:
            # The index takes over additions for endpoints of its pools only. A restarted worker begins warm.
            self._director.pools.follow()
            await self._shared.warm_up()
            self._shared.start()
        self._warm = True
        if not self._draining:
            await self._grpc.set_ready(ready=True)

    async def _report(self) -> None:
        while True:
            self._store.report(self._worker, self._director.traffic.snapshot())
            await asyncio.sleep(self._settings.xds.tick_seconds)
