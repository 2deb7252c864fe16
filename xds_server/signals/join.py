"""All sources of signals joined into one table, once a tick. Everything is computed on columns.

How two sources of one number are merged: the engine's own time to first token wins while it is fresh, because
it contains no network and no queue of Envoy's; without it, the time to the first byte that Envoys saw counts.
Nothing else has two sources. When a number is believed stands in `decay.py`, `stall.py` and `trust.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.signals import ROW, SIGNALS, SignalTable, Source, rows_of
from xds_server.signals.computed import ComputedSignals
from xds_server.signals.decay import FADING_SIGNALS, PageTimes, fade
from xds_server.signals.events import EndpointEvents
from xds_server.signals.forecast.forecaster import SignalForecaster
from xds_server.signals.passive.expected_answers import Spread
from xds_server.signals.passive.refusals import Refusals
from xds_server.signals.passive.served import ServedWindows
from xds_server.signals.passive.shared_faults import SharedFaults
from xds_server.signals.passive.stall import HALF_OPEN_FACTOR, StallDetector, StallInputs, Timing
from xds_server.signals.passive.trust import Trust
from xds_server.signals.passive.unproductive import Unproductive
from xds_server.signals.rows import remapped, rows_before
from xds_server.signals.traffic import TrafficColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.settings import SignalSettings
    from fleet.store import Traffic
    from xds_server.access_log.finished import Finished
    from xds_server.signals.passive.retry_blame import RetryBlame
    from xds_server.signals.passive.served import NewAnswers, ServedColumns
    from xds_server.signals.rows import BoolArray, FloatArray

NO_WEIGHTS: Final[Mapping[str, int]] = MappingProxyType({})

_GPU_ROWS: Final = rows_of(name for name in SIGNALS if name.startswith("gpu_"))
_FADING_ROWS: Final = rows_of(FADING_SIGNALS)
_READ_ROWS: Final = rows_of(name for name in SIGNALS if name != "reachable")
"""Signals of a page by which it is known when it was read."""
_WAITING_ROWS: Final = rows_of(name for name in SIGNALS if name not in {"reachable", "progress_total"})
"""Signals of a page that do not count when it has only just come back."""
_LATENCY_ROWS: Final = (
    (ROW["latency_p50_seconds"], ROW["first_byte_p50_seconds"]),
    (ROW["latency_p99_seconds"], ROW["first_byte_p99_seconds"]),
)
_RATIO_DIGITS: Final = 2


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the joiner looks in every tick."""

    pages: Callable[[], SignalTable]
    traffic: Callable[[], Mapping[str, Mapping[str, Traffic]]]
    """Worker to address to traffic."""
    listening: Callable[[], bool] = lambda: False
    """Whether any Envoy sends its access log."""
    gpus: Callable[[Membership, float], SignalTable] | None = None
    not_ready: Callable[[], Collection[str]] = tuple
    """Endpoints whose probe has to pass first."""
    context_tokens: Callable[[], Mapping[str, int]] = dict
    """Address to the context length that its list of models shows."""


