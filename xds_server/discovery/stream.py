"""One discovery stream over gRPC: a reader feeds the state machine, a writer writes its responses."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from fleet.names import TYPE_LISTENER, TYPE_ROUTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.service.turns import Turns
    from xds_server.discovery.admission import Admission
    from xds_server.discovery.client import Client
    from xds_server.discovery.ordering import Delays
    from xds_server.discovery.shared_response import Response
    from xds_server.discovery.status import Record
    from xds_server.discovery.stream_state import StreamState
    from xds_server.snapshot.snapshot import Snapshot, SnapshotStore

_AIO: Any = grpc.aio
"""Untyped: the stubs lack the end-of-stream mark."""


class DiscoveryStream:
    """Runs one stream until the client ends it, a fault does, or `end` is called."""

    def __init__(
        self,
        machine: StreamState,
        store: SnapshotStore,
        record: Record,
        admission: Admission,
        delays: Delays,
        turns: Turns,
        introduce: Callable[[Client], None],
    ) -> None:
        """All streams share `turns`.

        `introduce` is called when the first message has named the node; it may raise to end the stream.
        """
        self.machine = machine
        self._turns = turns
        self._introduce = introduce
        self._store = store
        self._record = record
        self._admission = admission
        self._hold = _Timer(delays.hold_seconds)
        self._linger = _Timer(delays.linger_seconds)
        self._wake = asyncio.Event()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._half_closed = False

    def end(self) -> None:
        """Ask the stream to end, even while the client does not read."""
        if not self._ended.done():
            self._ended.set_result(None)

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
            self._hold.cancel()
            self._linger.cancel()
        try:
            if error is not None:
                raise error
        finally:
            # The error refers to this frame, which would keep the error and the client's last message until
            # the garbage collector runs: with many clients that is much memory.
            del error
        return self._ended.done()

    async def _until_one_ends(self, context: Any) -> BaseException | None:
        """Read and write until either ends, or `end` is called; return the error that ended it, if any."""
        reader = asyncio.create_task(self._read(context))
        tasks = reader, asyncio.create_task(self._write(context))
        try:
            done, others = await asyncio.wait({*tasks, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if done == {reader} and reader.exception() is None:
                # The client has half-closed; the writer ends after its last responses.
                done, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            # Outcomes of cancelled tasks are ignored; those of finished tasks are reported below.
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
            answer = await self._turns.run(partial(self.machine.receive, message))
            message = None  # It may be large, and the next one may be long in coming.
            if not introduced and self.machine.client is not None:
                introduced = True
                self._introduce(self.machine.client)
                self._record.opened(self.machine.client, context.peer())
            if answer is not None:
                assert self.machine.client is not None
                self._record.answered(self.machine.client, answer)
            if self.machine.unserved_requests > unserved:
                unserved = self.machine.unserved_requests
                self._record.metrics.unserved.inc()
            if not self.machine.clean:
                self._wake.set()

    async def _write(self, context: Any) -> None:
        await self._await_turn()
        while True:
            self._wake.clear()
            # Computed one by one under the newest snapshot: a slow client skips intermediate ones.
            while not self.machine.clean_under(self._snapshot()):
                response = await self._turns.run(self._next_response)
                if response is None:
                    break
                try:
                    await context.write(response.data)
                except grpc.aio.InternalError:
                    return  # The connection is gone.
                assert self.machine.client is not None
                self._record.pushed(self.machine.client, response.type_url, response.version)
                if response.type_url in (TYPE_LISTENER, TYPE_ROUTE):
                    self._linger.cancel()  # The clusters that these no longer name linger from now on.
            if self._half_closed:
                return
            self._hold.run_while(self.machine.holding(), self._end_hold)
            self._linger.run_while(self.machine.lingering(), self._end_linger)
            await self._wake.wait()

    def _next_response(self) -> Response | None:
        return self.machine.next_response(self._snapshot())

    async def _await_turn(self) -> None:
        """Return once there is a request and a snapshot, and this stream is admitted."""
        while self.machine.client is None or self._snapshot() is None:
            if self._half_closed:
                return
            self._wake.clear()
            await self._wake.wait()
        if await self._admission.enter():
            self._record.metrics.delayed.inc()

    def _snapshot(self) -> Snapshot | None:
        return self._store.snapshot_for(self.machine.client)

    def _end_hold(self) -> None:
        self.machine.release()
        self._wake.set()

    def _end_linger(self) -> None:
        self.machine.remove_lingering()
        self._wake.set()


class _Timer:
    """Calls back once a condition was true for some seconds.

    It keeps no reference to its stream, which would then wait for the garbage collector.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._handle: asyncio.TimerHandle | None = None

    def run_while(self, condition: bool, on_end: Callable[[], None]) -> None:  # noqa: FBT001 - no option
        """Start the timer, or let it go on, if the condition holds; cancel it otherwise."""
        if not condition:
            self.cancel()
        elif self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(self._seconds, self._end, on_end)

    def cancel(self) -> None:
        """Stop the timer if it runs."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _end(self, on_end: Callable[[], None]) -> None:
        self._handle = None
        on_end()
