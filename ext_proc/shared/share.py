"""Tells other workers what was sent where, and takes over what they tell. Only for quality: nobody waits.

A pick adds to an outbox in memory; a task sends it. Another task reads what the others sent. A server that is
away, slow, full or hostile costs warm picks and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import TYPE_CHECKING, Final

from ext_proc.shared.batch import HASH_BYTES, MAX_BATCH_BLOCKS, BatchError, decode, encode
from ext_proc.shared.budget import Budget
from ext_proc.shared.outbox import Outbox
from ext_proc.shared.replies import ReplyTooLargeError
from ext_proc.shared.stream import FROM_START, Stream, order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ext_proc.shared.batch import Addition
    from ext_proc.shared.metrics import SharedMetrics
    from ext_proc.shared.stream import Entry
    from fleet.settings.shared import SharedSettings

logger = logging.getLogger(__name__)

_READ_ENTRIES: Final = 64
_MOST_LAG_MILLISECONDS: Final = 5000
"""A reader that is further behind goes on with the newest entries."""
_SLICE_SECONDS: Final = 0.002
"""The event loop serves others after so much taking over."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_MOST_PAUSE_SECONDS: Final = 5.0


class Share:
    """One worker's share in the stream. `publish` is `Warmth.on_added`, `take` is `Router.take_remote`."""

    def __init__(
        self,
        settings: SharedSettings,
        worker: str,
        block_bytes: Callable[[], int],
        take: Callable[[str, Sequence[int]], object],
        metrics: SharedMetrics,
        *,
        prompt_blocks: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`block_bytes` tells how many bytes of a prompt a block has now, `prompt_blocks` how many count.

        Raises:
            SettingsError: the extra `redis` is not installed.
        """
        self._settings = settings
        self._worker = worker.encode()
        self._block_bytes = block_bytes
        self._prompt_blocks = prompt_blocks
        self._take = take
        self._metrics = metrics
        self._clock = clock
        self._stream = Stream(settings)
        self._outbox = Outbox(settings.pending_blocks)
        self._budget = Budget(settings.blocks_per_second, clock())
        self._at = b""
        """The newest entry that was read; empty before the first."""
        self._pauses_at = 0.0
        self._dropped_told = 0
        self._in_trouble = False
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def publish(self, address: str, blocks: Sequence[int]) -> None:
        """Tell the others, later. Costs a pick no more than a list's append."""
        self._outbox.add(address, blocks)

    async def warm_up(self) -> None:
        """Take over the stream's tail, for at most twice the timeout: a restarted worker begins warm."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * self._settings.timeout_seconds):
                await self._tried(lambda: self._read_tail(self._settings.tail_blocks))

    def start(self) -> None:
        """Begin to send and to read."""
        self._tasks = [
            asyncio.create_task(self._keep_on(self._send), name="shared send"),
            asyncio.create_task(self._keep_on(self._read), name="shared read"),
        ]

    async def stop(self) -> None:
        """Send what waits, if that goes at once, and end."""
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            # The client library may make an error of a cancellation: then the flag ends the task.
            await asyncio.wait(self._tasks, timeout=2 * self._settings.timeout_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.timeout_seconds):
                if not self._in_trouble:
                    await self._tried(self._send_all)
                await self._tried(self._stream.close)

    async def _keep_on(self, work: Callable[[], Awaitable[object]]) -> None:
        """Repeat `work`; after an error wait, longer each time."""
        pause = 0.0
        while not self._stopping.is_set():
            if await self._tried(work):
                pause = 0.0
                continue
            pause = min(_MOST_PAUSE_SECONDS, max(_FIRST_PAUSE_SECONDS, 2 * pause))
            with contextlib.suppress(TimeoutError):
                jitter = random.uniform(0.75, 1.25)  # noqa: S311 - spreads workers
                await asyncio.wait_for(self._stopping.wait(), pause * jitter)

    async def _tried(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Whether `work` did what it should. The one edge: whatever fails here costs warm picks only."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001
            kind = type(error).__name__
            self._metrics.errors.labels(kind).inc()
            self._metrics.connected.set(0)
            # Of a row only the first, and by its type: its text may hold what the URL hides.
            if not self._in_trouble:
                self._in_trouble = True
                logger.warning("prefixes are not shared now: %s from %s", kind, self._stream.place)
            return False
        return True

    # Sending.

    async def _send(self) -> None:
        await asyncio.sleep(self._settings.flush_seconds)
        await self._send_all()

    async def _send_all(self) -> None:
        while additions := self._outbox.take(MAX_BATCH_BLOCKS):
            try:
                batch = encode(additions, self._block_bytes())
                await self._stream.add(self._worker, batch, self._clock())
            except BaseException:
                self._outbox.put_back(additions)
                raise
            finally:
                self._tell_dropped()
            self._metrics.sent.inc(sum(len(addition.blocks) for addition in additions))

    def _tell_dropped(self) -> None:
        dropped = self._outbox.dropped
        if dropped > self._dropped_told:
            self._metrics.pending.inc(dropped - self._dropped_told)
            self._dropped_told = dropped

    # Reading.

    async def _read(self) -> None:
        try:
            await self._read_on()
        except ReplyTooLargeError:
            # Nothing tells the ids of what is too large, but an entry of our own stands behind it.
            self._at = await self._stream.add(self._worker, encode([], self._block_bytes()), self._clock())
            raise

    async def _read_on(self) -> None:
        if not self._at:
            newest = await self._stream.newest(1)
            self._at = newest[0].id if newest else FROM_START
        entries = await self._stream.after(self._at, _READ_ENTRIES)
        self._metrics.connected.set(1)
        if self._in_trouble:
            self._in_trouble = False
            logger.info("prefixes are shared through %s", self._stream.place)
        left = self._budget.left(self._clock())
        if not entries:
            await self._find_again()
        elif len(entries) == _READ_ENTRIES and await self._is_late(entries[-1]):
            # What lies between is skipped: the newest tells most about who is warm now.
            self._budget.spend(await self._read_tail(left))
        else:
            self._budget.spend(await self._take_over(entries, left))

    async def _find_again(self) -> None:
        """Begin anew with a stream that did: its ids may stay below where we are, as its server's clock says.

        A server that comes back empty with an earlier clock would else be silent for as long as that is.
        """
        newest = await self._stream.newest(1)
        if not newest or newest[0].order < order(self._at):
            self._at = FROM_START

    async def _is_late(self, last: Entry) -> bool:
        newest = await self._stream.newest(1)
        return bool(newest) and newest[0].milliseconds - last.milliseconds > _MOST_LAG_MILLISECONDS

    async def _read_tail(self, most_blocks: int) -> int:
        """Take over the newest entries, about so many blocks, and go on after them."""
        tail: list[Entry] = []
        before, blocks = b"+", 0
        while blocks < most_blocks:
            entries = await self._stream.newest(_READ_ENTRIES, before)
            tail += entries
            blocks += sum(max(1, _least_blocks(entry)) for entry in entries)
            if len(entries) < _READ_ENTRIES:
                break
            before = b"(" + entries[-1].id
        return await self._take_over(tail[::-1], most_blocks)

    async def _take_over(self, entries: Sequence[Entry], most_blocks: int) -> int:
        """Apply others' entries and return their cost in blocks; beyond the most, the oldest are lost."""
        chosen: list[list[Addition]] = []
        spent = 0
        for entry in reversed(entries):
            if entry.worker == self._worker:
                self._metrics.lag.set(max(0.0, self._clock() - entry.sent_at))
                continue
            if spent >= most_blocks:
                self._metrics.late.inc(_least_blocks(entry))
                continue
            additions = await self._decoded(entry)
            chosen.append(additions)
            # What brings nothing has been read all the same.
            spent += sum(max(1, len(addition.blocks)) for addition in additions) or _least_blocks(entry)
        # In the order of use, which is that of forgetting too.
        for additions in reversed(chosen):
            for address, blocks in additions:
                self._take(address, blocks)
                self._metrics.taken.inc(len(blocks))
                await self._let_others()
        if entries:
            self._at = entries[-1].id
        return spent

    async def _decoded(self, entry: Entry) -> list[Addition]:
        additions: list[Addition] = []
        try:
            for addition in decode(entry.data, self._block_bytes(), self._prompt_blocks()):
                additions.append(addition)
                await self._let_others()
        except BatchError:
            self._metrics.errors.labels(BatchError.__name__).inc()
            return []
        return additions

    async def _let_others(self) -> None:
        """Give the event loop away when this has had it for its slice."""
        now = self._clock()
        if now >= self._pauses_at:
            await asyncio.sleep(0)
            self._pauses_at = self._clock() + _SLICE_SECONDS


def _least_blocks(entry: Entry) -> int:
    """How many blocks an entry has at least: those that it names itself."""
    return len(entry.data) // HASH_BYTES
