"""All that is known of the fleet's load, in one piece: pages, GPUs, access logs, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xds_server.signals.collect import Collector, Sources
from xds_server.signals.gpu.dcgm import DcgmPoller
from xds_server.signals.gpu.report_service import GpuReportService
from xds_server.signals.gpu.reports import GpuBoard
from xds_server.signals.gpu.view import gpu_view
from xds_server.signals.passive.access_log import AccessLogService
from xds_server.signals.passive.lenient import lenient_of
from xds_server.signals.scrape.scraper import Scraper
from xds_server.skew.watch import SkewWatch
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import grpc
    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.load import Load
    from fleet.settings import Settings
    from fleet.store import FleetStore
    from xds_server.signals.passive.reach import Reach
    from xds_server.signals.passive.served import Finished
    from xds_server.tls.engine_tls import EngineTls


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
        on_request: Callable[[Finished], None],
        on_doubt: Callable[[str, bool], None],
        not_ready: Callable[[], Collection[str]],
        reach: Reach,
        engine_tls: EngineTls = plaintext,
    ) -> None:
        """Take who listens and who tells.

        `on_change` hears of changed signals that a tick should not wait for, `on_request` of requests,
        `on_doubt` of signs of a restart (see `Scraper.on_doubt`); `not_ready` tells whose probe has to pass,
        `reach` whose port gives connections, and hears of it.
        """
        signals = settings.signals
        self._settings = settings
        self._clock = clock
        self.scraper = Scraper(signals, settings.limits, registry, clock, engine_tls=engine_tls, reach=reach)
        self.scraper.on_change = on_change
        self.scraper.on_doubt = on_doubt
        self._gpus = GpuBoard(signals, settings.weights.faults, registry)
        self._gpus.on_change = on_change
        self._gpu_reports = GpuReportService(self._gpus, clock)
        self._gpu_pages = DcgmPoller(self._gpus, signals, settings.limits, registry, clock)
        self._access_log = AccessLogService(self._take, registry, clock)
        self._access_log.on_request = on_request
        sources = Sources(
            scraped=self.scraper.loads,
            traffic=store.traffic,
            listening=lambda: self._access_log.listening,
            not_ready=not_ready,
            gpus=self._gpus.loads,
        )
        self._collector = Collector(signals, lenient_of(settings), sources, registry)
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
        self._collector.reconfigure(signals, lenient_of(settings))
        self._skew.reconfigure(settings.skew, signals)

    def update(self, membership: Membership) -> None:
        """Follow those who are served."""
        self.scraper.update(membership)
        self._gpu_pages.update(membership)
        self._access_log.follow(pool.name for pool in membership.pools)

    def doubt(self, addresses: Collection[str]) -> None:
        """Hold these for hanging: they were unhealthy in the last good state (see `Collector.doubt`)."""
        self._collector.doubt(addresses, self._clock())

    def loads(self, membership: Membership, now: float, weights: Mapping[str, int]) -> dict[str, Load]:
        """Return every endpoint's load, all sources joined; Envoys spread requests by `weights`."""
        return self._collector.loads(membership, now, weights)

    def observe(self, membership: Membership, loads: Mapping[str, Load], now: float) -> float:
        """Look for skew; returns the share of requests that is to be traced at least."""
        self._skew.observe(membership, loads, now)
        return self._skew.actions.sampling_ratio_floor

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """What the admin server shows: path to view."""
        return {**self._skew.views(), "/api/v1/gpus": self._gpu_status}

    async def close(self) -> None:
        """End every read."""
        await self.scraper.close()
        await self._gpu_pages.close()

    def _take(self, finished: Finished, now: float) -> None:
        self._collector.take(finished, now)

    def _gpu_status(self) -> dict[str, Any]:
        shown = gpu_view(self._gpus.readings(), self._clock(), self._settings.weights.faults)
        return {"nodes": shown}