class SignalJoiner:
    """Joins every source. All calls come from one event loop; `now` never goes back."""

    def __init__(
        self,
        settings: SignalSettings,
        retry_blame: RetryBlame,
        sources: Sources,
        registry: CollectorRegistry,
        horizon_seconds: float = 0.0,
    ) -> None:
        """Join what `sources` have; `horizon_seconds` is that of forecasts, 0: nobody needs them."""
        self._settings = settings
        self._forecaster = _forecaster(settings, horizon_seconds)
        self._sources = sources
        self._events = EndpointEvents(registry)
        self._trust = Trust()
        self._shared_faults = SharedFaults()
        self._unproductive = Unproductive()
        self._refusals = Refusals()
        self._stall = StallDetector()
        self._times = PageTimes()
        self._traffic = TrafficColumns()
        self._served = ServedWindows(settings, retry_blame)
        self._computed = ComputedSignals(0)
        self._membership: Membership | None = None
        self._rows: dict[str, int] = {}
        """Address to its place in the membership: the row of all state."""
        self._pools = np.empty(0, np.int64)
        self._weights = NO_WEIGHTS
        self._shares: FloatArray = np.empty(0)
        """Of the pool's weights; 0 for an endpoint without any."""
        self._busy_at: FloatArray = np.empty(0)
        """When a request of ours was there last, as far as that is known."""
        self._restored: tuple[frozenset[str], float] = frozenset(), 0.0
        """Endpoints that begin as stalled, and until when."""

    def reconfigure(
        self, settings: SignalSettings, retry_blame: RetryBlame, horizon_seconds: float = 0.0
    ) -> None:
        """Take other settings; windows of another length and forecasts of another horizon start again."""
        before, self._settings = self._settings, settings
        horizon_before = 0.0 if self._forecaster is None else self._forecaster.horizon_seconds
        if horizon_seconds != horizon_before or settings.stale_after_seconds != before.stale_after_seconds:
            self._forecaster = _forecaster(settings, horizon_seconds)
        windows = (settings.latency_window_seconds, settings.error_window_seconds)
        if windows != (before.latency_window_seconds, before.error_window_seconds):
            self._served = ServedWindows(settings)
            self._membership = None
        self._served.retry_blame = retry_blame

    def restore_stalled(self, addresses: Collection[str], now: float) -> None:
        """Begin with these endpoints stalled: they were unhealthy before a restart.

        They show life or get a trial, as any stalled endpoint. Those that are not followed by the time of the
        trial are forgotten.
        """
        until = now + self._settings.stalled_after_seconds * HALF_OPEN_FACTOR
        self._restored = frozenset(addresses), until

    def take(self, finished: Finished, now: float) -> None:
        """Take in a request that an Envoy has finished."""
        self._served.record(finished, now, self._shared_faults.record(finished, now))
        self._refusals.record(finished, now)

    def join(
        self, membership: Membership, now: float, weights: Mapping[str, int] = NO_WEIGHTS
    ) -> SignalTable:
        """Return every endpoint's signals, with the age that they have at their source.

        `weights` are those by which Envoys spread requests now; an endpoint that gets none is left out.
        """
        if membership is not self._membership:
            self._follow(membership, now)
        if weights is not self._weights:
            self._weights, self._shares = weights, self._shares_of(membership, weights)
        if not membership.addresses:
            return SignalTable.unknown(())
        pages = self._sources.pages().arranged(membership.addresses)
        settings, listening = self._settings, self._sources.listening()
        returning = self._times.step(
            np.fmax.reduce(pages.observed_at[_READ_ROWS]),
            now,
            settings.stale_after_seconds,
            settings.returning_seconds,
        )
        envoy, recent = self._served.columns(now), self._served.take()
        self._traffic.read(self._sources.traffic(), self._rows)
        moving = (recent.ok + recent.faults + recent.answered > 0) | self._traffic.moving
        self._busy_at[moving | ~self._traffic.reported] = now
        duration = np.fmax(envoy.duration_p99_seconds, self._traffic.duration_p99_seconds)
        stalled = self._step_stall(pages, recent, duration, now, listening=listening)
        refused = self._refusals.step(self._pools, recent.ok, now)
        trust = self._trust.step(recent.ok, recent.faults + refused, now)
        if self._trust.recovered.any():
            self._served.reset_errors(np.flatnonzero(self._trust.recovered))
        unproductive = self._unproductive.step(recent.to_picks, pages["progress_total"], self._pools, now)
        self._events.report(membership.addresses, stalled, trust, unproductive)
        self._publish_computed(envoy, stalled, trust, now, listening=listening)
        table = self._table(membership, pages, returning, now)
        return table if self._forecaster is None else self._forecaster.add_to(table, now)

    def _follow(self, membership: Membership, now: float) -> None:
        addresses, size = membership.addresses, len(membership.addresses)
        source = rows_before(addresses, self._rows)
        for part in (self._trust, self._unproductive, self._stall, self._times, self._traffic, self._events):
            part.remap_rows(source)
        restored, until = self._restored
        if restored and now < until:
            newcomers = np.flatnonzero(source < 0).tolist()
            rows = np.array([row for row in newcomers if addresses[row] in restored], np.int64)
            self._stall.restore(rows, now)
            self._events.restore(rows)
        self._served.remap_rows(addresses, source if self._served.members else np.full_like(source, -1), now)
        self._refusals.remap_rows(addresses, source)
        self._busy_at = remapped(self._busy_at, source, now)
        self._membership = membership
        self._rows = {address: row for row, address in enumerate(addresses)}
        sizes = [len(pool.endpoints) for pool in membership.pools]
        self._pools = np.repeat(np.arange(len(sizes)), sizes)
        self._weights, self._shares = NO_WEIGHTS, np.zeros(size)
        self._computed = ComputedSignals(size)

    def _shares_of(self, membership: Membership, weights: Mapping[str, int]) -> FloatArray:
        own = np.array([weights.get(address, 0) for address in membership.addresses], np.float64)
        sums = np.bincount(self._pools, weights=own, minlength=1)[self._pools]
        return np.divide(own, sums, out=np.zeros_like(own), where=sums > 0)

    def _not_ready(self) -> BoolArray:
        result: BoolArray = np.zeros(len(self._rows), np.bool_)
        result[[self._rows[address] for address in self._sources.not_ready() if address in self._rows]] = True
        return result

    def _context_tokens(self) -> FloatArray:
        lengths = self._sources.context_tokens()
        if not lengths:
            return np.full(len(self._rows), np.nan)
        return np.array([lengths.get(address, np.nan) for address in self._rows], np.float64)

    def _step_stall(
        self, pages: SignalTable, recent: NewAnswers, duration: FloatArray, now: float, *, listening: bool
    ) -> FloatArray:
        settings = self._settings
        inputs = StallInputs(
            self._traffic.in_flight,
            self._traffic.finished_total,
            recent.answered,
            listening,
            pages["progress_total"],
            pages["running"] + np.nan_to_num(pages["queue_depth"]),
            self._times.read_at,
            duration,
            Spread(self._shares, self._pools, recent.by_weight, recent.sessionless, recent.faults),
            pages["reachable"],
        )
        timing = Timing(
            settings.stalled_after_seconds,
            settings.stale_after_seconds,
            settings.scrape_interval_seconds,
            settings.scrape_timeout_seconds,
        )
        return self._stall.step(inputs, now, timing)

    def _publish_computed(
        self, envoy: ServedColumns, stalled: FloatArray, trust: FloatArray, now: float, *, listening: bool
    ) -> None:
        """Publish the numbers of the tick, rounded against noise."""
        rounded, unknown = np.round(trust, _RATIO_DIGITS), np.full(len(trust), np.nan)
        numbers = {
            "first_byte_p50_seconds": envoy.first_byte_p50_seconds,
            "first_byte_p99_seconds": envoy.first_byte_p99_seconds,
            "duration_p99_seconds": envoy.duration_p99_seconds,
            "requests_per_second": np.round(envoy.requests_per_second, 1) if listening else unknown,
            "error_ratio": np.round(envoy.error_ratio, _RATIO_DIGITS),
            "in_flight": self._traffic.in_flight,
            "picked_duration_p99_seconds": self._traffic.duration_p99_seconds,
            "stalled": stalled,
            "trust_ratio": rounded if listening else np.where(trust < 1, rounded, np.nan),
            "ready": np.where(self._not_ready(), 0.0, np.nan),
            "context_tokens": self._context_tokens(),
        }
        self._computed.update(numbers, envoy.latency_at, now)

    def _table(
        self, membership: Membership, pages: SignalTable, returning: BoolArray, now: float
    ) -> SignalTable:
        values, at, sources = pages.values.copy(), pages.observed_at.copy(), pages.sources.copy()
        if returning.any():
            waiting = np.ix_(_WAITING_ROWS, returning)
            values[waiting], at[waiting], sources[waiting] = np.nan, np.nan, Source.NONE
        if self._sources.gpus is not None:
            gpus = self._sources.gpus(membership, now).arranged(membership.addresses)
            values[_GPU_ROWS], at[_GPU_ROWS] = gpus.values[_GPU_ROWS], gpus.observed_at[_GPU_ROWS]
            sources[_GPU_ROWS] = gpus.sources[_GPU_ROWS]
        self._computed.write(values, at, sources)
        oldest = now - self._settings.stale_after_seconds
        for own, first_byte in _LATENCY_ROWS:
            missing = np.isfinite(values[first_byte]) & ~(at[own] >= oldest)
            for array in (values, at, sources):
                array[own] = np.where(missing, array[first_byte], array[own])
        self._fade(values, at, sources, now)
        return SignalTable(membership.addresses, values, at, sources)

    def _fade(self, values: FloatArray, at: FloatArray, sources: np.ndarray, now: float) -> None:
        """Let extremes fade where nothing of ours runs."""
        settings, idle = self._settings, now - self._busy_at
        if not settings.decay_seconds or not idle.any():
            return
        signals = values[_FADING_ROWS]
        fresh = np.where(at[_FADING_ROWS] >= now - settings.stale_after_seconds, signals, np.nan)
        faded = fade(fresh.T, idle, self._pools, settings.decay_seconds).T
        moved = (faded != fresh) & np.isfinite(fresh)
        values[_FADING_ROWS] = np.where(moved, faded, signals)
        sources[_FADING_ROWS] = np.where(moved, Source.FADED, sources[_FADING_ROWS])


def _forecaster(settings: SignalSettings, horizon_seconds: float) -> SignalForecaster | None:
    return SignalForecaster(horizon_seconds, settings.stale_after_seconds) if horizon_seconds else None
