"""The membership, from the sources, the probes and the time."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fleet.endpoint import Membership
from xds_server.endpoints.engine_client import EngineClient
from xds_server.endpoints.factory import Key, RunningSource, SourceFactory, basis, keys, label
from xds_server.endpoints.gate import Gate, ProbeResult, State
from xds_server.endpoints.merge import merge
from xds_server.endpoints.model_lists import ModelLists
from xds_server.endpoints.probe import Prober
from xds_server.endpoints.readiness import Readiness
from xds_server.endpoints.source import KeeperMetrics
from xds_server.endpoints.special import screen_last_good
from xds_server.endpoints.status import EndpointStatus, source_by_address
from xds_server.signals.passive.reach import Reach
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Endpoint, Pool
    from fleet.settings import JoiningSettings, PoolSettings, Settings
    from xds_server.access_log.finished import Finished
    from xds_server.endpoints.factory import Factory
    from xds_server.tls.engine_tls import EngineTls

logger = logging.getLogger(__name__)

_CLIENT_ERROR: Final = 400
LAST_GOOD: Final = "last good"
"""Source of endpoints that are served until a source of their pool has its first result."""
RESTART_SECONDS: Final = 5.0
"""Until a source is run again that failed by a fault of ours."""


class EndpointKeeper:
    """Runs the sources and probes, and derives the membership. All calls come from one running event loop.

    `on_change` is called when a source or probe may have changed the membership. A change by time alone (the
    end of a drain, the ramp) shows at the next call of `membership` and `ramp`.
    """

    def __init__(
        self,
        settings: Settings,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
        *,
        factory: Factory | None = None,
        engine_tls: EngineTls = plaintext,
        reach: Reach | None = None,
    ) -> None:
        """`reach` records probes and clients' requests."""
        self._settings = settings
        self._reach = Reach() if reach is None else reach
        self._clock = clock
        self._factory = factory or SourceFactory()
        self._engines = EngineClient(engine_tls)
        self._metrics = KeeperMetrics(registry)
        self._gate = Gate()
        self._readiness = Readiness()
        self._prober: Prober | None = None
        self._running: dict[Key, RunningSource] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._retained: dict[str, tuple[Endpoint, ...]] = {}
        """Pool to endpoints that stay served while a source of the pool has no result yet."""
        self._restored_pools: frozenset[str] = frozenset()
        self._unlisted: set[str] = set()
        """Admitted endpoints without a probe: one shows what their lists of models say."""
        self._sources: dict[str, str] = {}
        self._membership = Membership()
        self._stale = True
        self._synced = asyncio.Event()
        self._over_limit = 0
        self.on_change: Callable[[], None] = lambda: None
        self._lists = ModelLists(settings, self._engines, self._changed)

    def restore(self, last_good: Membership) -> None:
        """Serve the last good state until sources have results; before `start` only."""
        self._retained = screen_last_good(last_good, self._settings.pools)
        self._restored_pools = frozenset(self._retained)

    async def start(self) -> None:
        """Run the sources."""
        self._prober = Prober(
            self._on_probe, self._engines, page_bytes=self._settings.limits.metrics_page_bytes
        )
        self._reconcile(initial=True)

    async def close(self) -> None:
        """Stop sources and probes; the membership stays as it is."""
        for running in self._running.values():
            self._stop(running)
        self._running.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._lists.close()
        if self._prober is not None:
            await self._prober.close()
            self._prober = None

    def reconfigure(self, settings: Settings) -> None:
        """Apply other settings. A source whose settings did not change keeps running.

        The endpoints of a removed source stay until every new source of its pool has a first result.
        """
        self._settings = settings
        self._lists.reconfigure(settings)
        if self._prober is not None:
            self._reconcile(initial=False)

    def membership(self) -> Membership:
        """The endpoints that are served or leaving, in every pool; the same object while nothing changes."""
        if self._gate.advance(self._clock()):
            self._stale = True
        if self._stale:
            self._stale = False
            membership = Membership(self._with_own_names(self._gate.serving()))
            if membership != self._membership:
                self._membership = membership
            for state, count in self._gate.counts().items():
                self._metrics.endpoints.labels(state.value).set(count)
        return self._lists.joined(self._membership)

    def _with_own_names(self, pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
        """Add what engines have listed of their names."""
        if self._prober is None or not any(self._prober.own_names.values()):
            return pools
        listed = self._prober.own_names
        return tuple(
            replace(
                pool,
                endpoints=tuple(
                    replace(endpoint, own_names=listed.get(endpoint.address, ()))
                    for endpoint in pool.endpoints
                ),
            )
            for pool in pools
        )

    def leaving(self) -> frozenset[str]:
        """Addresses of the membership that must get no new requests."""
        return self._gate.leaving()

    def not_ready(self) -> frozenset[str]:
        """Addresses whose newest probe failed: they get no new requests until a probe passes."""
        return self._readiness.not_ready() | self._gate.refused()

    def kept_out(self) -> frozenset[str]:
        """The subset that gets no new requests, since probes of others in their pool pass."""
        return self._readiness.kept_out(self._gate.admitted_endpoints()) | self._gate.refused()

    def context_tokens(self) -> Mapping[str, int]:
        """Address to the context length of its model, where its list of models shows it."""
        return {} if self._prober is None else self._prober.context_tokens

    def judge(self, unfit: frozenset[str]) -> None:
        """Take the addresses that would not serve: a pool without fit admitted endpoints serves all."""
        if self._gate.judge(unfit):
            self._stale = True

    def suspect(self, address: str, refused: bool) -> None:  # noqa: FBT001 - a callback's
        """Take a sign that an engine has restarted or fails (see `Readiness.suspect`), and probe it."""
        endpoint = self._gate.admitted(address)
        if endpoint is None or self._joining(endpoint).probe == "none":
            return
        if self._readiness.suspect(address, self._clock(), refused=refused):
            self._probe()
            self.on_change()

    def note(self, finished: Finished) -> None:
        """Record a client's request that an Envoy has finished: whether the engine answered it well."""
        self._reach.note(finished, self._clock())
        if finished.retried_away:
            self.suspect(finished.picked, refused=False)
        if finished.faulty:
            self.suspect(finished.address, refused=False)
        elif finished.first_byte_seconds is not None and finished.status < _CLIENT_ERROR:
            self._answered(finished.address, finished.duration_seconds)

    def _answered(self, address: str, took_seconds: float | None) -> None:
        if self._readiness.answered(address, took_seconds, self._clock()):
            logger.warning(
                "%s answers clients well although its probe does not pass: the probe is not believed; see "
                "pools.joining.probe",
                address,
            )
            self._probe()
            self.on_change()

    def ramp(self, now: float) -> Mapping[str, float]:
        """Address to the factor of its weight, for endpoints in slow start (below 1)."""
        return self._gate.ramp(now)

    def unknown_pools(self) -> frozenset[str]:
        """Pools whose endpoints are unknown yet. They are not empty: Envoys keep their endpoints."""
        return frozenset(
            pool.name
            for pool in self._settings.pools
            if any(self._is_unknown(key) for key in keys(pool)) and not any(self._endpoints_of(pool))
        )

    def restored_pools(self) -> frozenset[str]:
        """Pools that serve endpoints of the last good state, because a source has no result yet."""
        return self._restored_pools

    def source_of(self, address: str) -> str:
        """The source of an endpoint of the membership, as in `EndpointStatus.source`; empty: unknown."""
        return self._sources.get(address, "")

    def listed(self) -> tuple[EndpointStatus, ...]:
        """All discovered and leaving endpoints, served or not."""
        ramp = self.ramp(self._clock())
        refusals = {} if self._prober is None else self._prober.refusals
        not_ready = self._readiness.not_ready()
        return tuple(
            EndpointStatus(
                endpoint,
                "ramp" if endpoint.address in ramp and state is State.ADMITTED else state.value,
                self.source_of(endpoint.address),
                # Suspicion alone keeps no endpoint out.
                refusals.get(endpoint.address)
                if state is State.PROBING or endpoint.address in not_ready
                else None,
            )
            for endpoint, state in self._gate.states()
        )

    async def first_sync(self, timeout_seconds: float) -> bool:
        """Wait until every source of the start has a result and its endpoints have been probed once.

        Returns whether this came in time; later results apply when they come.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._synced.wait()
        except TimeoutError:
            return False
        return True

    def _is_unknown(self, key: Key) -> bool:
        running = self._running.get(key)
        return running is None or running.endpoints is None

    def _endpoints_of(self, pool: PoolSettings) -> Sequence[tuple[Endpoint, ...]]:
        endpoints = [self._running[key].endpoints or () for key in keys(pool) if key in self._running]
        return [*endpoints, self._retained.get(pool.name, ())]

    def _reconcile(self, *, initial: bool) -> None:
        pools_by_key = {key: pool for pool in self._settings.pools for key in keys(pool)}
        for key in [key for key in self._running if key not in pools_by_key]:
            running = self._running.pop(key)
            self._stop(running)
            pool = key[0]
            self._retained[pool] = (*self._retained.get(pool, ()), *(running.endpoints or ()))
        for key, pool_settings in pools_by_key.items():
            current = basis(pool_settings, key[1])
            running_before = self._running.get(key)
            if running_before is not None and running_before.basis == current:
                continue
            made = self._factory(pool_settings, key[1], self._metrics.sources)
            running = self._running[key] = RunningSource(made, current, initial=initial)
            if running_before is not None:
                self._stop(running_before)
                running.endpoints = running_before.endpoints
            running.task = asyncio.create_task(self._follow(key, running), name=made.source.name)
        # At the start, what is retained is the last good state.
        self._merge(trusted=initial)

    def _stop(self, running: RunningSource) -> None:
        running.made.trouble.close()
        if running.task is not None and not running.task.done():
            self._ending.add(running.task)
            running.task.add_done_callback(self._ending.discard)
            running.task.cancel()

    async def _follow(self, key: Key, running: RunningSource) -> None:
        def on_update(endpoints: tuple[Endpoint, ...]) -> None:
            if self._running.get(key) is running:
                self._take(running, endpoints)

        while True:
            try:
                await running.made.source.run(on_update)
            except Exception:  # the edge of a source: a fault of ours must not end discovery
                running.made.trouble.failed("a fault of Warmroute's own")
                logger.exception("%s failed and is run again", running.made.source.name)
            else:
                running.made.trouble.fine()
                return
            await asyncio.sleep(RESTART_SECONDS)

    def _take(self, running: RunningSource, endpoints: tuple[Endpoint, ...]) -> None:
        if endpoints == running.endpoints:
            return
        presumed: tuple[Endpoint, ...] = ()
        if running.initial:
            running.initial, presumed = False, endpoints
        running.endpoints = endpoints
        self._merge(presumed=presumed)

    def _merge(self, *, presumed: tuple[Endpoint, ...] = (), trusted: bool = False) -> None:
        pools = self._settings.pools
        waiting = {pool.name for pool in pools if any(self._is_unknown(key) for key in keys(pool))}
        self._retained = {name: kept for name, kept in self._retained.items() if name in waiting}
        self._restored_pools = self._restored_pools.intersection(self._retained)
        merged = merge(
            ((pool.name, self._endpoints_of(pool)) for pool in pools), self._settings.limits.endpoints
        )
        self._metrics.duplicates.set(merged.duplicates)
        self._metrics.over_limit.set(merged.over_limit)
        if merged.over_limit and not self._over_limit:
            logger.warning("%d endpoints over limits.endpoints are left out", merged.over_limit)
        self._over_limit = merged.over_limit
        restored = {e.address for kept in self._retained.values() for e in kept} if trusted else set[str]()
        models = {endpoint.address: endpoint.models for endpoint, _ in self._gate.states()}
        self._gate.update(
            merged.pools,
            {pool.name: pool.joining for pool in pools},
            self._clock(),
            presumed=frozenset(endpoint.address for endpoint in presumed),
            trusted=restored,
        )
        now = {endpoint.address: endpoint.models for endpoint, _ in self._gate.states()}
        current = now.keys()
        # Which names of the settings are one model depends on the settings too.
        renamed = {address for address in models.keys() & current if models[address] != now[address]}
        self._unlisted = (self._unlisted | restored | renamed) & current
        if self._prober is not None:
            self._prober.keep(current)
        self._update_sources()
        unprobed = {pool.name for pool in pools if pool.joining.probe == "none"}
        self._readiness.keep({e.address for e in self._gate.admitted_endpoints() if e.pool not in unprobed})
        self._probe()
        self._changed()

    def _update_sources(self) -> None:
        """Update the source of each endpoint; leaving ones, and those of removed sources, keep theirs."""
        endpoints = [
            (
                *((label(key[1]), self._running[key].endpoints or ()) for key in keys(pool)),
                (LAST_GOOD if pool.name in self._restored_pools else "", self._retained.get(pool.name, ())),
            )
            for pool in self._settings.pools
        ]
        current = {endpoint.address for endpoint, _ in self._gate.states()}
        before = {address: source for address, source in self._sources.items() if address in current}
        self._sources = before | source_by_address(endpoints)

    def _joining(self, endpoint: Endpoint) -> JoiningSettings:
        return next(pool.joining for pool in self._settings.pools if pool.name == endpoint.pool)

    def _probe(self) -> None:
        """Probe the endpoints that are not admitted yet, and the suspects."""
        if self._prober is not None:
            joining = {pool.name: pool.joining for pool in self._settings.pools}
            unlisted = [self._gate.admitted(address) for address in self._unlisted]
            suspected = [self._gate.admitted(address) for address in self._readiness.suspects()]
            probed = [
                *self._gate.probing(),
                *(e for e in unlisted if e is not None and joining[e.pool].probe == "models"),
                *(endpoint for endpoint in suspected if endpoint is not None),
            ]
            self._prober.update({e.address: (e, joining[e.pool]) for e in probed if e.pool in joining})

    def _on_probe(self, address: str, result: ProbeResult) -> bool:
        now = self._clock()
        if address in self._unlisted:
            self._unlisted.discard(address)
            self._stale = True  # The list may have names of one model.
        if self._gate.is_probing(address):
            if result in {ProbeResult.READY, ProbeResult.SILENT}:
                self._readiness.passed(address)
            if result is ProbeResult.NO_CONNECTION and self._reach.answered(address):
                # Envoys reach it: only this process does not.
                result = ProbeResult.UNKNOWN
            if self._gate.record(address, result, now):
                self._changed()
            return self._gate.is_probing(address)
        self._reach.probed(address, now, connected=result is not ProbeResult.NO_CONNECTION)
        if self._readiness.record(address, result, now):
            self._stale = True  # It may have restarted, with another list.
            self.on_change()
        return address in self._readiness.suspects()

    def _changed(self) -> None:
        self._stale = True
        if (
            all(running.endpoints is not None for running in self._running.values())
            and not self._gate.untried()
        ):
            self._synced.set()
        self.on_change()
