"""KV events of a whole service: follows the membership, holds sockets and readers, answers routing.

Nothing of the extra `kv-events` is imported before a pool has a tokenizer. Where the extra is missing, or a
tokenizer's file is wrong, that is logged once and of texts routing goes by its own estimate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ext_proc.kv.lookup import KvLookup, PromptReader
from ext_proc.kv.metrics import KvMetrics
from ext_proc.kv.sequence import MAX_BYTES
from ext_proc.kv.subscriber import RankSubscriber
from ext_proc.kv.view import Freshness, KvView
from fleet.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from ext_proc.kv.tokens import PoolReader
    from fleet.endpoint import Endpoint, KvEventSource, Membership
    from fleet.settings import Settings
    from fleet.store import FleetStore

logger = logging.getLogger(__name__)

REPLAYS_AT_ONCE: Final = 4
QUEUED_BYTES: Final = 128 * 1024 * 1024
"""Of messages that wait, over all publishers: each has an equal part. A queue that has less than its part
takes one more message, whatever its size."""
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
        self._metrics = KvMetrics.of(registry)
        for state in Freshness:
            gauge = self._metrics.endpoints.labels(state.value)
            gauge.set_function(lambda state=state: self._count(state))  # type: ignore[misc]
        self._metrics.blocks.set_function(self._held)
        self._sources: dict[str, KvEventSource] = {}
        self._subscribers: dict[str, list[asyncio.Task[None]]] = {}
        self._readers: dict[tuple[Path, Path | None], PoolReader | None] = {}
        self._turns = Turns(clock)
        self._replays = asyncio.Semaphore(REPLAYS_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting = asyncio.Event()
        """Set while a reader has text to tokenise off the loop."""
        self._left = asyncio.Event()
        """Set while there is something to sweep of those who left."""
        self._quiet_until = float("-inf")

    async def start(self) -> None:
        """Begin to follow the fleet."""
        self._tasks.append(asyncio.create_task(self._follow(), name="kv events"))
        self._tasks.append(asyncio.create_task(self._tokenise(), name="kv tokenise"))
        self._tasks.append(asyncio.create_task(self._sweep(), name="kv sweep"))

    async def apply(self, settings: Settings) -> None:
        """Take over changed settings; files of tokenizers are read anew only where their paths changed."""
        self._settings = settings
        self.view.index.limit = settings.limits.index_blocks_per_endpoint
        self.lookup.most_blocks = settings.limits.prompt_blocks
        view = self._store.view
        if view is not None:
            await self.follow(view.membership)

    async def stop(self) -> None:
        """End everything."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for address in list(self._sources):
            await self._leave(address)

    def status(self) -> Mapping[str, Any]:
        """What the admin server shows, by endpoint."""
        return {
            address: {
                "freshness": self.view.freshness(address).value,
                "blocks": sum(len(tracker.slot.blocks) for tracker in self.view.trackers(address)),
                "block_tokens": max((t.slot.block_tokens for t in self.view.trackers(address)), default=0),
                "ranks": len(self.view.trackers(address)),
            }
            for address in self._sources
        }

    async def follow(self, membership: Membership) -> None:
        """Bring sockets and readers in step with who is there."""
        wanted = {e.address: e for e in membership.endpoints if e.kv_events is not None}
        for address, source in list(self._sources.items()):
            if address not in wanted or wanted[address].kv_events != source:
                await self._leave(address)
        for address, endpoint in wanted.items():
            if address not in self._sources:
                self._join(endpoint)
        self._share_queue()
        self.lookup.keep_pools(pool.name for pool in membership.pools)
        for pool in membership.pools:
            followed = [e.address for e in pool.endpoints if e.address in self._sources]
            reader = await self._reader(pool.name) if followed else None
            self.lookup.set_pool(pool.name, followed, reader, [e.models for e in pool.endpoints])

    def _join(self, endpoint: Endpoint) -> None:
        source = endpoint.kv_events
        assert source is not None
        host = endpoint.address.rpartition(":")[0].strip("[]")
        trackers = self.view.add(endpoint.address, ranks=source.ranks, replayable=source.replay_port > 0)
        self._sources[endpoint.address] = source
        self._subscribers[endpoint.address] = [
            asyncio.create_task(
                RankSubscriber(
                    host,
                    source.port + rank,
                    source.replay_port + rank if source.replay_port else 0,
                    source.topic,
                    tracker,
                    self._turns,
                    self._replays,
                    self._metrics,
                    self._clock,
                ).run(),
                name=f"kv events {endpoint.address} {rank}",
            )
            for rank, tracker in enumerate(trackers)
        ]

    def _share_queue(self) -> None:
        """Let all publishers' queues together take `QUEUED_BYTES`."""
        trackers = [tracker for address in self._sources for tracker in self.view.trackers(address)]
        limit = min(MAX_BYTES, QUEUED_BYTES // max(1, len(trackers)))
        for tracker in trackers:
            tracker.sequence.limit_bytes = limit

    async def _leave(self, address: str) -> None:
        for task in self._subscribers.pop(address, []):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._sources.pop(address, None)
        self.view.forget(address)
        self._left.set()

    async def _reader(self, pool_name: str) -> PromptReader:
        from ext_proc.kv.tokens import IdsReader, PoolReader  # noqa: PLC0415 (may need an extra)

        pool = next((pool for pool in self._settings.pools if pool.name == pool_name), None)
        if pool is None or pool.tokenizer is None:
            return IdsReader()
        paths = Path(pool.tokenizer), Path(pool.chat_template) if pool.chat_template else None
        if paths not in self._readers:
            try:
                loaded = await asyncio.to_thread(PoolReader.load, *paths)
                loaded.on_waiting = self._waiting.set
                self._readers[paths] = loaded
            except ImportError as error:
                logger.warning(
                    "pool %s: a tokenizer needs the extra kv-events (%s): only token ids count",
                    pool_name, error,
                )  # fmt: skip
                self._readers[paths] = None
            # The libraries raise classes of their own, or bare exceptions: the files are wrong.
            except Exception as error:  # noqa: BLE001 - the edge to other people's files, logged
                logger.warning("pool %s: tokenizer not usable (%s): only token ids count", pool_name, error)
                self._readers[paths] = None
        return self._readers[paths] or IdsReader()

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
        """Free the memory of those who left, a little at a time."""
        while True:
            await self._left.wait()
            if not self.view.index.sweep():
                self._left.clear()
            await asyncio.sleep(0)

    async def _tokenise(self) -> None:
        """Make the tokens of long texts off the loop, for the next request that has them."""
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            for reader in list(self._readers.values()):
                while reader is not None and (segments := reader.take_waiting()):
                    await self._make(reader, segments)

    async def _make(self, reader: PoolReader, segments: list[str]) -> None:
        """Tokenise a batch; of one that fails, each text by itself."""
        try:
            reader.keep(segments, await asyncio.to_thread(reader.tokenise, segments))
        except Exception as error:  # noqa: BLE001 - the edge to a tokenizer; the task must not end
            self._note(error)
            if len(segments) == 1:
                reader.drop(segments)
                return
            for segment in segments:
                await self._make(reader, [segment])

    def _note(self, error: Exception) -> None:
        """Count a fault, and log one a minute by its class: its words may hold a prompt."""
        self._metrics.failures.inc()
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + FAULT_LOG_INTERVAL_SECONDS
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.error("KV events: %s at %s:%s", type(error).__name__, place.filename, place.lineno)

    def _count(self, state: Freshness) -> int:
        return sum(1 for address in self._sources if self.view.freshness(address) is state)

    def _held(self) -> int:
        return sum(
            len(tracker.slot.blocks) for address in self._sources for tracker in self.view.trackers(address)
        )
