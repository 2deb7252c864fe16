"""The fleet of `bench.tick`, with the product's parts of a tick around it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from ext_proc.director.accuracy import Accuracy
from ext_proc.director.pools import Pools
from ext_proc.director.traffic import TrafficCounter
from ext_proc.prefix.warmth import Warmth
from fleet.codec import decode_loads
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.gpu.reading import GpuReading, NodeReading
from fleet.settings.load import parse_settings
from fleet.signals import SignalTable, valid_values
from fleet.store import FleetStore, FleetView, Traffic
from fleet.wire import control_pb2
from warmroute.replay.signal_path import SignalPath
from xds_server.access_log.finished import Finished
from xds_server.control.service import Broadcast
from xds_server.endpoints.fitness import asleep_of, unfit_of
from xds_server.envoy.build import build_snapshot
from xds_server.signals.gpu.reports import GpuBoard
from xds_server.skew.watch import SkewWatch
from xds_server.snapshot.snapshot import SnapshotStore
from xds_server.telemetry.exposition import EndpointExposition

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from fleet.settings import Settings

GPUS_A_NODE: Final = 8
REQUESTS_A_TICK: Final = 200
PARTS: Final = 4
"""A quarter of the pages and GPU reports is new in each tick: each is as old as a second."""


class Site:
    """A fleet at a moment, and what each part of a tick does with it."""

    def __init__(self, endpoints: int, pools: int, draw: random.Random, strategy: str = "headroom") -> None:
        self.now = 1000.0
        self._draw = draw
        names = [f"pool{number}" for number in range(pools)]
        self._membership = Membership(
            tuple(
                Pool(name, tuple(_endpoint(n, name) for n in range(number, endpoints, pools)))
                for number, name in enumerate(names)
            )
        )
        self._settings = _settings(self._membership, strategy)
        registry = CollectorRegistry()
        signals = self._settings.signals
        self._values: dict[str, dict[str, float]] = {}
        self._gpus = GpuBoard(signals, self._settings.weights.faults, registry)
        self._path = SignalPath(self._settings, self._membership, registry, self._gpus.signals)
        self._snapshots = SnapshotStore(16, registry)
        self._broadcast = Broadcast()
        self._skew = SkewWatch(self._settings.skew, signals, registry)
        self._sent = b""
        self._worker_store = FleetStore()
        self._pools = Pools(
            self._worker_store,
            self._settings,
            Warmth(4096),
            TrafficCounter(lambda: self.now, 10.0),
            lambda: self.now,
            Accuracy(registry),
        )
        self._signals = SignalTable.unknown(())
        self._view: FleetView | None = None

    def move(self, number: int) -> None:
        """Let a quarter of the pages and GPUs be new, and requests finish; none of it is measured."""
        draw, endpoints = self._draw, self._membership.endpoints
        self._values = {
            endpoint.address: _page(draw, number) for endpoint in endpoints[number % PARTS :: PARTS]
        }
        nodes = sorted({endpoint.node for endpoint in endpoints})
        for node in nodes[number % PARTS :: PARTS]:
            self._gpus.take(node, (), 1, _reading(draw, self.now))
        for endpoint in draw.choices(endpoints, k=REQUESTS_A_TICK):
            self._path.take(_finished(draw, endpoint), self.now)
        for worker in ("one", "two"):
            self._path.store.report(
                worker, [Traffic(e.address, draw.randrange(4), number, number, 1.0) for e in endpoints]
            )

    def pages(self) -> None:
        """Take the numbers of the pages that were read since the last tick."""
        for address, values in self._values.items():
            self._path.put(address, valid_values(values), self.now)

    def tick_parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the parts of a tick in their order."""
        yield "roster", self._take_roster
        yield "join", self._join
        yield "weights", self._weigh
        yield "snapshot", self._publish
        yield "wire", self._send
        yield "skew", self._look_for_skew

    def worker(self) -> None:
        """Read what was sent, as a worker does, up to the columns that picks read."""
        update = control_pb2.FleetUpdate.FromString(self._sent)
        self._worker_store.publish(decode_loads(update.loads, self._membership, self.now))
        self._pools.follow()

    def exposition(self) -> EndpointExposition:
        """Return what makes the metrics page."""
        return EndpointExposition(self._path.store, lambda: self.now)

    def _take_roster(self) -> None:
        oldest = self.now - self._settings.signals.stale_after_seconds
        pages = self._path.board.table()
        asleep_of(pages, oldest)
        unfit_of(pages, pages if self._view is None else self._view.signals, (), oldest)

    def _join(self) -> None:
        self._signals = self._path.join(self.now)

    def _weigh(self) -> None:
        self._update = self._path.weigh(self._signals, self.now)

    def _publish(self) -> None:
        update = self._update
        if update.changed:
            snapshot = build_snapshot(self._settings, self._membership, update.weights, update.unhealthy)
            self._snapshots.set(snapshot, None)

    def _send(self) -> None:
        self._view = self._path.publish(self._update, self._signals)
        self._broadcast.take(self._view)
        self._sent = self._broadcast.loads(self.now)

    def _look_for_skew(self) -> None:
        self._skew.observe(self._membership, self._signals, self.now)


