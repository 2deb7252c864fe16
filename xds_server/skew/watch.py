"""Watches the fleet for skew: takes a sample per period, runs detectors over the window, keeps events."""

from __future__ import annotations

import collections
import logging
from collections import deque
from dataclasses import replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge

from xds_server.skew.detectors import DETECTORS
from xds_server.skew.diagnosis import diagnose
from xds_server.skew.event import Actions, SkewEvent
from xds_server.skew.facts import facts
from xds_server.skew.finding import Latch, Patience
from xds_server.skew.layout import Layout
from xds_server.skew.sample import take
from xds_server.skew.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.settings.signals import SignalSettings
    from fleet.settings.skew import SkewSettings
    from fleet.signals import SignalTable
    from xds_server.skew.diagnosis import Diagnosis
    from xds_server.skew.finding import Finding
    from xds_server.skew.layout import Scope

logger = logging.getLogger(__name__)

MOST_LINES: Final = 20
"""The maximum of log lines about events per period; one more line has the number of the other events."""


class SkewMetrics:
    """The metrics of skew. Labels are the kinds of skew and the pools of the settings, both few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._active = Gauge(
            "warmroute_skew_active",
            "Skews that last: endpoints that have one, and one more for the pool as a whole",
            ["kind", "pool"],
            registry=registry,
        )
        started = Counter("warmroute_skew_events_total", "Skews that have begun", ["kind"], registry=registry)
        self._started = {kind: started.labels(kind) for kind in DETECTORS}
        self._pools: frozenset[str] = frozenset()

    def count_start(self, kind: str) -> None:
        """Count the start of an event."""
        self._started[kind].inc()

    def show(self, pools: Collection[str], active: Iterable[SkewEvent]) -> None:
        """Set the gauges of all pools; remove those of pools that have left."""
        counts = dict.fromkeys(((kind, pool) for kind in DETECTORS for pool in pools), 0)
        for event in active:
            counts[event.kind, event.pool] += 1
        for pool in self._pools.difference(pools):
            for kind in DETECTORS:
                self._active.remove(kind, pool)
        for (kind, pool), count in counts.items():
            self._active.labels(kind, pool).set(count)
        self._pools = frozenset(pools)


class SkewWatch:
    """Receives the signals of every tick, evaluates them once per period, and keeps the window and events."""

    def __init__(self, settings: SkewSettings, signals: SignalSettings, registry: CollectorRegistry) -> None:
        self._settings = settings
        self._signals = signals
        self._metrics = SkewMetrics(registry)
        self._membership: Membership | None = None
        self._active: dict[tuple[str, Scope], SkewEvent] = {}
        self._ended: deque[SkewEvent] = deque(maxlen=settings.recent_events)
        self._diagnoses: tuple[Diagnosis, ...] | None = None
        self._next_at = -inf
        self._observed_at: float | None = None
        empty = Layout.empty()
        self._window = Window(settings.periods, empty, signals.latency_window_seconds)
        self._latches = {kind: Latch(empty.columns) for kind in DETECTORS}

    def reconfigure(self, settings: SkewSettings, signals: SignalSettings) -> None:
        """Apply changed settings. A change of the window or the period clears the samples, not the events."""
        before, self._settings = self._settings, settings
        self._signals = signals
        self._window.latency_seconds = signals.latency_window_seconds
        self._ended = deque(self._ended, maxlen=settings.recent_events)
        if (before.periods, before.period_seconds) != (settings.periods, settings.period_seconds):
            self._window = Window(settings.periods, self._window.layout, signals.latency_window_seconds)
            self._next_at = -inf
            self._diagnoses = None

    def observe(self, membership: Membership, signals: SignalTable, now: float) -> list[SkewEvent]:
        """Evaluate the signals of a tick; return the events that start or end with it.

        Most ticks start and end none. `now` is on the clock of the signals' `observed_at`.
        """
        if now < self._next_at:
            return []
        changes = self._follow(membership, now)
        self._schedule(now)
        self._window.push(take(self._window.layout, signals, now, self._signals.stale_after_seconds))
        for kind, detector in DETECTORS.items():
            patience = Patience(
                detector.begin_periods(self._settings), self._settings.calm_periods, self._settings.periods
            )
            finding = detector.find(self._window, self._settings)
            changes += self._step(kind, finding, patience, now)
        self._diagnoses = None
        self._metrics.show(self._window.layout.pools, self._active.values())
        _log(changes, now)
        return changes

    def active(self) -> tuple[SkewEvent, ...]:
        """Return the active events, oldest first."""
        return tuple(sorted(self._active.values(), key=lambda event: event.began_at))

    def events(self) -> tuple[SkewEvent, ...]:
        """Return the active events and the newest ended events, newest first."""
        return tuple(
            sorted((*self._ended, *self._active.values()), key=lambda event: event.began_at, reverse=True)
        )

    @property
    def actions(self) -> Actions:
        """The actions that the active events require, as of the newest period."""
        now = self._observed_at or 0.0
        floor, hinted = 0.0, {"batching_hint": set[str](), "warm_up_hint": set[str]()}
        for event in self._active.values():
            action = DETECTORS[event.kind].action
            if action != "trace_sampling":
                hinted[action].update(self._addresses(event))
            elif now - event.began_at < self._settings.trace_boost_seconds:
                floor = self._settings.trace_sample_ratio
        return Actions(floor, frozenset(hinted["batching_hint"]), frozenset(hinted["warm_up_hint"]))

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """Return the diagnosis of every endpoint, then of every pool, as of the newest period."""
        if self._diagnoses is None:
            flags = {kind: latch.active for kind, latch in self._latches.items()}
            observed = self._observed_at is not None
            self._diagnoses = diagnose(self._window.layout, facts(self._window, flags)) if observed else ()
        return self._diagnoses

    def status(self) -> dict[str, Any]:
        """Return the document of `/api/v1/skew`."""
        now = self._observed_at or 0.0
        return {
            "window_seconds": self._settings.window_seconds,
            "period_seconds": self._settings.period_seconds,
            "active": [event.as_json(now) for event in self.active()],
            "recent": [event.as_json(now) for event in self.events() if event.ended_at is not None],
            "actions": self.actions.as_json(),
        }

    def diagnosis(self) -> dict[str, Any]:
        """Return the document of `/api/v1/diagnosis`."""
        pools = [entry for entry in self.diagnoses() if entry.address is None]
        endpoints = [entry for entry in self.diagnoses() if entry.address is not None]
        causes: dict[str, collections.Counter[str]] = {entry.pool: collections.Counter() for entry in pools}
        for entry in endpoints:
            causes[entry.pool][entry.cause] += 1
        return {
            "observed": self._observed_at is not None,
            "pools": [{**entry.as_json(), "endpoints": dict(causes[entry.pool])} for entry in pools],
            "endpoints": [entry.as_json() for entry in endpoints],
        }

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """Return the views of the admin server, by path."""
        return {"/api/v1/skew": self.status, "/api/v1/diagnosis": self.diagnosis}

    def _follow(self, membership: Membership, now: float) -> list[SkewEvent]:
        """Apply a changed membership; end the events of endpoints and pools that have left."""
        if membership is self._membership:
            return []
        self._membership = membership
        layout = Layout.of(membership)
        if layout.scopes == self._window.layout.scopes:
            return []
        here, there = layout.moved_from(self._window.layout)
        self._window.rearrange(layout, here, there)
        for latch in self._latches.values():
            latch.rearrange(layout.columns, here, there)
        staying = set(layout.scopes)
        return [self._end(key, now) for key in tuple(self._active) if key[1] not in staying]

    def _schedule(self, now: float) -> None:
        """Shift the window by the missed periods, and schedule the next period."""
        period = self._settings.period_seconds
        if self._next_at > -inf and (missed := int((now - self._next_at) / period)):
            self._window.skip(missed)
            for latch in self._latches.values():
                latch.skip(missed)
        self._next_at = self._next_at + period if now - self._next_at < period else now + period
        self._observed_at = now

    def _step(self, kind: str, finding: Finding, patience: Patience, now: float) -> list[SkewEvent]:
        layout = self._window.layout
        begins, ends = self._latches[kind].step(finding.only(layout.shared()), patience)
        scopes = layout.scopes
        began = [self._begin(kind, scopes[i], _evidence(finding, i), now) for i in begins.tolist()]
        return began + [self._end((kind, scopes[i]), now) for i in ends.tolist()]

    def _begin(self, kind: str, scope: Scope, evidence: Mapping[str, float], now: float) -> SkewEvent:
        event = SkewEvent(kind, scope.pool, scope.address, now, evidence, DETECTORS[kind].hint)
        self._active[kind, scope] = event
        self._metrics.count_start(kind)
        return event

    def _end(self, key: tuple[str, Scope], now: float) -> SkewEvent:
        event = replace(self._active.pop(key), ended_at=now)
        self._ended.append(event)
        return event

    def _addresses(self, event: SkewEvent) -> list[str]:
        if event.address is not None:
            return [event.address]
        scopes = self._window.layout.scopes
        return [scope.address for scope in scopes if scope.pool == event.pool and scope.address is not None]


def _evidence(finding: Finding, column: int) -> Mapping[str, float]:
    """Return the known figures, rounded to six digits."""
    figures = {name: float(values[column]) for name, values in finding.evidence.items()}
    return {name: float(f"{value:.6g}") for name, value in figures.items() if isfinite(value)}


def _log(changes: list[SkewEvent], now: float) -> None:
    for event in changes[:MOST_LINES]:
        if event.ended_at is None:
            evidence = ", ".join(f"{name} {value:.4g}" for name, value in event.evidence.items())
            logger.warning("%s begins at %s: %s; %s", event.kind, event.where, evidence, event.hint)
        else:
            logger.info("%s at %s is over after %.0f s", event.kind, event.where, now - event.began_at)
    if len(changes) > MOST_LINES:
        logger.warning("%d more skews begin or end", len(changes) - MOST_LINES)
