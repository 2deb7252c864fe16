"""Feeds one rank's tracker from its sockets: subscription, replays, reconnections.

Messages are applied in slices of `SLICE_SECONDS` with a rest between them, so that picks on the same loop
hardly wait. While a publisher's queue is full, its socket is not read: the engine drops the messages that do
not fit, and the missing numbers are replayed. Heartbeats find a frozen peer and a dead link.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from ext_proc.kv.connection import Connection
from ext_proc.kv.sequence import END
from ext_proc.kv.zmtp import ZmtpError
from fleet.cause import cause_of
from fleet.service.turns import SLICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.kv.metrics import KvMetrics
    from ext_proc.kv.tracker import Tracker
    from ext_proc.kv.zmtp import Message
    from fleet.endpoint import KvEventSource
    from fleet.service.turns import Turns

logger = logging.getLogger(__name__)

REST_SECONDS: Final = 0.004
REPLAY_PATIENCE_SECONDS: Final = 5.0
"""Without any answer for this long, a replay has failed."""
REPLAY_SECONDS: Final = 60.0
"""A replay that takes longer is requested again from where it is, after the other waiting replays."""
RESTART_SECONDS: Final = 5.0
MISSED_AFTER_SECONDS: Final = 15.0
_RECONNECT_SECONDS: Final = 0.1
_MAX_RECONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the ranks of one endpoint share, so that they leave the loop and its replays to others."""

    turns: Turns
    """Of all endpoints."""
    replays: asyncio.Semaphore
    """Of all endpoints."""
    own_replay: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of this endpoint: one replay at a time."""


class RankSubscriber:
    """Follows one publisher until it is cancelled."""

    def __init__(
        self,
        host: str,
        source: KvEventSource,
        rank: int,
        tracker: Tracker,
        limits: Limits,
        metrics: KvMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._host = host
        self._port = source.port + rank
        self._replay_port = source.replay_port + rank
        self._topic = source.topic.encode()
        self._tracker = tracker
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._work = asyncio.Event()
        self._reported = tracker.counts.copy()
        self._url = f"{host}:{self._port}"

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._listen())
                    group.create_task(self._apply())
                    group.create_task(self._warn_if_unconnected())
            # The one edge for faults of ours: they must not end other work on this loop.
            except Exception:
                logger.exception("KV events: following %s failed, restarting", self._url)
                self._metrics.counters["failed"].inc()
            finally:
                self._tracker.disconnect("following it failed, see the log")
            await asyncio.sleep(RESTART_SECONDS)

    async def _listen(self) -> None:
        """Receive over one connection after the other."""
        loop, pause = asyncio.get_running_loop(), _RECONNECT_SECONDS
        while True:
            began_at = loop.time()
            try:
                await self._receive()
            except (OSError, ZmtpError) as error:  # A TimeoutError is an OSError.
                self._disconnected(error)
            # The pause grows while connections end soon after they began.
            lasted = loop.time() - began_at > _MAX_RECONNECT_SECONDS
            pause = _RECONNECT_SECONDS if lasted else min(2 * pause, _MAX_RECONNECT_SECONDS)
            await asyncio.sleep(pause)

    def _disconnected(self, error: OSError | ZmtpError) -> None:
        if isinstance(error, ZmtpError):
            self._tracker.counts["unreadable"] += 1
            logger.warning("KV events: %s: %s", self._url, error)
        if self._tracker.connected:
            logger.warning("KV events: lost %s, routing uses its own estimate", self._url)
        self._tracker.disconnect(cause_of(error))
        self._work.set()

    async def _warn_if_unconnected(self) -> None:
        """Warn once of a publisher that never answers: failing connections are retried in silence."""
        await asyncio.sleep(MISSED_AFTER_SECONDS)
        if not self._tracker.connected:
            logger.warning(
                "KV events: no connection to %s within %g s, routing uses its own estimate: see that the"
                " engine publishes there, or mend pools.kv_events.port",
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
                await self._limits.turns.run(partial(self._take_live, connection, data))
                if self._clock() > until or self._tracker.sequence.full:
                    await self._rest()
                    until = self._clock() + SLICE_SECONDS
        finally:
            connection.close()

    async def _rest(self) -> None:
        """Let other tasks work, and wait for room in the queue."""
        while True:
            await asyncio.sleep(REST_SECONDS)
            if not self._tracker.sequence.full:
                return

    def _take_live(self, connection: Connection, data: bytes) -> None:
        for frames in connection.take(data):
            self._live(frames)

    def _live(self, frames: Message) -> None:
        if (numbered := self._numbered(frames)) is not None:
            self._tracker.sequence.live(*numbered)
        self._work.set()

    async def _apply(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._tracker.sequence.replay_from is not None:
                async with self._limits.own_replay, self._limits.replays:
                    await self._replay()
                    await self._drain()
            await self._drain()
            self._report()

    async def _drain(self) -> None:
        """Apply the waiting messages, in slices."""
        while await self._limits.turns.run(self._apply_slice):  # noqa: ASYNC110 - a rest between slices
            await asyncio.sleep(REST_SECONDS)

    def _apply_slice(self) -> bool:
        until = self._clock() + SLICE_SECONDS
        while (more := self._tracker.step()) and self._clock() <= until:
            pass
        return more

    async def _replay(self) -> None:
        sequence = self._tracker.sequence
        start, sequence.replay_from = sequence.replay_from, None
        if start is None:
            return  # The connection has ended meanwhile.
        self._tracker.counts["replay"] += 1
        connection = Connection(b"DEALER")
        try:
            await connection.open(self._host, self._replay_port)
            connection.send(b"", start.to_bytes(8, "big"))
            await self._take_replay(connection)
        except (OSError, ZmtpError) as error:
            self._tracker.counts["replay_failed"] += 1
            cause = cause_of(error)
            logger.warning("KV events: no replay from %s:%s: %s", self._host, self._replay_port, cause)
            sequence.replay_failed()
        finally:
            connection.close()

    async def _take_replay(self, connection: Connection) -> None:
        sequence, until = self._tracker.sequence, self._clock() + REPLAY_SECONDS
        while sequence.replaying:
            async with asyncio.timeout(min(REPLAY_PATIENCE_SECONDS, until - self._clock())):
                data = await connection.read()
            if await self._limits.turns.run(partial(self._take_replayed, connection, data)):
                return
            await self._drain()

    def _take_replayed(self, connection: Connection, data: bytes) -> bool:
        return any(map(self._replayed, connection.take(data)))

    def _replayed(self, frames: Message) -> bool:
        """Take a message of a replay; return whether it was the last."""
        if (numbered := self._numbered(frames)) is None:
            return False
        self._tracker.sequence.replayed(*numbered)
        return numbered[0] == END

    def _numbered(self, frames: Message) -> tuple[int, bytes] | None:
        """Return a message's sequence number and payload, its last two frames; None if it has none.

        Versions of engines differ in the frames before: a topic, an empty frame, both or nothing.
        """
        if len(frames) < 2 or len(frames[-2]) != 8:
            self._tracker.counts["unreadable"] += 1
            return None
        return int.from_bytes(frames[-2], "big"), frames[-1]

    def _report(self) -> None:
        """Add what the tracker has counted to the metrics."""
        counts = self._tracker.counts
        if counts["failed"] and not self._reported["failed"]:
            # Once: a publisher may send such messages all the time.
            logger.error("KV events: %s, a message of %s is lost", self._tracker.failure, self._url)
        for name, count in (counts - self._reported).items():
            self._metrics.counters[name].inc(count)
        self._reported = counts.copy()
