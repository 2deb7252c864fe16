"""Follows xds_server's stream into a store of our own, for an ext_proc that runs apart.

When the stream breaks, the store keeps the last view: picks go on, on ages that grow, and the
follower reconnects with jittered, bounded back-off.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import grpc
from prometheus_client import Counter, Gauge

from fleet.codec import decode_in_flight, decode_loads, decode_membership, decode_missed, encode_traffic
from fleet.errors import PeerError
from fleet.service.credentials import Dialler
from fleet.service.serving import permitted_ping_seconds
from fleet.service.stream_errors import describe, explain
from fleet.wire import control_pb2, control_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Membership
    from fleet.store import FleetStore, FleetView, Traffic

logger = logging.getLogger(__name__)

REPORT_INTERVAL_SECONDS: Final = 0.25
"""Without any change of what is in flight, and for many endpoints, whatever changes."""
_LEAST_REPORT_SECONDS: Final = 0.05
"""The other workers choose by these counts: those that are older are of endpoints as they were."""
_REPORT_SECONDS_PER_ENDPOINT: Final = 0.001
"""Reading a report takes xds_server some microseconds an endpoint."""
FIRST_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 2.0
_TLS: Final = {
    "options": "tls.control and tls.workers",
    "authority": "tls.workers.ca_file",
    "name": "tls.workers.server_name",
}
TRIES_IN_VAIN: Final = 5
"""After so many in a row, some seconds, a missing xds_server is logged: one that starts with us is there."""


class Following:
    """The view that the messages of one stream lead to; I/O-free."""

    def __init__(self) -> None:
        self._membership: Membership | None = None
        self._elsewhere: Mapping[str, int] = {}
        self._view: FleetView | None = None

    def on_update(
        self, update: control_pb2.FleetUpdate, view: FleetView | None, now: float
    ) -> FleetView | None:
        """Turn an update into the view that it leads to, after `view`; None without loads so far.

        Raises:
            PeerError: loads or counts before any membership, or such that do not fit it.
        """
        kind = update.WhichOneof("kind")
        if kind == "membership":
            membership = decode_membership(update.membership)
            # The same object stays in the view, so that readers see by identity that nothing moved.
            same = view is not None and view.membership == membership
            self._membership = view.membership if view is not None and same else membership
            self._elsewhere, self._view = {}, None
            return None
        if self._membership is None:
            raise PeerError("loads before any membership")
        if kind == "in_flight":
            self._elsewhere = decode_in_flight(update.in_flight, self._membership)
        elif kind == "loads":
            self._view = decode_loads(update.loads, self._membership, now)
        if self._view is not None:
            self._view = replace(self._view, in_flight_elsewhere=self._elsewhere)
        return self._view


class Reports:
    """Which of the looks at the traffic are worth a report: changed counts at once, the rest now and then."""

    def __init__(self) -> None:
        self._counts: list[tuple[str, int]] | None = None
        self._due_at = 0.0

    def due(self, traffic: Sequence[Traffic], now: float) -> bool:
        """Whether to report now; what is, is taken for reported."""
        counts = [(entry.address, entry.in_flight) for entry in traffic]
        if counts == self._counts and now < self._due_at:
            return False
        self._counts, self._due_at = counts, now + REPORT_INTERVAL_SECONDS
        return True


def pause_seconds(endpoints: int) -> float:
    """Return how long to wait between two looks at the traffic of so many endpoints."""
    return min(REPORT_INTERVAL_SECONDS, max(_LEAST_REPORT_SECONDS, _REPORT_SECONDS_PER_ENDPOINT * endpoints))


class Follower:
    """Keeps a store in step with xds_server, for ever."""

    def __init__(
        self,
        address: str,
        worker: str,
        store: FleetStore,
        traffic: Callable[[], Iterable[Traffic]],
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
        dialler: Dialler | None = None,
    ) -> None:
        self._address = address
        self._dialler = dialler or Dialler(address)
        self._worker = worker
        self._store = store
        self._traffic = traffic
        self._clock = clock
        self._in_vain = 0
        """Streams in a row without a message."""
        self._connected = Gauge(
            "warmroute_follower_connected", "1 while xds_server is heard", registry=registry
        )
        self._breaks = Counter(
            "warmroute_follower_breaks_total", "Broken streams to xds_server", registry=registry
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            async with self._dialler.open() as channel:
                stub = control_pb2_grpc.FleetControlStub(channel)
                while not self._dialler.stale:
                    received = await self._follow(stub)
                    self._connected.set(0)
                    self._breaks.inc()
                    backoff = FIRST_BACKOFF_SECONDS if received else min(2 * backoff, MAX_BACKOFF_SECONDS)
                    await asyncio.sleep(backoff * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret

    async def _follow(self, stub: control_pb2_grpc.FleetControlStub) -> bool:
        """Follow one stream to its end; returns whether any message came."""
        received = False
        following = Following()
        call = stub.Follow(self._requests())
        try:
            async for update in call:
                if not received:
                    logger.info("following xds_server at %s", self._address)
                    self._connected.set(1)
                    received = True
                    if self._dialler.limit_pings(permitted_ping_seconds(await call.initial_metadata())):
                        break
                if update.HasField("missed"):
                    for missed in decode_missed(update.missed):
                        self._store.publish_missed(missed)
                    continue
                view = following.on_update(update, self._store.view, self._clock())
                if view is not None:
                    self._store.publish(view)
        except grpc.aio.AioRpcError as error:
            self._broke(error, received=received)
        except PeerError as error:
            logger.warning("xds_server at %s: %s", self._address, error)
        finally:
            call.cancel()
        return received

    def _broke(self, error: grpc.aio.AioRpcError, *, received: bool) -> None:
        """Log the end of a stream; of those without a message, once when there were several in a row."""
        self._in_vain = 0 if received else self._in_vain + 1
        if received:
            logger.warning(
                "stream to xds_server at %s broke (%s): going on with what is known",
                self._address,
                describe(error),
            )
        elif self._in_vain == TRIES_IN_VAIN:
            at = f"control.address {self._address}"
            logger.warning("%s", explain(error, at, tls=self._dialler.speaks_tls, **_TLS))

    async def _requests(self) -> AsyncIterator[control_pb2.FollowRequest]:
        yield control_pb2.FollowRequest(hello=control_pb2.Hello(worker=self._worker))
        reports = Reports()
        while True:
            traffic = list(self._traffic())
            if reports.due(traffic, self._clock()):
                yield encode_traffic(traffic)
            await asyncio.sleep(pause_seconds(len(traffic)))
