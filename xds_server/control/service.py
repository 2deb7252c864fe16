"""The stream to ext_proc workers in other processes: membership and loads down, traffic up.

A stream's life: the worker sends a hello and receives the membership, then loads at each change of the
fleet's view. A changed membership is sent before the loads that refer to it. A worker that reads slowly
gets the newest view only. When its stream ends, its traffic is forgotten.

The requests in flight of other workers are also sent between two views, soon after their reports: with older
counts, two workers send to one endpoint the requests that one worker would spread. Missed requests are sent
in the same way, to all workers: the worker that picked corrects its index, and the others avoid the endpoint
for that prompt.

Membership and loads are the same for all workers, so they are encoded once a view, whatever the number of
workers. The requests of the others, which differ, are a small message of their own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError
from prometheus_client import Counter, Gauge

from fleet.codec import (
    decode_placements,
    decode_traffic,
    encode_in_flight,
    encode_loads,
    encode_membership,
    encode_missed,
    encode_placements,
    traffic_in_parts,
)
from fleet.errors import PeerError
from fleet.service.serving import PERMITTED_PING, add_methods
from fleet.service.turns import Turns
from fleet.signals import PICK_SIGNALS, rows_of
from fleet.wire import control_pb2
from xds_server.control.pulse import LEAST_APART_SECONDS, Pulse, apart_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.store import FleetStore, FleetView, Missed, Placement

logger = logging.getLogger(__name__)

_SERVICE: Final = control_pb2.DESCRIPTOR.services_by_name["FleetControl"].full_name
_MOST_AGE_SECONDS: Final = 0.25
"""Of encoded bytes: in older ones the ages of signals would be too small."""
_PICK_ROWS: Final = rows_of(PICK_SIGNALS)
MAX_WORKERS: Final = 512
"""Streams of workers, including those without a hello yet."""
MAX_NAME: Final = 256
WHOLE_BYTES: Final = 16 * 1024
"""Messages up to this size are read in one piece; larger ones, which can only be reports, in parts."""
MAX_BYTES: Final = 128 * 1024 * 1024
"""Of all reports that are being read in parts: a report of 10,000 endpoints has some 700 KB."""
MOST_PLACED: Final = 65_536
"""Placements that are kept for workers to come, some 10 MB."""
PLACED_AT_ONCE: Final = 1024
MOST_MISSED: Final = 1024
"""Missed requests in one message; older ones are dropped."""


T = TypeVar("T")


class Broadcast:
    """The newest view as bytes, made once for all workers; I/O-free."""

    def __init__(self) -> None:
        self._membership: tuple[Membership, bytes] | None = None
        self._view: FleetView | None = None
        self._sent: FleetView | None = None
        """The view at the last rise of `serial`."""
        self._encoded: tuple[int, float, bytes] | None = None
        self.serial = 0
        """Rises with each view that changes something for picks."""

    def take(self, view: FleetView) -> None:
        """Take a view; a view that changes nothing for picks has no effect."""
        if view is self._view:
            return
        self._view = view
        if not self._same_as_sent(view):
            self._sent = view
            self.serial += 1

    def membership(self) -> bytes:
        """Return the membership of the newest view."""
        assert self._sent is not None
        membership = self._sent.membership
        if self._membership is None or self._membership[0] is not membership:
            self._membership = membership, encode_membership(membership).SerializeToString()
        return self._membership[1]

    def loads(self, now: float) -> bytes:
        """Return the signals and weights of the newest view."""
        assert self._sent is not None
        encoded = self._encoded
        if encoded is None or encoded[0] != self.serial or now - encoded[1] > _MOST_AGE_SECONDS:
            message = encode_loads(self._sent, now).SerializeToString()
            encoded = self._encoded = self.serial, now, message
        return encoded[2]

    def _same_as_sent(self, view: FleetView) -> bool:
        sent = self._sent
        return (
            sent is not None
            and sent.membership is view.membership
            and sent.sampling_ratio_floor == view.sampling_ratio_floor
            and sent.weights == view.weights
            and sent.overridden == view.overridden
            and _named(sent) == _named(view)
            and sent.signals.same_observations(view.signals, _PICK_ROWS)
        )


def _named(view: FleetView) -> dict[str, tuple[int, bool]]:
    """Return the ranks of pools, without their signals: those change with the endpoints' own."""
    return {pool: (ranks.count, ranks.named) for pool, ranks in view.ranks.items()}


