"""All sources of signals joined into one load an endpoint, once a tick.

A load is built anew only when something in it has changed, and once a second for its ages; all that concerns
the whole fleet is computed on columns. How sources are merged stands in `joined.py`, when a number is
believed in `decay.py`, `stall.py` and `trust.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.load import Load
from xds_server.signals.decay import Returning, fade
from xds_server.signals.events import EndpointEvents
from xds_server.signals.joined import (
    BUSY,
    PAGE_COLUMNS,
    PROGRESS,
    REACHABLE,
    READ_AT,
    UNKNOWN,
    columns_of,
    differ,
    fading_columns,
    joined,
    page_of,
    with_faded,
)
from xds_server.signals.passive.owed import Spread
from xds_server.signals.passive.refusals import Refusals
from xds_server.signals.passive.served import ServedWindows
from xds_server.signals.passive.stall import HALF_OPEN_FACTOR, Seen, StallDetector, Timing
from xds_server.signals.passive.trust import Trust
from xds_server.signals.rows import relaid, sources
from xds_server.signals.traffic import TrafficColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Endpoint, Membership
    from fleet.load import Signal
    from fleet.settings import SignalSettings
    from fleet.store import Traffic
    from xds_server.signals.passive.lenient import Lenient
    from xds_server.signals.passive.served import Finished, Recent
    from xds_server.signals.rows import BoolArray, FloatArray, IntArray

NO_WEIGHTS: Final[Mapping[str, int]] = MappingProxyType({})
REFRESH_SECONDS: Final = 1.0
"""A load in which nothing moved is built again after this, so that its ages stay true."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the collector looks in every tick."""

    scraped: Callable[[], Mapping[str, Load]]
    traffic: Callable[[], Mapping[str, Mapping[str, Traffic]]]
    """Worker to address to traffic."""
    listening: Callable[[], bool] = lambda: False
    """Whether any Envoy tells of its requests."""
    gpus: Callable[[Membership, float], Mapping[str, Mapping[str, Signal]]] | None = None
    """Address to field of `Load` to signal."""
    not_ready: Callable[[], Collection[str]] = tuple
    """Endpoints that wait for a passing probe."""


