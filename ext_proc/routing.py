"""One request's way to its pick: request -> prompt -> pool -> prefix -> pick -> record."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from prometheus_client import Gauge
from xxhash import xxh3_64_intdigest

from ext_proc.pick import LoadColumns, Pick, PoolState, Question, Reason
from ext_proc.prefix.warmth import Warmth
from ext_proc.prompt.blocks import block_hashes, identity_of
from ext_proc.prompt.decode import Unreadable, read_prompt
from ext_proc.traffic import Token, TrafficCounter
from fleet.pick_table import ROW_OF, PickTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from prometheus_client import CollectorRegistry

    from ext_proc.request import RouteRequest
    from fleet.endpoint import Membership
    from fleet.settings import Settings
    from fleet.store import FleetView

_PLAIN = frozenset({"", "identity"})


class ViewSource(Protocol):
    """Whatever knows the newest view of the fleet: a `FleetStore`, near or far from xds_server."""

    @property
    def view(self) -> FleetView | None:
        """The newest view; None until the first full sync."""
        ...


class Router:
    """Chooses endpoints for requests and remembers what it sent where. Single-threaded."""

    def __init__(
        self,
        source: ViewSource,
        settings: Settings,
        registry: CollectorRegistry,
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._clock = clock
        self.settings = settings
        self.traffic = TrafficCounter(clock, settings.signals.latency_window_seconds)
        self.warmth = Warmth(settings.limits.index_blocks_per_endpoint)
        self._pools: dict[str, PoolState] = {}
        self._pool_of: dict[str, PoolState] = {}
        self._membership: Membership | None = None
        self._view: FleetView | None = None
        self._table: PickTable | None = None
        self._refreshed_at = 0.0
        self._index_limits: dict[str, int] = {}
        held = Gauge("warmroute_prefix_index_blocks", "Blocks held in the prefix index", registry=registry)
        held.set_function(lambda: sum(self.warmth.held(address) for address in self._pool_of))

    def route(self, request: RouteRequest) -> Pick:
        """Choose for one request: the one function that reads as its sentence."""
        if not self.follow():
            return Pick.none(Reason.NO_FLEET)
        if request.content_encoding.strip().lower() not in _PLAIN:
            return Pick.none(Reason.COMPRESSED)
        prompt = read_prompt(request.body, complete=request.complete)
        if isinstance(prompt, Unreadable):
            return Pick.none(Reason(prompt.value))
        pool = self._pool(request.cluster, prompt.model)
        if pool is None:
            return Pick.none(Reason.NO_POOL)
        if not pool.shape.addresses:
            return Pick.none(Reason.NO_ENDPOINT)
        # A prompt that was read from a cut body may lack a model that follows in the rest.
        model = pool.shape.model_of(prompt.model, complete=prompt.complete)
        picker = None if model is None else pool.picker(model)
        if model is None or picker is None:
            return Pick.none(Reason.UNKNOWN_MODEL)
        question, blocks = self._question(prompt.text, identity_of(model, prompt.salt), request)
        pick = picker.pick(question)
        if pick.endpoints:
            self._record(pool, pick, blocks, question.now)
        return pick

    def sampling_floor(self) -> float:
        """The least share of requests to trace now, as the fleet's view tells."""
        view = self._source.view
        return 0.0 if view is None else view.sampling_ratio_floor

    def started(self, pick: Pick) -> Token:
        """Count a request that is on its way to the first endpoint of its pick."""
        token = self.traffic.started(pick.endpoints[0])
        self._note_in_flight(token.address)
        return token

    def finished(self, token: Token) -> None:
        """Count it off, however it ended."""
        self.traffic.finished(token)
        self._note_in_flight(token.address)

    def reconfigure(self, settings: Settings) -> None:
        """Take over changed settings; blocks of another size, or more of them, make another index."""
        before, self.settings = self.settings, settings
        self.traffic.window_seconds = settings.signals.latency_window_seconds
        most = settings.limits.index_blocks_per_endpoint
        outgrown = most > before.limits.index_blocks_per_endpoint
        if outgrown or settings.ext_proc.pick.block_bytes != before.ext_proc.pick.block_bytes:
            self.warmth = Warmth(most, on_added=self.warmth.on_added)
        self._index_limits.clear()
        self._view = None

    def status(self) -> dict[str, Any]:
        """What the admin server shows: endpoints with their traffic and index size. No request's content."""
        seen = {entry.address: entry for entry in self.traffic.snapshot()}
        return {
            pool.shape.name: {
                address: {
                    "in_flight": self.traffic.in_flight(address),
                    "started_total": seen[address].started_total if address in seen else 0,
                    "duration_p99_seconds": seen[address].duration_p99_seconds if address in seen else None,
                    "index_blocks": self.warmth.held(address),
                }
                for address in pool.shape.addresses
            }
            for pool in self._pools.values()
        }

    def _question(self, text: bytes, identity: bytes, request: RouteRequest) -> tuple[Question, list[int]]:
        block_bytes = self.settings.ext_proc.pick.block_bytes
        blocks = block_hashes(
            text,
            identity=identity,
            block_bytes=block_bytes,
            max_blocks=self.settings.limits.prompt_blocks,
        )
        question = Question(
            leading_hash=blocks[0] if blocks else xxh3_64_intdigest(identity + text),
            blocks=len(blocks),
            text_bytes=len(text),
            matched=self.warmth.matched(blocks) if blocks else {},
            now=self._clock(),
            explain=request.explain,
        )
        return question, blocks

    def _record(self, pool: PoolState, pick: Pick, blocks: list[int], now: float) -> None:
        first = pick.endpoints[0]
        if blocks:
            self.warmth.record(first, blocks)
        pool.backlog.add(first, pick.cold_seconds, now)

    def _pool(self, cluster: str, model: str | None) -> PoolState | None:
        """Return the route's cluster, else the one pool that names the model, else the only pool."""
        if cluster:
            return self._pools.get(cluster)
        if len(self._pools) == 1:
            return next(iter(self._pools.values()))
        naming = [pool for pool in self._pools.values() if pool.shape.names(model)]
        return naming[0] if len(naming) == 1 else None

    def _note_in_flight(self, address: str) -> None:
        pool = self._pool_of.get(address)
        if pool is not None:
            pool.backlog.set_in_flight(address, self.traffic.in_flight(address), self._clock())

    def follow(self) -> bool:
        """Take over a new view; False as long as there is none. Cheap when nothing is new."""
        view = self._source.view
        if view is None:
            return False
        now = self._clock()
        stale_after = self.settings.signals.stale_after_seconds
        # A view that nobody replaces any more ages: its signals become unknown one by one.
        if view is self._view and now - self._refreshed_at < stale_after / 2:
            return True
        if view.membership is not self._membership:
            self._take_membership(view.membership)
        if view is not self._view or self._table is None:
            self._table = view.table or PickTable.of(view.membership.addresses, view.loads)
        signals = self._table.fresh(now, stale_after)
        pick, begin = self.settings.ext_proc.pick, 0
        for pool in self._pools.values():
            end = begin + len(pool.shape.addresses)
            columns = LoadColumns.of(
                pool.shape, signals[:, begin:end], view.weights, view.in_flight_elsewhere
            )
            pool.refresh(columns, pick, now)
            begin = end
        self._resize_index(view.membership.addresses, signals[ROW_OF["kv_capacity_tokens"]])
        self._view, self._refreshed_at = view, now
        return True

    def _take_membership(self, membership: Membership) -> None:
        for address in self._pool_of.keys() - membership.by_address.keys():
            self.warmth.forget(address)
            self._index_limits.pop(address, None)
        self.traffic.keep(membership.by_address.keys())
        in_flight = self.traffic.in_flight
        pools: dict[str, PoolState] = {}
        for pool in membership.pools:
            held = self._pools.get(pool.name) or PoolState(pool)
            pools[pool.name] = held if held.pool == pool else held.moved_to(pool, in_flight)
        self._pools = pools
        self._pool_of = {address: pool for pool in pools.values() for address in pool.shape.addresses}
        self._membership = membership
        for address in self._pool_of:
            self._note_in_flight(address)

    def _resize_index(self, addresses: tuple[str, ...], capacities: NDArray[np.float64]) -> None:
        """Give each endpoint as many blocks as its KV cache holds, as far as that is known."""
        pick, most = self.settings.ext_proc.pick, self.settings.limits.index_blocks_per_endpoint
        blocks = np.clip(capacities * (pick.cost.bytes_per_token / pick.block_bytes), 1, most)
        for address, fitting in zip(addresses, blocks.tolist(), strict=True):
            held = self._index_limits.get(address)
            limit = min(held or most, most) if isnan(fitting) else int(fitting)
            if held != limit:
                self.warmth.resize(address, limit)
                self._index_limits[address] = limit
