"""Publishes the prompts that this worker sends, and takes over those of other workers.

Sharing improves picks, and nothing waits for it. A pick adds to an outbox in memory, and one task sends it.
Another task reads the other workers' entries. A server that is missing, slow, full or hostile costs warm
picks and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client import Counter, Gauge

from ext_proc.shared.batch import HASH_BYTES, MAX_BATCH_BLOCKS, BatchError, decode, encode
from ext_proc.shared.outbox import Budget, Outbox
from ext_proc.shared.redis_client import ReplyTooLargeError
from ext_proc.shared.stream import FROM_START, RedisStream, order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from prometheus_client import CollectorRegistry

    from ext_proc.shared.batch import Addition
    from ext_proc.shared.stream import Entry
    from fleet.settings.shared import SharedSettings

logger = logging.getLogger(__name__)

_READ_ENTRIES: Final = 64
_MOST_LAG_MILLISECONDS: Final = 5000
"""A reader that is further behind continues with the newest entries."""
_SLICE_SECONDS: Final = 0.002
"""The longest time of work until the loop serves others."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_MOST_PAUSE_SECONDS: Final = 5.0


class SharedMetrics(NamedTuple):
    """Counts and gauges; they exist without a shared index as well."""

    connected: Gauge
    lag: Gauge
    sent: Any
    received: Any
    dropped: Any
    skipped: Any
    errors: Counter

    @classmethod
    def on(cls, registry: CollectorRegistry) -> SharedMetrics:
        """Register with a registry."""
        blocks = Counter(
            "warmroute_shared_blocks",
            "Prompt blocks sent to other workers, or taken over from them",
            ["direction"],
            registry=registry,
        )
        lost = Counter(
            "warmroute_shared_lost_blocks",
            "Prompt blocks that were not sent, or not taken over",
            ["reason"],
            registry=registry,
        )
        return cls(
            Gauge("warmroute_shared_connected", "1 while the shared stream is read", registry=registry),
            Gauge(
                "warmroute_shared_lag_seconds", "From sending a batch to reading it back", registry=registry
            ),
            sent=blocks.labels("sent"),
            received=blocks.labels("taken"),
            dropped=lost.labels("pending"),
            skipped=lost.labels("late"),
            errors=Counter(
                "warmroute_shared_errors",
                "Failed commands to the stream's server, and entries that are no batch",
                ["kind"],
                registry=registry,
            ),
        )


