"""All sources of the fleet's signals in one piece: pages, GPUs, access logs, and what joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from xds_server.access_log.recorder import RequestRecorder
from xds_server.access_log.service import AccessLogService
from xds_server.signals.forecast.forecaster import forecast_horizon
from xds_server.signals.gpu.dcgm import DcgmPoller
from xds_server.signals.gpu.report_service import GpuReportService
from xds_server.signals.gpu.reports import GpuBoard
from xds_server.signals.gpu.view import gpu_view
from xds_server.signals.join import SignalJoiner, Sources
from xds_server.signals.passive.retry_blame import retry_blame_of
from xds_server.signals.scrape.scraper import Scraper
from xds_server.skew.watch import SkewWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import grpc
    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.settings import Settings
    from fleet.signals import SignalTable
    from fleet.store import FleetStore
    from xds_server.access_log.finished import Finished
    from xds_server.signals.passive.reach import Reach
    from xds_server.tls.engine_tls import EngineTls


class Probes(Protocol):
    """What probes have shown."""

    def kept_out(self) -> frozenset[str]:
        """Return the endpoints whose probe has to pass first."""
        ...

    def context_tokens(self) -> Mapping[str, int]:
        """Address to the context length of its model, where its list of models shows it."""
        ...


class Sensing:
    """The sources of signals and what joins them. All calls come from one event loop."""

    def __init__(
        self,
        settings: Settings,
        store: FleetStore,
        registry: CollectorRegistry,
        clock: Callable[[], float],
        *,
        on_change: Callable[[], None],
        on_fault: Callable[[str, bool], None],
        probes: Probes,
        reach: Reach,
        observers: tuple[Callable[[Finished], None], ...],
        engine_tls: EngineTls,
    ) -> None:
        """Create all sources.

        `on_change` is called for changed signals that a tick should not wait for, `on_fault` as
        `Scraper.on_fault`, and `observers` for each request that an Envoy has finished. `probes` is
        what probes have shown.
        """
        signals = settings.signals
        self._settings = settings
        self._clock = clock
        self.scraper = Scraper(signals, settings.limits, registry, clock, engine_tls=engine_tls, reach=reach)
        self.scraper.on_change = on_change
        self.scraper.on_fault = on_fault
        self._gpus = GpuBoard(signals, settings.weights.faults, registry)
        self._gpus.on_change = on_change
        self._gpu_reports = GpuReportService(self._gpus, clock)
        self._gpu_pages = DcgmPoller(self._gpus, signals, settings.limits, registry, clock)
        sources = Sources(
            pages=self.scraper.signals,
            traffic=store.traffic,
            listening=lambda: self._access_log.listening,
            not_ready=probes.kept_out,
            context_tokens=probes.context_tokens,
            gpus=self._gpus.signals,
        )
        self._joiner = SignalJoiner(
            signals, retry_blame_of(settings), sources, registry, forecast_horizon(settings)
        )
        self._recorder = RequestRecorder(settings, registry)
        observers = *observers, self._recorder.note
        self._access_log = AccessLogService(self._joiner.take, registry, clock, observers)
        self._skew = SkewWatch(settings.skew, signals, registry)

    def register(self, server: grpc.aio.Server) -> None:
        """Offer what Envoys and GPU agents report to, on the server of the discovery service."""
        self._access_log.register(server)
        self._gpu_reports.register(server)

    def register_agents(self, server: grpc.aio.Server) -> None:
        """Offer what GPU agents report to on one more server."""
        self._gpu_reports.register(server)

    def reconfigure(self, settings: Settings) -> None:
        """Take over changed settings."""
        self._settings = settings
        signals = settings.signals
        self.scraper.reconfigure(signals)
        self._gpus.reconfigure(signals, settings.weights.faults)
        self._gpu_pages.reconfigure(signals)
        self._joiner.reconfigure(signals, retry_blame_of(settings), forecast_horizon(settings))
        self._skew.reconfigure(settings.skew, signals)
        self._recorder.reconfigure(settings)

    def update(self, membership: Membership) -> None:
        """Follow the endpoints that are served."""
        self.scraper.update(membership)
        self._gpu_pages.update(membership)
        self._access_log.follow(pool.name for pool in membership.pools)

    def restore_stalled(self, addresses: Collection[str]) -> None:
        """Begin with these stalled: they were unhealthy in the last good state."""
        self._joiner.restore_stalled(addresses, self._clock())

    def signals(self, membership: Membership, now: float, weights: Mapping[str, int]) -> SignalTable:
        """Return the signals of all sources, joined; Envoys spread requests by `weights`."""
        return self._joiner.join(membership, now, weights)

    @property
    def sampling_ratio_floor(self) -> float:
        """The least share of requests that workers trace, in [0, 1]; above 0 while skew lasts."""
        return self._skew.actions.sampling_ratio_floor

    def observe(self, membership: Membership, signals: SignalTable, now: float) -> None:
        """Look for skew."""
        self._skew.observe(membership, signals, now)

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """What the admin server shows: path to view."""
        return {**self._skew.views(), "/api/v1/gpus": self._gpu_status}

    async def close(self) -> None:
        """End every read."""
        await self.scraper.close()
        await self._gpu_pages.close()
        await self._recorder.close()

    def _gpu_status(self) -> dict[str, Any]:
        nodes = gpu_view(self._gpus.readings(), self._clock(), self._settings.weights.faults)
        return {"nodes": nodes}
