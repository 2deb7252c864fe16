"""Feeds one rank's tracker from its sockets: subscription, replays, connections, work in small slices.

What arrives is applied in slices of `SLICE_SECONDS` with a rest between them, so that picks on the same loop
hardly wait. While a publisher's queue is full its socket is not read: what does not fit there is dropped by
the engine, found missing by its number, and replayed. Heartbeats find a peer that is frozen or behind a dead
link.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ext_proc.kv.connection import Connection
from ext_proc.kv.sequence import END
from ext_proc.kv.zmtp import ZmtpError
from fleet.service.turns import SLICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.kv.metrics import KvMetrics
    from ext_proc.kv.tracker import Tracker
    from ext_proc.kv.zmtp import Message
    from fleet.service.turns import Turns

logger = logging.getLogger(__name__)

REST_SECONDS: Final = 0.004
REPLAY_PATIENCE_SECONDS: Final = 5.0
"""Without any answer for so long, a replay has failed."""
REPLAY_SECONDS: Final = 60.0
"""A replay that takes longer is asked for again from where it is, after those who wait for theirs."""
RESTART_SECONDS: Final = 5.0
MISSED_AFTER_SECONDS: Final = 15.0
_RECONNECT_SECONDS: Final = 0.1
_MAX_RECONNECT_SECONDS: Final = 5.0


class RankSubscriber:
    """Follows one publisher until it is cancelled."""

    def __init__(
        self,
        host: str,
        port: int,
        replay_port: int,
        topic: str,
        tracker: Tracker,
        turns: Turns,
        replays: asyncio.Semaphore,
        metrics: KvMetrics,
        clock: Callable[[], float],
    ) -> None:
        """`replay_port` is 0 where there is none; `replays` limits replays at a time over all ranks."""
        self._host = host
        self._port = port
        self._replay_port = replay_port
        self._topic = topic.encode()
        self._tracker = tracker
        self._turns = turns
        self._replays = replays
        self._metrics = metrics
        self._clock = clock
        self._work = asyncio.Event()
        self._told = tracker.told()
        self._gaps = self._restarts = 0
        self._url = f"{host}:{port}"

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._listen())
                    group.create_task(self._apply())
                    group.create_task(self._miss())
            # The one edge where a fault of ours is caught: it must not end what others do on this loop.
            except Exception:
                logger.exception("KV events: following %s failed, beginning anew", self._url)
                self._metrics.failures.inc()
            finally:
                self._tracker.disconnect()
            await asyncio.sleep(RESTART_SECONDS)

    async def _listen(self) -> None:
        """Receive over one connection after the other."""
        loop, pause = asyncio.get_running_loop(), _RECONNECT_SECONDS
        while True:
            began_at = loop.time()
            try:
                await self._receive()
            except (OSError, ZmtpError) as error:  # A time that is over is an OSError.
                self._disconnected(error)
            # One that ends soon after it began, again and again, is not asked all the time.
            lasted = loop.time() - began_at > _MAX_RECONNECT_SECONDS
            pause = _RECONNECT_SECONDS if lasted else min(2 * pause, _MAX_RECONNECT_SECONDS)
            await asyncio.sleep(pause)

    def _disconnected(self, error: OSError | ZmtpError) -> None:
        if isinstance(error, ZmtpError):
            self._metrics.unreadable.inc()
            logger.warning("KV events: %s: %s", self._url, error)
        if self._tracker.connected:
            logger.warning("KV events: lost %s, going by our own estimate", self._url)
            self._tracker.disconnect()
        self._work.set()

    async def _miss(self) -> None:
        """Say that nobody publishes there: a connection that fails is tried again in silence."""
        await asyncio.sleep(MISSED_AFTER_SECONDS)
        if not self._tracker.connected:
            logger.warning(
                "KV events: no connection to %s within %g s, going by our own estimate: see that the engine"
                " publishes there, or mend pools.kv_events.port",
                self._url,
                MISSED_AFTER_SECONDS,
            )

    async def _receive(self) -> None:
        connection = Connection(b"SUB")
        try:
            await connection.open(self._host, self._port)
            connection.send(b"\x01" + self._topic)
            logger.info("KV events: following %s", self._url)
            self._tracker.connect()
            self._work.set()
            until = self._clock() + SLICE_SECONDS
            while True:
                data = await connection.read()
                await self._turns.run(partial(self._take_live, connection, data))
                if self._clock() > until or self._tracker.sequence.full:
                    await self._rest()
                    until = self._clock() + SLICE_SECONDS
        finally:
            connection.close()

    async def _rest(self) -> None:
        """Let others work, and wait for room in the queue."""
        while True:
            await asyncio.sleep(REST_SECONDS)
            if not self._tracker.sequence.full:
                return

    def _take_live(self, connection: Connection, data: bytes) -> None:
        for frames in connection.take(data):
            self._live(frames)

    def _live(self, frames: Message) -> None:
        numbered = _numbered(frames)
        if numbered is None:
            self._metrics.unreadable.inc()
            return
        self._tracker.sequence.live(*numbered)
        self._work.set()

    async def _apply(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            if self._tracker.sequence.wanted is not None:
                await self._replay()
            await self._drain()
            self._count()

    async def _drain(self) -> None:
        """Apply what has come, in slices."""
        while await self._turns.run(self._apply_slice):  # noqa: ASYNC110 - a rest between slices
            await asyncio.sleep(REST_SECONDS)

    def _apply_slice(self) -> bool:
        until = self._clock() + SLICE_SECONDS
        while more := self._tracker.step():
            if self._clock() > until:
                break
        return more

    async def _replay(self) -> None:
        """Ask for what is wanted until nothing is."""
        while self._tracker.sequence.wanted is not None:
            async with self._replays:
                await self._ask()
                await self._drain()

    async def _ask(self) -> None:
        sequence = self._tracker.sequence
        start, sequence.wanted = sequence.wanted, None
        if start is None:
            return  # The connection has ended meanwhile.
        self._metrics.replays.inc()
        connection = Connection(b"DEALER")
        try:
            await connection.open(self._host, self._replay_port)
            connection.send(b"", start.to_bytes(8, "big"))
            await self._take_replay(connection)
        except (OSError, ZmtpError) as error:
            self._metrics.failed_replays.inc()
            text = str(error) or type(error).__name__
            logger.warning("KV events: no replay from %s:%s: %s", self._host, self._replay_port, text)
            sequence.replay_failed()
        finally:
            connection.close()

    async def _take_replay(self, connection: Connection) -> None:
        sequence, until = self._tracker.sequence, self._clock() + REPLAY_SECONDS
        while sequence.replaying:
            async with asyncio.timeout(min(REPLAY_PATIENCE_SECONDS, until - self._clock())):
                data = await connection.read()
            if await self._turns.run(partial(self._take_replayed, connection, data)):
                return
            await self._drain()

    def _take_replayed(self, connection: Connection, data: bytes) -> bool:
        return any(map(self._replayed, connection.take(data)))

    def _replayed(self, frames: Message) -> bool:
        """Take a message of a replay; whether it was the last."""
        numbered = _numbered(frames)
        if numbered is None:
            self._metrics.unreadable.inc()
            return False
        self._tracker.sequence.replayed(*numbered)
        return numbered[0] == END

    def _count(self) -> None:
        """Move what the tracker has counted into the metrics."""
        told, before, sequence = self._tracker.told(), self._told, self._tracker.sequence
        metrics = self._metrics
        metrics.stored.inc(told.stored_blocks - before.stored_blocks)
        metrics.removed.inc(told.removed_blocks - before.removed_blocks)
        metrics.unknown.inc(told.unknown_events - before.unknown_events)
        metrics.unreadable.inc(told.malformed_events - before.malformed_events)
        metrics.failures.inc(told.failures - before.failures)
        if told.failures and not before.failures:
            # Once: a publisher may send such messages all the time.
            logger.error("KV events: %s, a message of %s is lost", self._tracker.failure, self._url)
        metrics.gaps.inc(sequence.gaps - self._gaps)
        metrics.restarts.inc(sequence.restarts - self._restarts)
        self._told, self._gaps, self._restarts = told, sequence.gaps, sequence.restarts


def _numbered(frames: list[bytes]) -> tuple[int, bytes] | None:
    """Return a message's sequence number and payload; None for what is none.

    What stands before them differs: a topic, an empty frame, both or nothing.
    """
    if len(frames) < 2 or len(frames[-2]) != 8:
        return None
    return int.from_bytes(frames[-2], "big"), frames[-1]
