"""The fleet for picks: pools that follow the newest view, and their warm endpoints."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick import LoadColumns, PoolState
from ext_proc.prefix.index import DepthColumn
from fleet.columns import memory_that_counts
from fleet.ranks import address_of_rank, rank_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from ext_proc.director.accuracy import Accuracy
    from ext_proc.director.traffic import TrafficCounter
    from ext_proc.pick.first_token import SentRequest
    from ext_proc.prefix.warmth import Warmth
    from ext_proc.protocol.endpoint_picker import ViewSource
    from fleet.endpoint import Membership
    from fleet.settings import Settings
    from fleet.signals import SignalTable
    from fleet.store import FleetView

RESTARTED_BELOW: Final = 0.5
"""An engine whose counters fall below this share of their last values has restarted."""


class Restarts:
    """Detects engines that have lost their caches with their process.

    Their counters have fallen, or they refused connections and answer again. Both are signals.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, bool]] = {}
        """By address: the newest progress, and whether it was unreachable."""

    def update(
        self, addresses: Iterable[str], progress: NDArray[np.float64], reachable: NDArray[np.float64]
    ) -> list[str]:
        """Return the endpoints that restarted since the last tick; unknown signals are NaN."""
        restarted = []
        last = self._last
        for address, total, answers in zip(addresses, progress.tolist(), reachable.tolist(), strict=True):
            before, was_away = last.get(address, (0.0, False))
            away = was_away if isnan(answers) else answers == 0
            if (was_away and not away) or total < RESTARTED_BELOW * before:
                restarted.append(address)
            progress_now = before if isnan(total) else total
            if (progress_now, away) != (before, was_away):
                last[address] = (progress_now, away)
        return restarted

    def keep(self, addresses: Iterable[str]) -> None:
        """Forget all other endpoints."""
        kept = set(addresses)
        self._last = {address: state for address, state in self._last.items() if address in kept}

    def forget(self, address: str) -> None:
        """Forget an engine's last signals."""
        self._last.pop(address, None)


