"""Feeds one rank's tracker from its sockets: subscription, replays, connections, work in small slices.

ZMQ reconnects by itself; a monitor socket tells when. Heartbeats find a peer that is frozen or behind a
dead link. What arrives is applied in slices of `SLICE_SECONDS` with a rest between them, so that picks on
the same loop hardly wait; what does not fit into the socket's queue meanwhile is dropped there, found
missing by its number, and replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from ext_proc.kv.sequence import END

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.kv.metrics import KvMetrics
    from ext_proc.kv.tracker import Tracker

logger = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.002
REST_SECONDS: Final = 0.004
MAX_MESSAGE_BYTES: Final = 1024 * 1024
"""A message beyond this is not taken: a single event as long as that is 9 ms of decoding. Engines write some
10 KB a step."""
QUEUED_MESSAGES: Final = 2000
REPLAY_PATIENCE_SECONDS: Final = 5.0
"""Without any answer for so long, a replay has failed."""
RESTART_SECONDS: Final = 5.0
MISSED_AFTER_SECONDS: Final = 15.0
_HEARTBEAT_MS: Final = 2000
_LOST_MS: Final = 6000
_RECONNECT_MS: Final = 100
_MAX_RECONNECT_MS: Final = 5000


class RankSubscriber:
    """Follows one publisher until it is cancelled."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        url: str,
        replay_url: str,
        topic: str,
        tracker: Tracker,
        replays: asyncio.Semaphore,
        metrics: KvMetrics,
        clock: Callable[[], float],
    ) -> None:
        """`replay_url` is empty where there is none; `replays` limits replays at a time over all ranks."""
        self._context = context
        self._url = url
        self._replay_url = replay_url
        self._topic = topic.encode()
        self._tracker = tracker
        self._replays = replays
        self._metrics = metrics
        self._clock = clock
        self._work = asyncio.Event()
        self._told = tracker.told()
        self._gaps = self._restarts = 0

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                await self._follow()
            # The one edge where a fault of ours is caught: it must not end what others do on this loop.
            except Exception:
                logger.exception("KV events: following %s failed, beginning anew", self._url)
                self._metrics.failures.inc()
            await asyncio.sleep(RESTART_SECONDS)

    async def _follow(self) -> None:
        socket = self._socket(zmq.SUB)
        socket.subscribe(self._topic)
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        socket.connect(self._url)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(monitor))
                group.create_task(self._receive(socket))
                group.create_task(self._apply())
                group.create_task(self._miss())
        finally:
            socket.disable_monitor()
            socket.close(0)
            self._tracker.disconnect()

    def _socket(self, kind: int) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.RCVHWM, QUEUED_MESSAGES),
            (zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, _LOST_MS),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, _MAX_RECONNECT_MS),
            (zmq.IPV6, 1),
        ):
            socket.setsockopt(option, value)
        return socket

    async def _watch(self, monitor: zmq.asyncio.Socket) -> None:
        while True:
            event = (await recv_monitor_message(monitor))["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                logger.info("KV events: following %s", self._url)
                self._tracker.connect()
            elif event == zmq.EVENT_DISCONNECTED and self._tracker.connected:
                logger.warning("KV events: lost %s, going by our own estimate", self._url)
                self._tracker.disconnect()
            self._work.set()

    async def _miss(self) -> None:
        """Say that nobody publishes there: ZMQ itself tries for ever and tells nothing."""
        await asyncio.sleep(MISSED_AFTER_SECONDS)
        if not self._tracker.connected:
            logger.warning(
                "KV events: no connection to %s within %g s, going by our own estimate: see that the engine"
                " publishes there, or mend pools.kv_events.port",
                self._url,
                MISSED_AFTER_SECONDS,
            )

    async def _receive(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart()
            numbered = _numbered(frames)
            if numbered is None:
                self._metrics.unreadable.inc()
                continue
            self._tracker.sequence.live(*numbered)
            self._work.set()
            if len(self._tracker.sequence.out) > QUEUED_MESSAGES:
                # Leave the rest in the socket, which has a limit.
                await asyncio.sleep(REST_SECONDS)

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
        until = self._clock() + SLICE_SECONDS
        while self._tracker.step():
            if self._clock() > until:
                await asyncio.sleep(REST_SECONDS)
                until = self._clock() + SLICE_SECONDS

    async def _replay(self) -> None:
        """Ask for what is wanted until nothing is."""
        sequence = self._tracker.sequence
        async with self._replays:
            while (start := sequence.wanted) is not None:
                sequence.wanted = None
                self._metrics.replays.inc()
                socket = self._socket(zmq.DEALER)
                try:
                    socket.connect(self._replay_url)
                    await socket.send_multipart([b"", start.to_bytes(8, "big")])
                    await self._take_replay(socket)
                except (TimeoutError, zmq.ZMQError):
                    logger.warning("KV events: no replay from %s", self._replay_url)
                    self._metrics.failed_replays.inc()
                    sequence.replay_failed()
                finally:
                    socket.close(0)
                await self._drain()

    async def _take_replay(self, socket: zmq.asyncio.Socket) -> None:
        sequence = self._tracker.sequence
        while sequence.replaying:
            async with asyncio.timeout(REPLAY_PATIENCE_SECONDS):
                frames = await socket.recv_multipart()
            numbered = _numbered(frames)
            if numbered is None:
                self._metrics.unreadable.inc()
                continue
            sequence.replayed(*numbered)
            if numbered[0] == END:
                return
            await self._drain()

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


def new_context() -> zmq.asyncio.Context:
    """Return a context for all subscribers of a service: one thread for the sockets."""
    return zmq.asyncio.Context()


def end_context(context: zmq.asyncio.Context) -> None:
    """End a context, and with it every socket that is left."""
    with contextlib.suppress(zmq.ZMQError):
        context.destroy(0)
