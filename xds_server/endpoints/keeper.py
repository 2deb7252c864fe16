"""The membership as the sources, the probes and time make it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from fleet.endpoint import Membership
from xds_server.endpoints.factory import Key, Maker, Running, basis, keys, label
from xds_server.endpoints.gate import Gate, State, Verdict
from xds_server.endpoints.listed import Listed, noted
from xds_server.endpoints.merge import merge
from xds_server.endpoints.probe import Prober
from xds_server.endpoints.readiness import Readiness
from xds_server.endpoints.source import KeeperMetrics
from xds_server.endpoints.special import brought_back
from xds_server.signals.passive.reach import Reach
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Endpoint
    from fleet.settings import JoiningSettings, PoolSettings, Settings
    from xds_server.access_log.finished import Finished
    from xds_server.endpoints.factory import Factory
    from xds_server.tls.engine_tls import EngineTls

logger = logging.getLogger(__name__)

_CLIENT_ERROR: Final = 400
LAST_GOOD: Final = "last good"
"""What stands in for a source that has not been heard since the start."""
RESTART_SECONDS: Final = 5.0
"""Until a source that failed by our own fault is run again."""


class EndpointKeeper:
    """Runs the sources and probes, and says who is served. All calls come from one running event loop.

    `on_change` is called when the membership may have changed by what a source or probe said. What changes
    by time alone (the end of a drain, the ramp) shows at the next call of `membership` and `ramp`.
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
        """`reach` hears of probes and of clients' requests."""
        self._settings = settings
        self._reach = Reach() if reach is None else reach
        self._clock = clock
        self._factory = factory or Maker()
        self._engine_tls = engine_tls
        self._metrics = KeeperMetrics(registry)
        self._gate = Gate()
        self._readiness = Readiness()
        self._prober: Prober | None = None
        self._running: dict[Key, Running] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._retained: dict[str, tuple[Endpoint, ...]] = {}
        """By pool: stands in while a source of the pool has not been heard."""
        self._standing_in: frozenset[str] = frozenset()
        self._sources: dict[str, str] = {}
        self._membership = Membership()
        self._stale = True
        self._synced = asyncio.Event()
        self._over_limit = 0
        self.on_change: Callable[[], None] = lambda: None

    def stand_in(self, last_good: Membership) -> None:
        """Take the last good state; before `start` only."""
        self._retained = brought_back(last_good, self._settings.pools)
        self._standing_in = frozenset(self._retained)

    async def start(self) -> None:
        """Run the sources; what they tell comes in from now on."""
        self._prober = Prober(
            self._heard, engine_tls=self._engine_tls, page_bytes=self._settings.limits.metrics_page_bytes
        )
        self._reconcile(initial=True)

    async def close(self) -> None:
        """Stop sources and probes; the membership stays as it is."""
        for running in self._running.values():
            self._stop(running)
        self._running.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._prober is not None:
            await self._prober.close()
            self._prober = None

    def reconfigure(self, settings: Settings) -> None:
        """Take other settings. A source whose settings did not change goes on undisturbed.

        What a removed source found stays until every new source of its pool has been heard once.
        """
        self._settings = settings
        if self._prober is not None:
            self._reconcile(initial=False)

    def membership(self) -> Membership:
        """Who is served and who is leaving, in every pool; the same object while nothing changed."""
        if self._gate.advance(self._clock()):
            self._stale = True
        if self._stale:
            self._stale = False
            membership = Membership(self._gate.serving())
            if membership != self._membership:
                self._membership = membership
            for state, count in self._gate.counts().items():
                self._metrics.endpoints.labels(state.value).set(count)
        return self._membership

    def leaving(self) -> frozenset[str]:
        """Addresses of the membership that must get no new requests."""
        return self._gate.leaving()

    def not_ready(self) -> frozenset[str]:
        """Addresses whose probe has to pass before they are sent anything new: its newest word was no."""
        return self._readiness.not_ready() | self._gate.refused()

    def kept_out(self) -> frozenset[str]:
        """Those of them that get nothing new: the probe of another one of their pool passes."""
        return self._readiness.kept_out(self._gate.let_in()) | self._gate.refused()

    def judge(self, unfit: frozenset[str]) -> None:
        """Take who would not serve now: where that is all who are let in, everybody found is served."""
        if self._gate.judge(unfit):
            self._stale = True

    def doubt(self, address: str, refused: bool) -> None:  # noqa: FBT001 - a callback's
        """Take a sign that an engine has restarted or fails (see `Readiness.doubt`); it is probed anew."""
        endpoint = self._gate.admitted(address)
        if endpoint is None or self._joining(endpoint).probe == "none":
            return
        if self._readiness.doubt(address, self._clock(), refused=refused):
            self._probe()
            self.on_change()

    def note(self, finished: Finished) -> None:
        """Take what an Envoy tells of a client's request: whether the engine answered it well."""
        self._reach.note(finished, self._clock())
        if finished.retried_away:
            self.doubt(finished.picked, refused=False)
        if finished.faulty:
            self.doubt(finished.address, refused=False)
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
        """Address to the factor of its weight, for those in slow start (below 1)."""
        return self._gate.ramp(now)

    def unknown_pools(self) -> frozenset[str]:
        """Pools of which nothing is known yet. They are not empty: Envoys keep what they have."""
        return frozenset(
            pool.name
            for pool in self._settings.pools
            if any(self._unheard(key) for key in keys(pool)) and not any(self._found(pool))
        )

    def standing_in(self) -> frozenset[str]:
        """Pools in which the last good state stands in for a source that has not been heard."""
        return self._standing_in

    def source_of(self, address: str) -> str:
        """The source that told an endpoint of the membership, as `Listed.source` has it."""
        return self._sources.get(address, "")

    def listed(self) -> tuple[Listed, ...]:
        """Everybody who is found or leaving, served or not."""
        ramp = self.ramp(self._clock())
        refusals = {} if self._prober is None else self._prober.refusals
        not_ready = self._readiness.not_ready()
        return tuple(
            Listed(
                endpoint,
                "ramp" if endpoint.address in ramp and state is State.ADMITTED else state.value,
                self.source_of(endpoint.address),
                # A doubt alone keeps nobody out.
                refusals.get(endpoint.address)
                if state is State.PROBING or endpoint.address in not_ready
                else None,
            )
            for endpoint, state in self._gate.standing()
        )

    async def first_sync(self, timeout_seconds: float) -> bool:
        """Wait until every source of the start is heard and who they told has been probed once.

        Returns whether that came in time; what comes later is taken then.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._synced.wait()
        except TimeoutError:
            return False
        return True

    def _unheard(self, key: Key) -> bool:
        running = self._running.get(key)
        return running is None or running.found is None

    def _found(self, pool: PoolSettings) -> Sequence[tuple[Endpoint, ...]]:
        told = [self._running[key].found or () for key in keys(pool) if key in self._running]
        return [*told, self._retained.get(pool.name, ())]

    def _reconcile(self, *, initial: bool) -> None:
        wanted = {key: pool for pool in self._settings.pools for key in keys(pool)}
        for key in [key for key in self._running if key not in wanted]:
            running = self._running.pop(key)
            self._stop(running)
            pool = key[0]
            self._retained[pool] = (*self._retained.get(pool, ()), *(running.found or ()))
        for key, pool_settings in wanted.items():
            current = basis(pool_settings, key[1])
            running_before = self._running.get(key)
            if running_before is not None and running_before.basis == current:
                continue
            made = self._factory(pool_settings, key[1], self._metrics.sources)
            running = self._running[key] = Running(made, current, initial=initial)
            if running_before is not None:
                self._stop(running_before)
                running.found = running_before.found
            running.task = asyncio.create_task(self._follow(key, running), name=made.source.name)
        # At the start, what is retained is the last good state.
        self._merge(trusted=initial)

    def _stop(self, running: Running) -> None:
        running.made.trouble.close()
        if running.task is not None and not running.task.done():
            self._ending.add(running.task)
            running.task.add_done_callback(self._ending.discard)
            running.task.cancel()

    async def _follow(self, key: Key, running: Running) -> None:
        def found(endpoints: tuple[Endpoint, ...]) -> None:
            if self._running.get(key) is running:
                self._take(running, endpoints)

        while True:
            try:
                await running.made.source.run(found)
            except Exception:  # the edge of a source: a fault of ours must not end discovery
                running.made.trouble.failed("a fault of Warmroute's own")
                logger.exception("%s failed and is run again", running.made.source.name)
            else:
                running.made.trouble.fine()
                return
            await asyncio.sleep(RESTART_SECONDS)

    def _take(self, running: Running, endpoints: tuple[Endpoint, ...]) -> None:
        if endpoints == running.found:
            return
        presumed: tuple[Endpoint, ...] = ()
        if running.initial:
            running.initial, presumed = False, endpoints
        running.found = endpoints
        self._merge(presumed=presumed)

    def _merge(self, *, presumed: tuple[Endpoint, ...] = (), trusted: bool = False) -> None:
        pools = self._settings.pools
        waiting = {pool.name for pool in pools if any(self._unheard(key) for key in keys(pool))}
        self._retained = {name: kept for name, kept in self._retained.items() if name in waiting}
        self._standing_in = self._standing_in.intersection(self._retained)
        merged = merge(((pool.name, self._found(pool)) for pool in pools), self._settings.limits.endpoints)
        self._metrics.duplicates.set(merged.duplicates)
        self._metrics.over_limit.set(merged.over_limit)
        if merged.over_limit and not self._over_limit:
            logger.warning("%d endpoints over limits.endpoints are left out", merged.over_limit)
        self._over_limit = merged.over_limit
        self._gate.update(
            merged.pools,
            {pool.name: pool.joining for pool in pools},
            self._clock(),
            presumed=frozenset(endpoint.address for endpoint in presumed),
            trusted={e.address for kept in self._retained.values() for e in kept} if trusted else (),
        )
        self._note_sources()
        unprobed = {pool.name for pool in pools if pool.joining.probe == "none"}
        self._readiness.keep({e.address for e in self._gate.let_in() if e.pool not in unprobed})
        self._probe()
        self._changed()

    def _note_sources(self) -> None:
        """Remember who told whom; those who leave, or were told by a source that is gone, keep their note."""
        told = [
            (
                *((label(key[1]), self._running[key].found or ()) for key in keys(pool)),
                (LAST_GOOD if pool.name in self._standing_in else "", self._retained.get(pool.name, ())),
            )
            for pool in self._settings.pools
        ]
        held = {endpoint.address for endpoint, _ in self._gate.standing()}
        before = {address: source for address, source in self._sources.items() if address in held}
        self._sources = before | noted(told)

    def _joining(self, endpoint: Endpoint) -> JoiningSettings:
        return next(pool.joining for pool in self._settings.pools if pool.name == endpoint.pool)

    def _probe(self) -> None:
        """Ask those who have yet to be let in, and those in doubt."""
        if self._prober is not None:
            doubted = [self._gate.admitted(address) for address in self._readiness.in_doubt()]
            asked = [*self._gate.probing(), *(endpoint for endpoint in doubted if endpoint is not None)]
            joining = {pool.name: pool.joining for pool in self._settings.pools}
            self._prober.update({e.address: (e, joining[e.pool]) for e in asked if e.pool in joining})

    def _heard(self, address: str, verdict: Verdict) -> bool:
        now = self._clock()
        if self._gate.is_probing(address):
            if verdict in {Verdict.READY, Verdict.SILENT}:
                self._readiness.passed(address)
            if self._gate.heard(address, verdict, now):
                self._changed()
            return self._gate.is_probing(address)
        self._reach.probed(address, now, connected=verdict is not Verdict.NO_CONNECTION)
        if self._readiness.heard(address, verdict, now):
            self.on_change()
        return address in self._readiness.in_doubt()

    def _changed(self) -> None:
        self._stale = True
        if all(running.found is not None for running in self._running.values()) and not self._gate.untried():
            self._synced.set()
        self.on_change()
