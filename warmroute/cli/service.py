"""What `serve`, `xds` and `ext-proc` share: parts by role, admin, settings watch, drain, exit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry

from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.binding import prepare
from fleet.service.collector import collect_at_quiet_times, exempt_from_collection
from fleet.service.host_check import host_findings
from fleet.service.logs import configure_logging
from fleet.service.otlp_metrics import MetricPush
from fleet.service.serving import StopSignals, run
from fleet.service.telemetry import shut_down, tracer_provider
from fleet.service.tls import Certificates
from fleet.service.watch import SettingsWatch
from fleet.settings.role_check import findings
from fleet.store import FleetStore
from warmroute.cli.forms import addresses, admin_field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from opentelemetry.trace import TracerProvider

    from fleet.service.admin import Query
    from fleet.settings import Settings
    from warmroute.cli.forms import Role

logger = logging.getLogger(__name__)


class Part(Protocol):
    """One of the two services, as its composition root makes it."""

    @property
    def ready(self) -> bool: ...  # noqa: D102
    def views(self) -> Mapping[str, Callable[[], Any]]: ...  # noqa: D102
    def queries(self) -> Mapping[str, Callable[[Query], Any]]: ...  # noqa: D102
    def actions(self) -> Mapping[str, Callable[[Any], Any]]: ...  # noqa: D102
    async def start(self) -> None: ...  # noqa: D102
    async def apply(self, settings: Settings) -> None: ...  # noqa: D102
    async def drain(self) -> None: ...  # noqa: D102
    async def stop(self) -> None: ...  # noqa: D102


def run_service(
    path: Path,
    settings: Settings,
    role: Role,
    place: Callable[[Settings], Settings] = lambda settings: settings,
) -> int:
    """Run a role until SIGTERM; returns the exit status. `place` makes its own settings of the file's."""
    configure_logging()
    return run(_serve(path, place(settings), role, place))


async def _serve(path: Path, settings: Settings, role: Role, place: Callable[[Settings], Settings]) -> int:
    for field, address in addresses(settings, role):
        # All of them before anything is started: half a service would look as if all were well.
        prepare(field, address)
    stop = StopSignals()
    registry, store = CollectorRegistry(), FleetStore()
    certificates = Certificates(registry)
    access = Access.of(settings, admin_field(role), certificates)
    _log_findings(settings)
    provider = tracer_provider(settings.telemetry, role, registry)
    parts = _parts(settings, role, store, registry, provider, certificates)
    metrics = MetricPush(settings.telemetry, role, registry)

    def ready() -> bool:
        return not stop.requested and all(part.ready for part in parts)

    admin = _admin(access, parts, registry, ready)

    async def apply(changed: Settings) -> None:
        for part in parts:
            await part.apply(changed)
        if access.gate is not None:
            access.gate.reconfigure(changed.tls.roles)
        # On a thread, because it reads files.
        await asyncio.to_thread(_log_findings, changed)

    watched = SettingsWatch(path, settings, apply, registry, place)
    background = [asyncio.create_task(watched.run(), name="settings watch")]
    certificates.start()
    try:
        for part in parts:
            await part.start()
        await admin.start()
        metrics.start()
        exempt_from_collection()
        background.append(asyncio.create_task(collect_at_quiet_times(), name="garbage"))
        await stop.wait()
        await asyncio.gather(*(part.drain() for part in parts))
    finally:
        for task in background:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await certificates.close()
        await admin.stop()
        for part in parts:
            await part.stop()
        await asyncio.gather(metrics.close(), shut_down(provider))
    logger.info("%s has stopped", role)
    return 0


def _log_findings(settings: Settings) -> None:
    for finding in (*findings(settings), *host_findings(settings)):
        # A service that does not start serves no request, so findings are logged and never fatal.
        logger.log(logging.ERROR if finding.grave else logging.WARNING, "%s", finding.text)


def _admin(
    access: Access, parts: Sequence[Part], registry: CollectorRegistry, ready: Callable[[], bool]
) -> AdminServer:
    """Make the admin server of all parts; a query that several answer gets one answer."""
    queries: dict[str, list[Callable[[Query], Any]]] = {}
    for part in parts:
        for path, query in part.queries().items():
            queries.setdefault(path, []).append(query)
    return AdminServer(
        access,
        registry,
        ready,
        {path: view for part in parts for path, view in part.views().items()},
        queries=queries,
        actions={path: action for part in parts for path, action in part.actions().items()},
    )


def _parts(
    settings: Settings,
    role: Role,
    store: FleetStore,
    registry: CollectorRegistry,
    provider: TracerProvider,
    certificates: Certificates,
) -> list[Part]:
    # Imported by role: an ext_proc worker needs nothing of xds_server.
    parts: list[Part] = []
    if role in {"serve", "xds"}:
        from xds_server.app import XdsServer  # noqa: PLC0415

        parts.append(
            XdsServer(settings, store, registry, provider, control=role == "xds", certificates=certificates)
        )
    if role in {"serve", "ext-proc"}:
        from ext_proc.app import ExtProcServer  # noqa: PLC0415

        parts.append(
            ExtProcServer(
                settings, store, registry, provider, follow=role == "ext-proc", certificates=certificates
            )
        )
    return parts