class NewestLog(Generic[T]):
    """The newest entries of a kind, which each worker receives once and in this order; I/O-free."""

    def __init__(self, most: int, at_once: int) -> None:
        """Store the `most` newest entries, and return `at_once` of them at a time."""
        self.total = 0
        self._at_once = at_once
        self._newest: deque[T] = deque(maxlen=most)

    def add(self, entry: T) -> None:
        """Add an entry; beyond the limit the oldest is dropped."""
        self.total += 1
        self._newest.append(entry)

    def since(self, total: int) -> list[T]:
        """Return the first stored entries after the first `total` of all."""
        newer = min(self.total - total, len(self._newest))
        # From behind: a worker usually lacks few, and a deque is slow in its middle.
        some = list(islice(reversed(self._newest), max(0, newer - self._at_once), newer))
        return some[::-1]


class WorkerStream:
    """What one worker has received; I/O-free."""

    def __init__(
        self, broadcast: Broadcast, log: NewestLog[Missed], placements: NewestLog[Placement]
    ) -> None:
        self.worker: str | None = None
        self._broadcast = broadcast
        self._log = log
        self._missed = log.total
        self._placements = placements
        self._placed: int | None = None
        self._membership: Membership | None = None
        self._serial: int | None = None
        self._elsewhere: tuple[Mapping[str, int], Mapping[str, float]] | None = None

    def receive(self, message: bytes, store: FleetStore) -> None:
        """Take a serialised hello or report.

        Raises:
            DecodeError: the bytes are no message.
            PeerError: a report before the hello, a second hello, one without a name or with a long one, or
                neither.
        """
        request = control_pb2.FollowRequest.FromString(message)
        kind = request.WhichOneof("kind")
        if kind == "hello" and self.worker is None and 0 < len(request.hello.worker) <= MAX_NAME:
            self.worker = request.hello.worker
        elif kind == "report" and self.worker is not None:
            if store.view is not None:
                store.report(self.worker, decode_traffic(request.report, store.view.membership))
        elif kind == "placed" and self.worker is not None:
            for placement in decode_placements(request.placed):
                store.publish_placed(placement)
        else:
            raise PeerError(f"unexpected {kind or 'empty message'}")

    def updates(self, view: FleetView, store: FleetStore, now: float) -> list[bytes]:
        """Return the serialised `FleetUpdate`s that bring the worker to a view."""
        messages = []
        broadcast = self._broadcast
        broadcast.take(view)
        if view.membership is not self._membership:
            messages.append(broadcast.membership())
            self._membership = view.membership
            self._serial = self._elsewhere = None
        messages += self.in_flight(store)
        if broadcast.serial != self._serial:
            messages.append(broadcast.loads(now))
            self._serial = broadcast.serial
        return messages

    def in_flight(self, store: FleetStore) -> list[bytes]:
        """Return the other workers' requests and prefill if they changed, for the worker's membership."""
        if self._membership is None:
            return []
        before, worker = self._elsewhere or ({}, {}), self.worker or ""
        elsewhere = store.in_flight(except_worker=worker), store.prefill(except_worker=worker)
        self._elsewhere = elsewhere
        if elsewhere == before:
            return []
        return [encode_in_flight(*elsewhere, self._membership).SerializeToString()]

    def missed(self) -> list[bytes]:
        """Return the missed requests that the worker has not received yet."""
        missed, self._missed = self._log.since(self._missed), self._log.total
        return [encode_missed(missed).SerializeToString()] if missed else []

    def placed(self) -> Iterator[bytes]:
        """Yield the placements that the worker has not received yet, at first even none.

        A worker sends its own once it has received some: older servers take none.
        """
        log = self._placements
        while self._placed is None or self._placed < log.total:
            some = log.since(self._placed or 0)
            yield control_pb2.FleetUpdate(placed=encode_placements(some)).SerializeToString()
            # What has been dropped meanwhile counts as received.
            self._placed = max(self._placed or 0, log.total - MOST_PLACED) + len(some)


