"""The stream to ext_proc workers that run apart: membership and loads down, traffic up.

A stream's life: the worker says hello; it is told the membership, then loads at each change of the
fleet's view; a changed membership is told before the loads that refer to it. A worker that reads slowly
gets the newest view only. When its stream ends, its traffic is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError
from prometheus_client import Counter, Gauge

from fleet.codec import decode_traffic, encode_loads, encode_membership
from fleet.errors import PeerError
from fleet.store import FleetView
from fleet.wire import control_pb2, control_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.store import FleetStore

logger = logging.getLogger(__name__)


class WorkerStream:
    """What one worker has been told; I/O-free."""

    def __init__(self) -> None:
        self.worker: str | None = None
        self._told: Membership | None = None

    def on_request(self, request: control_pb2.FollowRequest, store: FleetStore) -> None:
        """Take a hello or a report.

        Raises:
            PeerError: a report before the hello, a second hello, or neither.
        """
        kind = request.WhichOneof("kind")
        if kind == "hello" and self.worker is None and request.hello.worker:
            self.worker = request.hello.worker
        elif kind == "report" and self.worker is not None:
            store.report(self.worker, decode_traffic(request.report))
        else:
            raise PeerError(f"unexpected {kind or 'empty message'}")

    def updates(self, view: FleetView, store: FleetStore, now: float) -> list[control_pb2.FleetUpdate]:
        """What the worker must be told of a view."""
        messages = []
        if view.membership is not self._told:
            messages.append(encode_membership(view.membership))
            self._told = view.membership
        elsewhere = store.in_flight(except_worker=self.worker or "")
        whole = FleetView(view.membership, view.weights, view.loads, elsewhere)
        messages.append(encode_loads(whole, now))
        return messages


class ControlService(control_pb2_grpc.FleetControlServicer):  # type: ignore[misc]  # untyped base
    """Serves `FleetControl` from a store."""

    def __init__(
        self, store: FleetStore, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._clock = clock
        self._streams: set[str] = set()
        self._serial = 0
        self._workers = Gauge("warmroute_workers", "ext_proc workers that follow", registry=registry)
        self._refused = Counter(
            "warmroute_worker_protocol_errors_total",
            "Worker streams ended because of what they sent",
            registry=registry,
        )

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        control_pb2_grpc.add_FleetControlServicer_to_server(self, server)

    async def Follow(  # noqa: N802 - the name that the generated code calls
        self,
        request_iterator: AsyncIterator[control_pb2.FollowRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[control_pb2.FleetUpdate]:
        """One worker's stream."""
        stream = WorkerStream()
        try:
            stream.on_request(await anext(request_iterator), self._store)
        except StopAsyncIteration:
            return
        except (PeerError, DecodeError) as error:
            self._refused.inc()
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        assert stream.worker is not None
        # A worker may be back before its broken stream has ended here: what counts is the stream.
        self._serial += 1
        stream.worker = key = f"{stream.worker}#{self._serial}"
        self._streams.add(key)
        self._workers.set(len(self._streams))
        logger.info("worker %s follows", key)
        reader = asyncio.create_task(self._read(stream, request_iterator))
        try:
            async for update in self._updates(stream, reader):
                yield update
            await self._end(reader, context)
        finally:
            # First what must not be left out, whatever the reader ended with.
            reader.cancel()
            self._streams.discard(key)
            self._workers.set(len(self._streams))
            self._store.forget_worker(key)
            logger.info("worker %s has left", key)
            await asyncio.gather(reader, return_exceptions=True)

    async def _updates(
        self, stream: WorkerStream, reader: asyncio.Task[None]
    ) -> AsyncIterator[control_pb2.FleetUpdate]:
        told = None
        while not reader.done():
            view = self._store.view
            if view is not None and view is not told:
                told = view
                for update in stream.updates(view, self._store, self._clock()):
                    yield update
                continue
            change = asyncio.create_task(self._store.changed(told))
            try:
                await asyncio.wait((change, reader), return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()

    async def _read(self, stream: WorkerStream, requests: AsyncIterator[control_pb2.FollowRequest]) -> None:
        async for request in requests:
            stream.on_request(request, self._store)

    async def _end(self, reader: asyncio.Task[None], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        error = reader.exception() if reader.done() and not reader.cancelled() else None
        if isinstance(error, PeerError | DecodeError):
            self._refused.inc()
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if error is not None:
            raise error