class Collector:
    """Joins every source. All calls come from one event loop; `now` never goes back."""

    def __init__(
        self,
        settings: SignalSettings,
        lenient: Lenient,
        sources: Sources,
        registry: CollectorRegistry,
    ) -> None:
        self._sources = sources
        self._events = EndpointEvents(registry)
        self._trust = Trust()
        self._refusals = Refusals()
        self._stall = StallDetector()
        self._returning = Returning()
        self._traffic = TrafficColumns()
        self._membership: Membership | None = None
        self._rows: dict[str, int] = {}
        self._endpoints: tuple[Endpoint, ...] = ()
        self._settings = settings
        self._served = ServedWindows(settings)
        self._weights = NO_WEIGHTS
        self._doubted: frozenset[str] = frozenset()
        self._doubted_until = 0.0
        self._clear()
        self.reconfigure(settings, lenient)

    def _clear(self) -> None:
        self._rows, self._endpoints = {}, ()
        self._bases: list[Load | None] = []
        self._on_gpus: list[Mapping[str, Signal] | None] = []
        self._loads: list[Load] = []
        self._pools = np.empty(0, np.int64)
        self._shares: FloatArray = np.empty(0)
        self._pages: FloatArray = np.empty((0, PAGE_COLUMNS))
        self._busy_at: FloatArray = np.empty(0)
        self._due_at: FloatArray = np.empty(0)
        self._shown: FloatArray = np.empty((0, 0))

    def reconfigure(self, settings: SignalSettings, lenient: Lenient) -> None:
        """Take other settings; windows of another length begin anew."""
        before, self._settings = self._settings, settings
        windows = (settings.latency_window_seconds, settings.error_window_seconds)
        if windows != (before.latency_window_seconds, before.error_window_seconds):
            self._served = ServedWindows(settings)
            self._membership = None
        self._served.lenient = lenient

    def doubt(self, addresses: Collection[str], now: float) -> None:
        """Hold these for hanging that were unhealthy before a restart, until they give evidence or a trial.

        Those who are not followed by the time of the trial are forgotten.
        """
        self._doubted = frozenset(addresses)
        self._doubted_until = now + self._settings.stalled_after_seconds * HALF_OPEN_FACTOR

    def take(self, finished: Finished, now: float) -> None:
        """Take in a request that an Envoy has finished."""
        self._served.record(finished, now)
        self._refusals.note(finished, now)

    def loads(
        self, membership: Membership, now: float, weights: Mapping[str, int] = NO_WEIGHTS
    ) -> dict[str, Load]:
        """Return every endpoint's load; signals keep the age that they have at their source.

        `weights` are those by which Envoys spread requests now; who gets none is left out.
        """
        if membership is not self._membership:
            self._follow(membership, now)
            self._weights = NO_WEIGHTS
        if weights is not self._weights:
            self._weights, self._shares = weights, self._shares_of(weights)
        if not self._endpoints:
            return {}
        changed = self._read_pages()
        changed |= self._read_gpus(membership, now)
        envoy, listening = self._served.columns(now), self._sources.listening()
        recent = self._served.take()
        self._traffic.read(self._sources.traffic(), self._rows)
        moving = (recent.ok + recent.faults + recent.answered > 0) | self._traffic.moving
        self._busy_at[moving | ~self._traffic.known] = now
        duration = np.fmax(envoy.duration_p99_seconds, self._traffic.duration_p99_seconds)
        stalled = self._step_stall(recent, duration, now, listening=listening)
        refused = self._refusals.step(self._pools, recent.ok, now)
        trust = self._trust.step(recent.ok, recent.faults + refused, now)
        if self._trust.recovered.any():
            self._served.forgive(np.flatnonzero(self._trust.recovered))
        self._events.tell(self._endpoints, stalled, trust)
        held_back = self._returning.step(
            self._pages[:, READ_AT], now, self._settings.stale_after_seconds, self._settings.returning_seconds
        )
        ready = stalled, trust, self._not_ready(), held_back
        columns = columns_of(envoy, self._traffic, *ready, listening=listening)
        rows = np.flatnonzero(changed | differ(columns, self._shown) | (now >= self._due_at))
        self._shown = columns
        self._due_at[rows] = now + REFRESH_SECONDS
        self._build(rows, columns, envoy.latency_at, now)
        return self._faded(columns, envoy.latency_at, now)

    def _follow(self, membership: Membership, now: float) -> None:
        endpoints = membership.endpoints
        addresses = [endpoint.address for endpoint in endpoints]
        source = sources(addresses, self._rows)
        parts = (self._trust, self._stall, self._returning, self._traffic, self._events)
        for part in parts:
            part.relay(source)
        if self._doubted and now < self._doubted_until:
            doubted = [row for row, address in enumerate(addresses) if address in self._doubted]
            rows = np.array([row for row in doubted if source[row] < 0], np.int64)
            self._stall.doubt(rows, now)
            self._events.expect(rows)
        known = source if self._served.members else np.full_like(source, -1)
        self._served.relay(addresses, known, now)
        self._refusals.relay(addresses, source)
        busy_at = relaid(self._busy_at, source, now)
        self._clear()
        self._membership, self._endpoints = membership, endpoints
        self._rows = {address: row for row, address in enumerate(addresses)}
        size = len(addresses)
        numbers = {pool.name: number for number, pool in enumerate(membership.pools)}
        self._pools = np.array([numbers[endpoint.pool] for endpoint in endpoints], np.int64)
        self._bases, self._on_gpus, self._loads = [None] * size, [None] * size, [Load()] * size
        self._pages = np.full((size, PAGE_COLUMNS), np.nan)
        self._pages[:, READ_AT] = -np.inf
        self._busy_at = busy_at
        self._shares = np.zeros(size)
        self._due_at = np.full(size, -np.inf)

    def _read_pages(self) -> BoolArray:
        changed: BoolArray = np.zeros(len(self._bases), np.bool_)
        scraped, unknown = self._sources.scraped(), UNKNOWN
        bases = self._bases
        for row, endpoint in enumerate(self._endpoints):
            base = scraped.get(endpoint.address, unknown)
            if base is not bases[row]:
                bases[row] = base
                changed[row] = True
                self._pages[row] = page_of(base, self._pages[row, READ_AT])
        return changed

    def _read_gpus(self, membership: Membership, now: float) -> BoolArray:
        changed: BoolArray = np.zeros(len(self._bases), np.bool_)
        if self._sources.gpus is not None:
            told = self._sources.gpus(membership, now)
            for row, endpoint in enumerate(self._endpoints):
                here = told.get(endpoint.address)
                if here is not self._on_gpus[row] and here != self._on_gpus[row]:
                    self._on_gpus[row] = here
                    changed[row] = True
        return changed

    def _shares_of(self, weights: Mapping[str, int]) -> FloatArray:
        """Return each endpoint's share of its pool's weights; 0 where it has none."""
        held = np.array([weights.get(endpoint.address, 0) for endpoint in self._endpoints], np.float64)
        sums = np.bincount(self._pools, weights=held, minlength=1)[self._pools]
        return np.divide(held, sums, out=np.zeros_like(held), where=sums > 0)

    def _not_ready(self) -> BoolArray:
        result: BoolArray = np.zeros(len(self._endpoints), np.bool_)
        for address in self._sources.not_ready():
            if address in self._rows:
                result[self._rows[address]] = True
        return result

    def _step_stall(self, recent: Recent, duration: FloatArray, now: float, *, listening: bool) -> FloatArray:
        settings = self._settings
        pages, traffic = self._pages, self._traffic
        seen = Seen(
            traffic.in_flight,
            traffic.finished_total,
            recent.answered,
            listening,
            pages[:, PROGRESS],
            pages[:, BUSY],
            pages[:, READ_AT],
            duration,
            Spread(self._shares, self._pools, recent.by_weight, recent.drawn, recent.faults),
            pages[:, REACHABLE],
        )
        timing = Timing(
            settings.stalled_after_seconds,
            settings.stale_after_seconds,
            settings.scrape_interval_seconds,
            settings.scrape_timeout_seconds,
        )
        return self._stall.step(seen, now, timing)

    def _build(self, rows: IntArray, columns: FloatArray, latency_at: FloatArray, now: float) -> None:
        stale_after = self._settings.stale_after_seconds
        told, at = columns[rows].tolist(), latency_at[rows].tolist()
        for row, numbers, seen_at in zip(rows.tolist(), told, at, strict=True):
            base = self._bases[row] or UNKNOWN
            values = joined(base, self._on_gpus[row], numbers, seen_at, now, stale_after)
            self._loads[row] = Load(*values)

    def _faded(self, columns: FloatArray, latency_at: FloatArray, now: float) -> dict[str, Load]:
        """Return the loads, those with extremes that fade as copies."""
        loads = dict(zip(self._rows, self._loads, strict=True))
        settings = self._settings
        idle = now - self._busy_at
        if not settings.decay_seconds or not idle.any():
            return loads
        fresh = fading_columns(self._pages, columns, latency_at, now - settings.stale_after_seconds)
        faded = fade(fresh, idle, self._pools, settings.decay_seconds)
        moved = (faded != fresh) & np.isfinite(fresh)
        for row in np.flatnonzero(moved.any(axis=1)).tolist():
            values = {column: float(faded[row, column]) for column in np.flatnonzero(moved[row]).tolist()}
            loads[self._endpoints[row].address] = with_faded(self._loads[row], values)
        return loads
