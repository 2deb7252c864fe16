"""Follows xds_server's stream into a store of this process, for an ext_proc that runs apart.

When the stream breaks, the store keeps the last view: picks go on, with ages that grow, until the follower
has connected again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from fleet.codec import (
    decode_in_flight,
    decode_loads,
    decode_membership,
    decode_missed,
    decode_placements,
    decode_prefill,
    encode_placements,
    encode_traffic,
)
from fleet.errors import PeerError
from fleet.service.credentials import Dialler
from fleet.service.reconnect import Options, Reconnector
from fleet.service.serving import permitted_ping_seconds
from fleet.token_bucket import TokenBucket
from fleet.wire import control_pb2, control_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    import grpc
    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.store import FleetStore, FleetView, Placement, Traffic

REPORT_INTERVAL_SECONDS: Final = 0.25
"""Between reports without a change, and at most between reports on many endpoints."""
_LEAST_REPORT_SECONDS: Final = 0.05
"""The other workers pick by these counts, which are soon out of date."""
_REPORT_SECONDS_PER_ENDPOINT: Final = 0.001
"""Reading a report takes xds_server some microseconds an endpoint."""
MOST_PLACED: Final = 16_384
"""Placements that wait for xds_server."""
_PLACED_AT_ONCE: Final = 128
FIRST_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 2.0
_OPTIONS: Final = Options(
    address="control.address",
    tls="tls.control and tls.workers",
    authority="tls.workers.ca_file",
    server_name="tls.workers.server_name",
)


class Following:
    """Builds views from the messages of one stream; I/O-free."""

    def __init__(self) -> None:
        self._membership: Membership | None = None
        self._elsewhere: Mapping[str, int] = {}
        self._prefill: Mapping[str, float] = {}
        self._view: FleetView | None = None

    def on_update(
        self, update: control_pb2.FleetUpdate, view: FleetView | None, now: float
    ) -> FleetView | None:
        """Return the view after an update to `view`; None before the first loads.

        Raises:
            PeerError: loads or counts come before any membership, or do not fit it.
        """
        kind = update.WhichOneof("kind")
        if kind == "membership":
            membership = decode_membership(update.membership)
            # The same object stays in the view: readers recognise an unchanged membership by identity.
            same = view is not None and view.membership == membership
            self._membership = view.membership if view is not None and same else membership
            self._elsewhere, self._prefill, self._view = {}, {}, None
            return None
        if self._membership is None:
            raise PeerError("loads before any membership")
        if kind == "in_flight":
            self._elsewhere = decode_in_flight(update.in_flight, self._membership)
            self._prefill = decode_prefill(update.in_flight, self._membership)
        elif kind == "loads":
            self._view = decode_loads(update.loads, self._membership, now)
        if self._view is not None:
            self._view = replace(
                self._view, in_flight_elsewhere=self._elsewhere, prefill_elsewhere=self._prefill
            )
        return self._view


class Reports:
    """Decides when to report traffic: changed counts at once, the rest after `REPORT_INTERVAL_SECONDS`."""

    def __init__(self) -> None:
        self._counts: list[tuple[str, int, float | None]] | None = None
        self._next_at = 0.0

    def starts(self, traffic: Sequence[Traffic], now: float) -> bool:
        """Return whether to report now, and remember the report."""
        counts = [(entry.address, entry.in_flight, entry.prefill_seconds_total) for entry in traffic]
        if counts == self._counts and now < self._next_at:
            return False
        self._counts, self._next_at = counts, now + REPORT_INTERVAL_SECONDS
        return True


def pause_seconds(endpoints: int) -> float:
    """Return the pause between two looks at the traffic of this number of endpoints.

    A pick is reported at once, if there were few within the last pauses, see `TokenBucket`.
    """
    return min(REPORT_INTERVAL_SECONDS, max(_LEAST_REPORT_SECONDS, _REPORT_SECONDS_PER_ENDPOINT * endpoints))


class Follower:
    """Keeps a store in step with xds_server."""

    def __init__(
        self,
        address: str,
        worker: str,
        store: FleetStore,
        traffic: Callable[[], Iterable[Traffic]],
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
        dialler: Dialler | None = None,
        booked: asyncio.Event | None = None,
    ) -> None:
        """`booked` is set at each pick: without it, picks wait for the next look at the traffic."""
        self._booked = asyncio.Event() if booked is None else booked
        self._placed: deque[Placement] = deque(maxlen=MOST_PLACED)
        self._takes_placements = False
        """Whether the xds_server of this stream takes placements: older ones end the stream."""
        self._worker = worker
        self._store = store
        self._traffic = traffic
        self._clock = clock
        self._reconnector = Reconnector(
            dialler or Dialler(address),
            _OPTIONS,
            (FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS),
            Gauge("warmroute_follower_connected", "1 while xds_server sends updates", registry=registry),
            Counter("warmroute_follower_breaks_total", "Broken streams to xds_server", registry=registry),
        )

    def place(self, placement: Placement) -> None:
        """Pass a placement on to xds_server; those of a time without it are kept, up to `MOST_PLACED`."""
        self._placed.append(placement)
        self._booked.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._reconnector.run(self._follow)

    async def _follow(self, channel: grpc.aio.Channel) -> None:
        """Follow one stream to its end.

        Raises:
            PeerError: an update cannot be applied.
        """
        following = Following()
        self._takes_placements = False
        reconnector = self._reconnector
        call = control_pb2_grpc.FleetControlStub(channel).Follow(self._requests())
        first = True
        try:
            async for update in call:
                if first:
                    first = False
                    reconnector.works()
                    permitted = permitted_ping_seconds(await call.initial_metadata())
                    if reconnector.dialler.limit_pings(permitted):
                        return
                if update.HasField("missed"):
                    for missed in decode_missed(update.missed):
                        self._store.publish_missed(missed)
                    continue
                if update.HasField("placed"):
                    self._takes_placements = True
                    self._booked.set()
                    for placement in decode_placements(update.placed):
                        self._store.publish_placed(placement)
                    continue
                view = following.on_update(update, self._store.view, self._clock())
                if view is not None:
                    self._store.publish(view)
        finally:
            call.cancel()

    async def _requests(self) -> AsyncIterator[control_pb2.FollowRequest]:
        yield control_pb2.FollowRequest(hello=control_pb2.Hello(worker=self._worker))
        reports, bucket = Reports(), TokenBucket()
        while True:
            self._booked.clear()
            while self._placed and self._takes_placements:
                some = [self._placed.popleft() for _ in range(min(len(self._placed), _PLACED_AT_ONCE))]
                yield control_pb2.FollowRequest(placed=encode_placements(some))
            traffic = list(self._traffic())
            if reports.starts(traffic, self._clock()):
                yield encode_traffic(traffic)
            pause = pause_seconds(len(traffic))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._booked.wait()
                    now = self._clock()
                    at = bucket.at(now, pause)
                    bucket.take(at, pause)
                    # Picks of the same turn of the loop are in the same report.
                    await asyncio.sleep(at - now)
