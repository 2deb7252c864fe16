"""Everything for operators about weights: traces, recent decisions, overrides, and their API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fleet.names import TYPE_ENDPOINT
from xds_server.admin.decisions import WeightDecisions
from xds_server.admin.weights_api import WeightsApi, WeightSources
from xds_server.state.last_good import state_path
from xds_server.state.override import OverrideBook, OverrideFile, override_path
from xds_server.telemetry.request_spans import RequestSpans
from xds_server.telemetry.trace import TracedNacks, UpdateTraces

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.service.admin import Query
    from fleet.settings import Settings
    from fleet.signals import SignalTable
    from xds_server.discovery.client import Client
    from xds_server.snapshot.snapshot import SnapshotStore
    from xds_server.telemetry.trace import TickTimes
    from xds_server.weights.weigh import Weigher, WeightUpdate


class Operators:
    """Follows the ticks and the streams of one xds_server. Single-threaded."""

    def __init__(
        self,
        settings: Settings,
        tracer: Tracer,
        registry: CollectorRegistry,
        weigher: Weigher,
        snapshots: SnapshotStore,
        *,
        membership: Callable[[], Membership | None],
        leaving: Callable[[], Collection[str]],
        recompute: Callable[[], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`membership` was weighed at the last tick, `leaving` was not; `recompute` runs a tick."""
        self._settings = settings
        self._snapshots = snapshots
        self._wall = wall
        self.traces = UpdateTraces(tracer, registry, self._version_for, max_open=settings.limits.xds_streams)
        self.nacks = TracedNacks(tracer)
        """Observer of the discovery streams."""
        self.requests = RequestSpans(tracer)
        """Observer of finished requests."""
        self._book = OverrideBook()
        self._file = OverrideFile(self._book, override_path(state_path(settings)))
        sources = WeightSources(
            verdicts=weigher.verdicts,
            verdict=weigher.verdict,
            signals=weigher.signals,
            membership=membership,
            leaving=leaving,
            version=self._version,
            recompute=recompute,
            groups=lambda: snapshots.groups,
            topology=lambda: self._settings.weights.topology,
        )
        self._api = WeightsApi(sources, self._book, self._file, wall)
        self._decisions = WeightDecisions(settings.limits.decisions, wall, self._api.endpoint)

    async def load(self) -> None:
        """Load the overrides from before a restart."""
        await self._file.load(self._wall())

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed settings."""
        self._settings = settings
        self._decisions.resize(settings.limits.decisions)

    def overrides(self) -> Mapping[str, int]:
        """Address to weight, for weights that an operator has set."""
        return self._book.active(self._wall())

    def drained(self) -> frozenset[str]:
        """Addresses that an operator has drained."""
        return self._book.drained(self._wall())

    def tick(self) -> TickTimes:
        """Begin to measure a tick."""
        return self.traces.tick()

    def published(
        self, times: TickTimes, update: WeightUpdate, signals: SignalTable, now: float
    ) -> Iterator[None]:
        """Trace a snapshot just set, and return the steps that remember it; to be called for each.

        `now` is of the signals' clock.
        """
        version = self._version() or ""
        self.traces.published(times, update, version, signals, now)
        return self._decisions.note(update, version)

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """Path to view."""
        return self._api.views()

    def queries(self) -> Mapping[str, Callable[[Query], Any]]:
        """Path to query handler."""
        return {"/api/v1/decisions": self._decisions.view}

    def actions(self) -> Mapping[str, Callable[[Any], Any]]:
        """Path to action."""
        return self._api.actions()

    def _version(self) -> str | None:
        snapshot = self._snapshots.snapshot
        return None if snapshot is None else snapshot.version(TYPE_ENDPOINT)

    def _version_for(self, client: Client) -> str | None:
        snapshot = self._snapshots.snapshot_for(client)
        return None if snapshot is None else snapshot.version(TYPE_ENDPOINT)