class SharedIndex:
    """One worker's part in the shared index."""

    def __init__(
        self,
        settings: SharedSettings,
        worker: str,
        block_bytes: Callable[[], int],
        add: Callable[[str, Sequence[int]], object],
        metrics: SharedMetrics,
        *,
        prompt_blocks: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`add` takes over an addition.

        `block_bytes` returns the bytes of a block now, `prompt_blocks` how many blocks of a prompt count.

        Raises:
            SettingsError: the extra `redis` is not installed.
        """
        self._settings = settings
        self._worker = worker.encode()
        self._block_bytes = block_bytes
        self._prompt_blocks = prompt_blocks
        self._add = add
        self._metrics = metrics
        self._clock = clock
        self._stream = RedisStream(settings)
        self._outbox = Outbox(settings.pending_blocks)
        self._budget = Budget(settings.blocks_per_second, clock())
        self._newest_id = b""
        """The newest entry that was read; empty before the first."""
        self._slice_ends_at = 0.0
        self._counted_drops = 0
        self._failing = False
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def publish(self, address: str, blocks: Sequence[int]) -> None:
        """Queue an addition for the other workers. It costs a pick no more than a list's append."""
        self._outbox.add(address, blocks)

    async def warm_up(self) -> None:
        """Take over the stream's tail, for at most twice the timeout: a restarted worker begins warm."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * self._settings.timeout_seconds):
                await self._attempt(lambda: self._read_tail(self._settings.tail_blocks))

    def start(self) -> None:
        """Begin to send and to read."""
        self._tasks = [
            asyncio.create_task(self._repeat(self._send), name="shared send"),
            asyncio.create_task(self._repeat(self._read), name="shared read"),
        ]

    async def stop(self) -> None:
        """Send the outbox, if the server answers at once, and end."""
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            # The client library may turn a cancellation into an error; then the event ends the task.
            await asyncio.wait(self._tasks, timeout=2 * self._settings.timeout_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.timeout_seconds):
                if not self._failing:
                    await self._attempt(self._send_all)
                await self._attempt(self._stream.close)

    async def _repeat(self, work: Callable[[], Awaitable[object]]) -> None:
        """Repeat `work`, with growing pauses after errors."""
        pause = 0.0
        while not self._stopping.is_set():
            if await self._attempt(work):
                pause = 0.0
                continue
            pause = min(_MOST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, 2 * pause))
            with contextlib.suppress(TimeoutError):
                jitter = random.uniform(0.75, 1.25)  # noqa: S311 - spreads workers
                await asyncio.wait_for(self._stopping.wait(), pause * jitter)

    async def _attempt(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Return whether `work` succeeded. The one edge for faults, which cost warm picks only."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001
            kind = type(error).__name__
            self._metrics.errors.labels(kind).inc()
            self._metrics.connected.set(0)
            # Only the first in a row, and only its type: its text may contain the password of the URL.
            if not self._failing:
                self._failing = True
                logger.warning("prefixes are not shared: %s from %s", kind, self._stream.address)
            return False
        return True

    async def _send(self) -> None:
        await asyncio.sleep(self._settings.flush_seconds)
        await self._send_all()

    async def _send_all(self) -> None:
        while additions := self._outbox.take(MAX_BATCH_BLOCKS):
            try:
                await self._append(additions)
            except BaseException:
                self._outbox.put_back(additions)
                raise
            finally:
                drops = self._outbox.dropped
                self._metrics.dropped.inc(drops - self._counted_drops)
                self._counted_drops = drops
            self._metrics.sent.inc(sum(len(addition.blocks) for addition in additions))

    async def _append(self, additions: Sequence[Addition]) -> bytes:
        return await self._stream.add(self._worker, encode(additions, self._block_bytes()), self._clock())

    async def _read(self) -> None:
        try:
            await self._read_next()
        except ReplyTooLargeError:
            # The ids of the entries in such a reply are unknown, but a new entry of ours follows them.
            self._newest_id = await self._append([])
            raise

    async def _read_next(self) -> None:
        if not self._newest_id:
            newest = await self._stream.newest(1)
            self._newest_id = newest[0].id if newest else FROM_START
        entries = await self._stream.after(self._newest_id, _READ_ENTRIES)
        self._metrics.connected.set(1)
        if self._failing:
            self._failing = False
            logger.info("prefixes are shared through %s", self._stream.address)
        budget = self._budget.available(self._clock())
        if not entries:
            await self._restart_if_reset()
        elif len(entries) == _READ_ENTRIES and await self._is_late(entries[-1]):
            # The entries between are skipped: the newest ones say best which endpoints are warm now.
            self._budget.spend(await self._read_tail(budget))
        else:
            self._budget.spend(await self._apply(entries, budget))

    async def _restart_if_reset(self) -> None:
        """Read a stream from its start whose newest id is below ours.

        A server that returns empty, with an earlier clock, would otherwise be ignored until its clock has
        caught up.
        """
        newest = await self._stream.newest(1)
        if not newest or newest[0].order < order(self._newest_id):
            self._newest_id = FROM_START

    async def _is_late(self, last: Entry) -> bool:
        newest = await self._stream.newest(1)
        return bool(newest) and newest[0].milliseconds - last.milliseconds > _MOST_LAG_MILLISECONDS

    async def _read_tail(self, most_blocks: int) -> int:
        """Apply the newest entries, about `most_blocks` blocks, and return their cost."""
        tail: list[Entry] = []
        before, blocks = b"+", 0
        while blocks < most_blocks:
            entries = await self._stream.newest(_READ_ENTRIES, before)
            tail += entries
            blocks += sum(max(1, _least_blocks(entry)) for entry in entries)
            if len(entries) < _READ_ENTRIES:
                break
            before = b"(" + entries[-1].id
        return await self._apply(tail[::-1], most_blocks)

    async def _apply(self, entries: Sequence[Entry], most_blocks: int) -> int:
        """Apply others' entries and return their cost in blocks; beyond `most_blocks` the oldest are lost."""
        batches: list[list[Addition]] = []
        cost = 0
        for entry in reversed(entries):
            if entry.worker == self._worker:
                self._metrics.lag.set(max(0.0, self._clock() - entry.sent_at))
            elif cost >= most_blocks:
                self._metrics.skipped.inc(_least_blocks(entry))
            else:
                batches.append(await self._decode(entry))
                # An entry without additions costs reading time as well.
                blocks = sum(max(1, len(addition.blocks)) for addition in batches[-1])
                cost += blocks or _least_blocks(entry)
        # The index forgets in the order of use, so the oldest comes first.
        for additions in reversed(batches):
            for address, hashes in additions:
                self._add(address, hashes)
                self._metrics.received.inc(len(hashes))
                await self._yield_loop()
        if entries:
            self._newest_id = entries[-1].id
        return cost

    async def _decode(self, entry: Entry) -> list[Addition]:
        additions: list[Addition] = []
        try:
            for addition in decode(entry.data, self._block_bytes(), self._prompt_blocks()):
                additions.append(addition)
                await self._yield_loop()
        except BatchError:
            self._metrics.errors.labels(BatchError.__name__).inc()
            return []
        return additions

    async def _yield_loop(self) -> None:
        """Let the loop serve others at the end of a slice."""
        if self._clock() >= self._slice_ends_at:
            await asyncio.sleep(0)
            self._slice_ends_at = self._clock() + _SLICE_SECONDS


def _least_blocks(entry: Entry) -> int:
    """Return the fewest blocks that an entry may have: those that it spells out."""
    return len(entry.data) // HASH_BYTES