class ControlService:
    """Serves `FleetControl` from a store."""

    def __init__(
        self, store: FleetStore, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._clock = clock
        self._broadcast = Broadcast()
        self._missed: NewestLog[Missed] = NewestLog(MOST_MISSED, MOST_MISSED)
        self._placements: NewestLog[Placement] = NewestLog(MOST_PLACED, PLACED_AT_ONCE)
        store.on_missed(self._take_missed)
        store.on_placed(self._take_placed)
        self._turns = Turns()
        self._open = self._bytes = 0
        self._streams: set[str] = set()
        self._reported = Pulse()
        self._serial = 0
        self._workers = Gauge("warmroute_workers", "ext_proc workers that follow", registry=registry)
        self._protocol_errors = Counter(
            "warmroute_worker_protocol_errors_total",
            "Worker streams ended because of what they sent",
            registry=registry,
        )
        self._faults = Counter(
            "warmroute_worker_faults_total", "Worker streams ended by a fault of ours", registry=registry
        )

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server; generated code would serialise for each worker."""
        follow = grpc.stream_stream_rpc_method_handler(self.follow)
        add_methods(server, _SERVICE, {"Follow": follow})

    async def follow(
        self, request_iterator: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        """One worker's stream; yields serialised `FleetUpdate`s."""
        if self._open >= MAX_WORKERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {MAX_WORKERS} workers")
        self._open += 1
        try:
            async for update in self._follow(request_iterator, context):
                yield update
        except (PeerError, DecodeError) as error:
            self._protocol_errors.inc()
            status = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except Exception:  # the one edge: a fault of ours ends this stream, never the others
            self._faults.inc()
            logger.exception("a worker's stream failed")
            status = grpc.StatusCode.INTERNAL, "internal error"
        else:
            return
        finally:
            self._open -= 1
        # After the `except` blocks: otherwise gRPC would keep the error and the worker's last message until
        # the garbage collector runs.
        await context.abort(*status)

    async def _follow(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        stream = WorkerStream(self._broadcast, self._missed, self._placements)
        first = await anext(requests, None)
        if first is None:
            return
        await self._take(stream, first)
        del first  # It may be large, and the stream lasts.
        assert stream.worker is not None
        await context.send_initial_metadata(PERMITTED_PING)
        # A worker may reconnect before its broken stream has ended here, so each stream has a key of its own.
        self._serial += 1
        stream.worker = key = f"{stream.worker}#{self._serial}"
        self._streams.add(key)
        self._workers.set(len(self._streams))
        logger.info("worker %s follows", key)
        reader = asyncio.create_task(self._read(stream, requests))
        try:
            async for update in self._updates(stream, reader):
                yield update
            await reader
        finally:
            # This cleanup comes first, whatever the reader raises.
            reader.cancel()
            self._streams.discard(key)
            self._workers.set(len(self._streams))
            self._store.forget_worker(key)
            self._schedule_counts()
            logger.info("worker %s has left", key)
            await asyncio.gather(reader, return_exceptions=True)
            del reader  # Its error has this frame.

    async def _updates(self, stream: WorkerStream, reader: asyncio.Task[None]) -> AsyncIterator[bytes]:
        sent, beats = None, 0
        while not reader.done():
            view = self._store.view
            if view is not None and view is not sent:
                sent, beats = view, self._reported.beats
                for update in (*stream.updates(view, self._store, self._clock()), *stream.missed()):
                    yield update
                for update in stream.placed():
                    yield update
                continue
            change = asyncio.create_task(self._store.changed(sent))
            report = asyncio.create_task(self._reported.beyond(beats))
            try:
                await asyncio.wait((change, report, reader), return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
                report.cancel()
            if self._reported.beats > beats:
                beats = self._reported.beats
                for update in (*stream.in_flight(self._store), *stream.missed()):
                    yield update
                for update in stream.placed():
                    yield update

    async def _read(self, stream: WorkerStream, messages: AsyncIterator[bytes]) -> None:
        async for message in messages:
            await self._take(stream, message)
            del message  # It may be large, and the next one may be long in coming.
            if len(self._streams) > 1:
                self._schedule_counts()

    async def _take(self, stream: WorkerStream, message: bytes) -> None:
        """Take a message, by turns.

        Raises:
            DecodeError: it is none.
            PeerError: as `WorkerStream.receive`, or there are too many bytes to be read.
        """
        if len(message) <= WHOLE_BYTES:
            await self._turns.run(partial(stream.receive, message, self._store))
            return
        view = self._store.view
        if stream.worker is None or view is None:
            raise PeerError(f"unexpected message of {len(message)} bytes")
        if self._bytes + len(message) > MAX_BYTES:
            raise PeerError(f"a report of {len(message)} bytes; allowed: {MAX_BYTES} of all workers at once")
        self._bytes += len(message)
        try:
            parts = await self._turns.run_all(traffic_in_parts(message, view.membership))
        finally:
            self._bytes -= len(message)
        self._store.report(stream.worker, [*chain.from_iterable(parts)])

    def _take_missed(self, missed: Missed) -> None:
        """Schedule a missed request for the workers, if there are any."""
        if self._streams:
            self._missed.add(missed)
            self._reported.schedule(LEAST_APART_SECONDS)

    def _take_placed(self, placement: Placement) -> None:
        """Keep a placement, and schedule it for the workers that follow."""
        self._placements.add(placement)
        if self._streams:
            self._reported.schedule(LEAST_APART_SECONDS)

    def _schedule_counts(self) -> None:
        """Send changed counts to workers without waiting for a tick."""
        view = self._store.view
        if view is not None:
            self._reported.schedule(apart_seconds(len(view.membership.addresses), len(self._streams)))