class Pools:
    """Follows a source of views. Single-threaded."""

    def __init__(
        self,
        source: ViewSource,
        settings: Settings,
        warmth: Warmth,
        traffic: TrafficCounter,
        clock: Callable[[], float],
        accuracy: Accuracy,
    ) -> None:
        self._source = source
        self._settings = settings
        self._warmth = warmth
        self._traffic = traffic
        self._clock = clock
        self._accuracy = accuracy
        self._pools: dict[str, PoolState] = {}
        self._pool_of: dict[str, PoolState] = {}
        self._columns: dict[str, DepthColumn] = {}
        self._membership: Membership | None = None
        self._ranks: dict[str, int] = {}
        """Ranks of each endpoint, by pool, where picks choose among them."""
        self._view: FleetView | None = None
        self._refreshed_at = 0.0
        self._index_limits: dict[str, int] = {}
        self._restarts = Restarts()

    def follow(self) -> bool:
        """Apply a new view; False as long as there is none. Cheap without a new one."""
        view = self._source.view
        if view is None:
            return False
        now = self._clock()
        stale_after = self._settings.signals.stale_after_seconds
        # The signals of a view that is not replaced become stale, and then unknown.
        if view is self._view and now - self._refreshed_at < stale_after / 2:
            return True
        ranks = {name: of_pool.count for name, of_pool in view.ranks.items()} if view.ranks else {}
        if view.membership is not self._membership or ranks != self._ranks:
            self._ranks = ranks
            self._take_membership(view.membership, now)
        signals = view.signals.fresh(now - stale_after)
        kv, gpu = signals["memory_used_ratio"], signals["gpu_memory_used_ratio"]
        memory = memory_that_counts(self._settings.weights.memory, kv, gpu)
        self._take_signals(view, signals.with_row("memory_used_ratio", memory), now)
        self._view, self._refreshed_at = view, now
        return True

    def find(self, cluster: str, model: str | None) -> PoolState | None:
        """Return the pool of the route's cluster, the only pool, or the only one with the model."""
        if cluster:
            return self._pools.get(cluster)
        if len(self._pools) == 1:
            return next(iter(self._pools.values()))
        naming = [pool for pool in self._pools.values() if pool.shape.names(model)]
        return naming[0] if len(naming) == 1 else None

    def get(self, name: str) -> PoolState | None:
        """Return a pool by its name."""
        return self._pools.get(name)

    def column(self, pool: PoolState) -> DepthColumn:
        """Return the look-up of a pool's warm endpoints."""
        return self._columns[pool.shape.name]

    def __iter__(self) -> Iterator[PoolState]:
        return iter(self._pools.values())

    def columns_of(self, address: str) -> tuple[str, ...]:
        """Return the names of an endpoint's columns: its own, or those of its ranks."""
        pool = self._pool_of.get(address)
        return (address,) if pool is None else pool.shape.columns_of(address)

    def __contains__(self, address: str) -> bool:
        return address in self._pool_of

    @property
    def addresses(self) -> Iterable[str]:
        """Every endpoint, and the names of ranks."""
        return self._pool_of.keys()

    def note_in_flight(self, address: str, now: float | None = None) -> None:
        """Update the number of requests in flight to an endpoint."""
        pool = self._pool_of.get(address)
        if pool is not None:
            now = self._clock() if now is None else now
            pool.backlog.set_in_flight(address, self._traffic.in_flight(address), now)

    def note_end(self, address: str, sent: SentRequest | None) -> None:
        """Note the end of a request with what `PoolState.book` has returned for it."""
        pool = self._pool_of.get(address)
        if pool is not None:
            now = self._clock()
            if sent is not None:
                pool.ended(address, sent, now)
            pool.backlog.set_in_flight(address, self._traffic.in_flight(address), now)

    def put_off_trial(self, address: str) -> None:
        """Delay the trial of an endpoint that has just refused a request."""
        pool = self._pool_of.get(address)
        if pool is not None:
            pool.put_off_trial(address, self._clock())

    def emptied(self, address: str, rank: int = 0) -> None:
        """Forget the cache of an engine, or of one of its ranks, that has dropped it, but not its size."""
        if (pool := self._pool_of.get(address)) is None:
            return
        name = rank_name(address, rank) if pool.shape.ranks > 1 else address
        self._warmth.forget(name)
        if (limit := self._index_limits.get(name)) is not None:
            self._warmth.index.resize(name, limit)

    def reconfigure(self, settings: Settings, warmth: Warmth) -> None:
        """Apply changed settings, and a new `Warmth`."""
        self._settings = settings
        if warmth is not self._warmth:
            self._warmth = warmth
            self._membership = None
        self._index_limits.clear()
        self._view = None

    def _take_signals(self, view: FleetView, signals: SignalTable, now: float) -> None:
        pick, begin = self._settings.ext_proc.pick, 0
        shared = bool(self._settings.ext_proc.shared.url.get_secret_value())
        for pool in self._pools.values():
            end = begin + len(pool.shape.endpoints)
            columns = LoadColumns.of(
                pool.shape,
                signals.part(begin, end),
                view.weights,
                view.in_flight_elsewhere,
                view.prefill_elsewhere,
                view.overridden,
            )
            if pool.shape.ranks > 1:
                columns = columns.by_rank(pool.shape, view.ranks[pool.shape.name])
            answers = pool.refresh(columns, pick, now, shared=shared)
            if answers is not None:
                self._accuracy.answered(pool.shape.name, answers)
            begin = end
        addresses = view.membership.addresses
        progress, reachable = signals["progress_total"], signals["reachable"]
        for address in self._restarts.update(addresses, progress, reachable):
            pool = self._pool_of[address]
            pool.forget(address)
            for name in pool.shape.columns_of(address):
                self._warmth.forget(name)
                self._index_limits.pop(name, None)
        for pool in self._pools.values():
            assert pool.columns is not None
            self._resize_index(pool.shape.addresses, pool.columns.signal("kv_capacity_tokens"))
        for address in self._warmth.expire(now):
            self._restarts.forget(address)
            self._index_limits.pop(address, None)

    def _take_membership(self, membership: Membership, now: float) -> None:
        in_flight = self._traffic.in_flight
        pools: dict[str, PoolState] = {}
        for pool in membership.pools:
            ranks = self._ranks.get(pool.name, 1)
            state = self._pools.get(pool.name) or PoolState(pool, ranks)
            same = state.pool == pool and state.shape.ranks == ranks
            pools[pool.name] = state if same else state.moved_to(pool, in_flight, ranks)
        members = {name for pool in pools.values() for name in pool.shape.addresses}
        for name in members - self._pool_of.keys():
            # A returning endpoint may have been forgotten with its size.
            self._index_limits.pop(name, None)
        self._warmth.keep(members, now)
        # An endpoint that may return with its warmth may have restarted meanwhile.
        self._restarts.keep({*membership.by_address, *map(address_of_rank, self._warmth.leaving)})
        self._traffic.keep(members)
        self._pools = pools
        self._pool_of = {name: pool for pool in pools.values() for name in pool.shape.endpoints}
        self._pool_of |= {name: pool for pool in pools.values() for name in pool.shape.addresses}
        self._columns = {
            pool.shape.name: DepthColumn(self._warmth.index, pool.shape.addresses) for pool in pools.values()
        }
        self._membership = membership
        for address in self._traffic.busy():
            self.note_in_flight(address)

    def _resize_index(self, addresses: tuple[str, ...], capacities: NDArray[np.float64]) -> None:
        """Limit each endpoint's blocks to its KV cache, if its size is known."""
        pick, most = self._settings.ext_proc.pick, self._settings.limits.index_blocks_per_endpoint
        blocks = np.clip(capacities * (pick.cost.bytes_per_token / pick.block_bytes), 1, most)
        for address, fitting in zip(addresses, blocks.tolist(), strict=True):
            before = self._index_limits.get(address)
            limit = min(before or most, most) if isnan(fitting) else int(fitting)
            if before != limit:
                self._warmth.index.resize(address, limit)
                self._index_limits[address] = limit