def _endpoint(number: int, pool: str) -> Endpoint:
    node, gpu = divmod(number, GPUS_A_NODE)
    address = f"10.{node // 200}.{node % 200}.{gpu + 1}:8000"
    return Endpoint(address, pool, ("m",), "vllm", node=f"node{node}", gpus=(str(gpu),))


def _settings(membership: Membership, strategy: str) -> Settings:
    pools = [
        {"name": p.name, "endpoints": [{"address": e.address} for e in p.endpoints]} for p in membership.pools
    ]
    listener = {"name": "l", "address": "127.0.0.1:9", "pool": membership.pools[0].name}
    written = {"pools": pools, "listeners": [listener], "weights": {"strategy": strategy}}
    return parse_settings(json.dumps(written))


def _page(draw: random.Random, number: int) -> dict[str, float]:
    return {
        "memory_used_ratio": draw.uniform(0.2, 0.9),
        "queue_depth": draw.randrange(8),
        "running": draw.randrange(32),
        "latency_p50_seconds": draw.uniform(0.1, 0.3),
        "latency_p99_seconds": draw.uniform(0.5, 1.0),
        "prefix_hit_ratio": draw.random(),
        "kv_capacity_tokens": 400_000.0,
        "prefill_tokens_per_second": draw.uniform(8000, 12000),
        "prefilling_mean": draw.random(),
        "prompt_tokens_per_second": draw.uniform(8000, 12000),
        "generation_tokens_per_second": draw.uniform(800, 1200),
        "prompt_tokens_mean": draw.uniform(900, 1100),
        "prompt_tokens_variance": draw.uniform(900, 1100),
        "generation_tokens_mean": draw.uniform(200, 300),
        "preemptions_per_second": 0.0,
        "batch_limit": 256.0,
        "awake": 1.0,
        "progress_total": float(number),
        "reachable": 1.0,
    }


def _reading(draw: random.Random, now: float) -> NodeReading:
    gpus = tuple(
        GpuReading(
            uuid=f"GPU-{index}",
            index=index,
            memory_used_bytes=70 << 30,
            memory_total_bytes=80 << 30,
            utilisation_ratio=draw.random(),
            temperature_celsius=draw.uniform(50, 70),
            power_watts=draw.uniform(300, 600),
            power_limit_watts=700.0,
            clocks_reasons=frozenset(),
        )
        for index in range(GPUS_A_NODE)
    )
    return NodeReading(gpus=gpus, sampled_at=now)


def _finished(draw: random.Random, endpoint: Endpoint) -> Finished:
    return Finished(
        address=endpoint.address,
        picked=endpoint.address,
        cluster=endpoint.pool,
        request_id="",
        started_at=0.0,
        first_byte_seconds=draw.uniform(0.1, 0.5),
        duration_seconds=draw.uniform(1.0, 2.0),
        status=200,
        flags=(),
        attempts=1,
        metadata={},
    )
