"""One discovery stream over gRPC: a reader feeds the state machine, a writer writes what it owes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from fleet.names import TYPE_LISTENER, TYPE_ROUTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.service.turns import Turns
    from xds_server.discovery.admission import Admission
    from xds_server.discovery.plan import Response
    from xds_server.discovery.status import Record
    from xds_server.discovery.variant import Variant
    from xds_server.snapshot.snapshot import Snapshot, SnapshotStore

_AIO: Any = grpc.aio
"""Untyped: the stubs lack the end-of-stream mark."""


class DiscoveryStream:
    """Runs one stream until the client ends it, a fault does, or `end` is called."""

    def __init__(
        self,
        machine: Variant,
        store: SnapshotStore,
        record: Record,
        admission: Admission,
        hold_seconds: float,
        linger_seconds: float,
        turns: Turns,
        introduce: Callable[[], None],
    ) -> None:
        """`turns` are those of all streams.

        `introduce` is called when the client has said who it is; it may raise to end the stream.
        """
        self.machine = machine
        self._turns = turns
        self._introduce = introduce
        self._store = store
        self._record = record
        self._admission = admission
        self._hold_seconds = hold_seconds
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._half_closed = False
        self._hold_timer: asyncio.TimerHandle | None = None
        self._linger_seconds = linger_seconds
        self._linger_timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Ask the stream to end, even while the client does not read."""
        self._ended.set()

    async def run(self, context: Any) -> bool:
        """Serve; return whether `end` was the reason to stop.

        Raises:
            PeerError: the client broke the protocol.
        """
        unsubscribe = self._store.subscribe(self._on_snapshot)
        try:
            error = await self._until_one_ends(context)
        finally:
            unsubscribe()
            self._cancel_hold()
            self._cancel_linger()
        try:
            if error is not None:
                raise error
        finally:
            # The error has this frame, which would keep it, and the client's last message, until both are
            # collected as garbage: with many clients that is much memory.
            del error
        return self._ended.is_set()

    async def _until_one_ends(self, context: Any) -> BaseException | None:
        """Read and write until either ends, or `end` is called; return what it ended with."""
        reader = asyncio.create_task(self._read(context))
        tasks = [
            reader,
            asyncio.create_task(self._write(context)),
            asyncio.create_task(self._ended.wait()),
        ]
        try:
            done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if done == {reader} and reader.exception() is None:
                # The client has said all it will; the writer ends after what it owes for that.
                done, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            # A cancelled task's outcome is not ours to report; what finished is, below.
            await asyncio.gather(*tasks, return_exceptions=True)
        return next((error for task in done if (error := task.exception()) is not None), None)

    def _on_snapshot(self, _: Snapshot) -> None:
        self._wake.set()

    async def _read(self, context: Any) -> None:
        try:
            await self._receive(context)
        finally:
            self._half_closed = True
            self._wake.set()

    async def _receive(self, context: Any) -> None:
        unserved, introduced = 0, False
        while True:
            try:
                message = await context.read()
            except grpc.aio.InternalError:
                return  # The connection is gone.
            if message is _AIO.EOF:
                return
            async with self._turns:
                answer = self.machine.hear(message)
            if not introduced and self.machine.client is not None:
                introduced = True
                self._introduce()
                self._record.came(self.machine.client, context.peer())
            if answer is not None:
                assert self.machine.client is not None
                self._record.answered(self.machine.client, answer)
            if self.machine.unserved_requests > unserved:
                unserved = self.machine.unserved_requests
                self._record.unserved()
            if not self.machine.clean:
                self._wake.set()

    async def _write(self, context: Any) -> None:
        await self._await_turn()
        while True:
            self._wake.clear()
            # Computed one by one under the newest snapshot: what a slow client missed is never made.
            while (response := await self._next()) is not None:
                try:
                    await context.write(response.data)
                except grpc.aio.InternalError:
                    return  # The connection is gone.
                assert self.machine.client is not None
                self._record.pushed(self.machine.client, response.type_url, response.version)
                if response.type_url in (TYPE_LISTENER, TYPE_ROUTE):
                    self._cancel_linger()  # What these let go of lingers from now on.
            if self._half_closed:
                return
            self._watch_hold()
            self._watch_linger()
            await self._wake.wait()

    async def _next(self) -> Response | None:
        async with self._turns:
            return self.machine.next_response(self._snapshot())

    async def _await_turn(self) -> None:
        """Return when there is something to answer, and this stream may have its first answer."""
        while self.machine.client is None or self._snapshot() is None:
            if self._half_closed:
                return
            self._wake.clear()
            await self._wake.wait()
        if await self._admission.enter():
            self._record.metrics.delayed.inc()

    def _snapshot(self) -> Snapshot | None:
        return self._store.snapshot_for(self.machine.client)

    def _watch_hold(self) -> None:
        if not self.machine.holding():
            self._cancel_hold()
        elif self._hold_timer is None:
            loop = asyncio.get_running_loop()
            self._hold_timer = loop.call_later(self._hold_seconds, self._end_hold)

    def _end_hold(self) -> None:
        self._hold_timer = None
        self.machine.release()
        self._wake.set()

    def _cancel_hold(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _watch_linger(self) -> None:
        if not self.machine.lingering():
            self._cancel_linger()
        elif self._linger_timer is None:
            loop = asyncio.get_running_loop()
            self._linger_timer = loop.call_later(self._linger_seconds, self._end_linger)

    def _end_linger(self) -> None:
        self._linger_timer = None
        self.machine.let_go()
        self._wake.set()

    def _cancel_linger(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
