"""KV events of a whole service: follows the membership, holds sockets and readers, answers routing.

Nothing of the extra `kv-events` is imported before a pool has a tokenizer. If the extra is missing or a
tokenizer's file is wrong, that is logged once, and routing looks up token ids only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ext_proc.kv.lookup import KvLookup
from ext_proc.kv.metrics import KvMetrics
from ext_proc.kv.sequence import MAX_BYTES
from ext_proc.kv.subscriber import Limits, RankSubscriber
from ext_proc.kv.view import STALE_CAUSES, Freshness, KvView
from fleet.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import CollectorRegistry

    from ext_proc.kv.tokens import PoolReader
    from fleet.endpoint import Endpoint, KvEventSource, Membership
    from fleet.service.admin import Query
    from fleet.settings import Settings
    from fleet.store import FleetStore

logger = logging.getLogger(__name__)

REPLAYS_AT_ONCE: Final = 4
QUEUED_BYTES: Final = 128 * 1024 * 1024
"""Of waiting messages, over all publishers, in equal parts. A queue below its part takes one more message,
whatever its size."""
FAULT_LOG_INTERVAL_SECONDS: Final = 60.0


class KvEvents:
    """Everything about KV events in one ext_proc worker."""

    def __init__(
        self,
        settings: Settings,
        store: FleetStore,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self.view = KvView(settings.limits.index_blocks_per_endpoint, clock)
        self.lookup = KvLookup(self.view, clock, settings.limits.prompt_blocks)
        self._metrics = KvMetrics(registry)
        for state in Freshness:
            gauge = self._metrics.endpoints.labels(state.value)
            gauge.set_function(lambda state=state: self._count(state))  # type: ignore[misc]
        for cause in STALE_CAUSES:
            gauge = self._metrics.stale.labels(cause)
            gauge.set_function(lambda cause=cause: self._count_stale(cause))  # type: ignore[misc]
        self._metrics.blocks.set_function(self._blocks)
        self._sources: dict[str, KvEventSource] = {}
        self._subscribers: dict[str, list[asyncio.Task[None]]] = {}
        self._readers: dict[tuple[Path, Path | None], PoolReader | None] = {}
        self._turns = Turns(clock)
        self._replays = asyncio.Semaphore(REPLAYS_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting = asyncio.Event()
        """Set while a reader has text to tokenise off the loop."""
        self._left = asyncio.Event()
        """Set while there is something to sweep of endpoints that left."""
        self._quiet_until = float("-inf")

    async def start(self) -> None:
        """Begin to follow the fleet."""
        self._tasks.append(asyncio.create_task(self._follow(), name="kv events"))
        self._tasks.append(asyncio.create_task(self._tokenise(), name="kv tokenise"))
        self._tasks.append(asyncio.create_task(self._sweep(), name="kv sweep"))

    async def apply(self, settings: Settings) -> None:
        """Take over changed settings; a tokenizer's files are read again only if their paths changed."""
        self._settings = settings
        self.view.index.limit = settings.limits.index_blocks_per_endpoint
        self.lookup.most_blocks = settings.limits.prompt_blocks
        view = self._store.view
        if view is not None:
            await self.follow(view.membership)

    async def stop(self) -> None:
        """End everything."""
        await _cancel(self._tasks)
        for address in list(self._sources):
            await self._leave(address)

    def status(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield plain data for `/api/v1/kv_events`, of each endpoint when its turn comes."""
        for address in list(self._sources):
            if address in self._sources:
                yield address, self.view.status(address)

    def query(self, query: Query) -> Mapping[str, Any]:
        """Return the part of `/api/v1/decisions` about an endpoint; nothing for one without KV events."""
        if query.endpoint not in self._sources:
            return {}
        return {"kv_events": [{"endpoint": query.endpoint, **self.view.status(query.endpoint)}]}

    async def follow(self, membership: Membership) -> None:
        """Match sockets and readers to the membership."""
        publishing = {e.address: e for e in membership.endpoints if e.kv_events is not None}
        for address, source in list(self._sources.items()):
            if address not in publishing or publishing[address].kv_events != source:
                await self._leave(address)
        for address, endpoint in publishing.items():
            if address not in self._sources:
                self._join(endpoint)
        self._share_queue()
        self.lookup.keep_pools(pool.name for pool in membership.pools)
        for pool in membership.pools:
            addresses = [e.address for e in pool.endpoints if e.address in self._sources]
            reader = await self._reader(pool.name) if addresses else None
            self.lookup.set_pool(pool.name, addresses, reader, [e.models for e in pool.endpoints])

    def _join(self, endpoint: Endpoint) -> None:
        source = endpoint.kv_events
        assert source is not None
        host = endpoint.address.rpartition(":")[0].strip("[]")
        trackers = self.view.add(endpoint.address, ranks=source.ranks, replayable=source.replay_port > 0)
        self._sources[endpoint.address] = source
        more = Limits(self._turns, self._replays), self._metrics, self._clock
        self._subscribers[endpoint.address] = [
            asyncio.create_task(
                RankSubscriber(host, source, rank, tracker, *more).run(),
                name=f"kv events {endpoint.address} {rank}",
            )
            for rank, tracker in enumerate(trackers)
        ]

    def _share_queue(self) -> None:
        """Limit all publishers' queues together to `QUEUED_BYTES`."""
        trackers = [tracker for address in self._sources for tracker in self.view.trackers(address)]
        limit = min(MAX_BYTES, QUEUED_BYTES // max(1, len(trackers)))
        for tracker in trackers:
            tracker.sequence.limit_bytes = limit

    async def _leave(self, address: str) -> None:
        await _cancel(self._subscribers.pop(address, []))
        self._sources.pop(address, None)
        self.view.forget(address)
        self._left.set()

    async def _reader(self, pool_name: str) -> PoolReader | None:
        pool = next((pool for pool in self._settings.pools if pool.name == pool_name), None)
        if pool is None or pool.tokenizer is None:
            return None
        paths = Path(pool.tokenizer), Path(pool.chat_template) if pool.chat_template else None
        if paths in self._readers:
            return self._readers[paths]
        reader = None
        try:
            reader = await asyncio.to_thread(_load, *paths)
            reader.on_waiting = self._waiting.set
        # The libraries raise classes of their own, or bare exceptions: the files are wrong.
        except Exception as error:  # noqa: BLE001 - the edge to other people's files, logged
            missing = isinstance(error, ImportError)
            cause = "a tokenizer needs the extra kv-events" if missing else "tokenizer not usable"
            logger.warning("pool %s: %s (%s): only token ids are looked up", pool_name, cause, error)
        self._readers[paths] = reader
        return reader

    async def _follow(self) -> None:
        view, membership = None, None
        while True:
            view = await self._store.changed(view)
            if view.membership is not membership:
                try:
                    await self.follow(view.membership)
                except Exception as error:  # noqa: BLE001 - the task must not end; the next view tries again
                    self._note(error)
                else:
                    membership = view.membership

    async def _sweep(self) -> None:
        """Free the memory of endpoints that left, in small steps."""
        while True:
            await self._left.wait()
            if not self.view.index.sweep():
                self._left.clear()
            await asyncio.sleep(0)

    async def _tokenise(self) -> None:
        """Tokenise long texts off the loop, for the next request that has them."""
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            for reader in list(self._readers.values()):
                while reader is not None and (segments := reader.take_waiting()):
                    await self._tokenise_batch(reader, segments)

    async def _tokenise_batch(self, reader: PoolReader, segments: list[str]) -> None:
        """Tokenise a batch; if it fails, each text by itself."""
        try:
            reader.keep(segments, await asyncio.to_thread(reader.tokenise, segments))
        except Exception as error:  # noqa: BLE001 - the edge to a tokenizer; the task must not end
            self._note(error)
            if len(segments) == 1:
                reader.drop(segments[0])
                return
            for segment in segments:
                await self._tokenise_batch(reader, [segment])

    def _note(self, error: Exception) -> None:
        """Count a fault, and log one a minute by its class: its words may contain a prompt."""
        self._metrics.counters["failed"].inc()
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + FAULT_LOG_INTERVAL_SECONDS
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.error("KV events: %s at %s:%s", type(error).__name__, place.filename, place.lineno)

    def _count(self, state: Freshness) -> int:
        return sum(1 for address in self._sources if self.view.freshness(address) is state)

    def _count_stale(self, cause: str) -> int:
        return sum(1 for address in self._sources if self.view.judge(address).stale_by == cause)

    def _blocks(self) -> int:
        trackers = (tracker for address in self._sources for tracker in self.view.trackers(address))
        return sum(len(tracker.slot.blocks) for tracker in trackers)


def _load(tokenizer: Path, chat_template: Path | None) -> PoolReader:
    from ext_proc.kv.tokens import PoolReader  # noqa: PLC0415 (needs an extra, and takes long)

    return PoolReader.load(tokenizer, chat_template)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
