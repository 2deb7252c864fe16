"""The discovery service: ADS and the four separate services, SotW and delta, on one loop.

Here, and only here, a client's protocol error becomes INVALID_ARGUMENT and a fault of our own
INTERNAL; either ends that one stream. The creator of the `grpc.aio.Server` sets its options (message
size, keepalive).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from typing import TYPE_CHECKING, Any, Final

import grpc

from fleet.errors import PeerError
from fleet.names import (
    RESOURCE_TYPES,
    SERVED_TYPES,
    TYPE_CLUSTER,
    TYPE_ENDPOINT,
    TYPE_LISTENER,
    TYPE_ROUTE,
)
from fleet.service.serving import add_methods
from fleet.service.turns import Turns
from xds_server.discovery.admission import Admission
from xds_server.discovery.delta import Delta
from xds_server.discovery.ordering import Delays
from xds_server.discovery.shared_response import SharedResponseCache
from xds_server.discovery.sotw import Sotw
from xds_server.discovery.status import (
    ClientStatus,
    DiscoveryMetrics,
    DiscoveryObserver,
    Record,
    newest_subscriptions,
    status_of,
)
from xds_server.discovery.stream import DiscoveryStream
from xds_server.discovery.stream_state import NameBudget

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from prometheus_client import CollectorRegistry

    from xds_server.discovery.client import Client
    from xds_server.discovery.stream_state import StreamState
    from xds_server.snapshot.snapshot import SnapshotStore

logger = logging.getLogger(__name__)

_SERVICES: Final = (
    ("discovery.v3.AggregatedDiscoveryService", "AggregatedResources", None),
    ("cluster.v3.ClusterDiscoveryService", "Clusters", TYPE_CLUSTER),
    ("endpoint.v3.EndpointDiscoveryService", "Endpoints", TYPE_ENDPOINT),
    ("listener.v3.ListenerDiscoveryService", "Listeners", TYPE_LISTENER),
    ("route.v3.RouteDiscoveryService", "Routes", TYPE_ROUTE),
)
"""Service below `envoy.service`, method after Stream/Delta, the one type it serves."""
Node = tuple[str, str]
"""Node id and cluster."""


class DiscoveryService:
    """Serves the newest snapshot of `store` to any number of clients up to `max_streams`.

    `admission` bounds the rate of first responses to new streams. `may_have_keys` decides by a stream's
    context whether it may receive secrets; otherwise they count as a type that is not served.
    """

    def __init__(
        self,
        store: SnapshotStore,
        registry: CollectorRegistry,
        max_streams: int,
        *,
        observers: Sequence[DiscoveryObserver] = (),
        delays: Delays | None = None,
        admission: Admission | None = None,
        may_have_keys: Callable[[Any], bool] = lambda _context: True,
    ) -> None:
        self._store = store
        self._metrics = DiscoveryMetrics(registry)
        self._record = Record(observers, self._metrics)
        self._max_streams = max_streams
        self._delays = delays or Delays()
        self._admission = admission or Admission()
        self._may_have_keys = may_have_keys
        self._budget = NameBudget()
        self._turns = Turns()
        self._streams: dict[int, DiscoveryStream] = {}
        self._nodes: dict[Node, dict[int, StreamState]] = {}
        """The same streams by node, the oldest first. If each view of all clients grouped them, its objects
        would make Python collect its garbage in full, which stops the loop."""
        self._silent: dict[int, DiscoveryStream] = {}
        """Streams that have not named their node, the oldest first: they take no client's place."""
        self._numbers = itertools.count(1)
        # Nonces differ from those of an earlier process, so that a client's old nonce never matches.
        self._boot = uuid.uuid4().hex[:8]
        self._shared_responses = {
            kind: SharedResponseCache(kind.compose, f"{self._boot}-{kind.name}") for kind in (Sotw, Delta)
        }
        self._draining = False

    def register(self, server: grpc.aio.Server) -> None:
        """Add all ten methods to a server that has not started."""
        for service, method, only_type in _SERVICES:
            handlers = {
                f"Stream{method}": _handler(self._method(Sotw, only_type)),
                f"Delta{method}": _handler(self._method(Delta, only_type)),
            }
            add_methods(server, f"envoy.service.{service}", handlers)

    def clients(self) -> list[ClientStatus]:
        """Each connected node with its versions, sorted by node id; slow for many nodes."""
        return [status for node in self.nodes() if (status := self.status(node)) is not None]

    def nodes(self) -> list[Node]:
        """Return each connected node, sorted."""
        return sorted(self._nodes)

    def status(self, node: Node) -> ClientStatus | None:
        """Return the versions of a node; None: it is not connected."""
        streams = self._nodes.get(node)
        return None if streams is None else status_of([*streams.values()])

    def unacknowledged(self) -> tuple[int, list[tuple[str, str, str]]]:
        """Return the number of connected nodes, and node id, cluster and type of each pending ACK."""
        return len(self._nodes), [
            (*node, type_url)
            for node, streams in self._nodes.items()
            for type_url, newest in newest_subscriptions(streams.values()).items()
            if newest.sent_version and newest.sent_version != newest.acked_version
        ]

    async def drain(self, seconds: float) -> None:
        """Refuse new streams and end the present ones with UNAVAILABLE, evenly over `seconds`.

        Spread, so that a fleet does not reconnect elsewhere all at once.
        """
        self._draining = True
        streams = [*self._silent.values(), *self._streams.values()]
        for stream in streams:
            stream.end()
            await asyncio.sleep(seconds / len(streams))

    def _method(
        self, variant: type[Sotw | Delta], only_type: str | None
    ) -> Callable[[Any, Any], Awaitable[None]]:
        async def method(_: Any, context: Any) -> None:
            status = await self._serve(variant, only_type, context)
            if status is not None:
                # gRPC keeps the exception of `abort` and this frame until the garbage collector runs.
                await context.abort(*status)

        return method

    async def _serve(
        self, variant: type[Sotw | Delta], only_type: str | None, context: Any
    ) -> tuple[grpc.StatusCode, str] | None:
        """Run a stream; return the status to end it with, None for OK."""
        if self._draining:
            self._metrics.rejected.inc()
            return grpc.StatusCode.UNAVAILABLE, "draining"
        if len(self._streams) >= self._max_streams:
            self._metrics.rejected.inc()
            return self._full()
        if len(self._silent) >= self._max_streams:
            self._silent.pop(next(iter(self._silent))).end()
        number = next(self._numbers)
        nonces = itertools.count(1)
        machine = variant(
            lambda: f"{self._boot}-{number}-{next(nonces)}",
            only_type=only_type,
            served=SERVED_TYPES if self._may_have_keys(context) else RESOURCE_TYPES,
            lingers=True,
            shared_responses=self._shared_responses[variant],
            budget=self._budget,
        )
        stream = DiscoveryStream(
            machine,
            self._store,
            self._record,
            self._admission,
            self._delays,
            self._turns,
            lambda client: self._introduce(number, client),
        )
        self._silent[number] = stream
        self._metrics.streams.inc()
        try:
            return await self._run(stream, context)
        finally:
            self._silent.pop(number, None)
            self._metrics.streams.dec()
            machine.leave()
            if machine.client is not None:
                self._forget(number, machine.client)
                self._record.closed(machine.client, machine.subscriptions)

    def _introduce(self, number: int, client: Client) -> None:
        """Move a stream from the silent ones to those of known nodes.

        Raises:
            _FullError: `max_streams` is reached.
        """
        stream = self._silent.pop(number, None)
        if stream is None or len(self._streams) >= self._max_streams:
            raise _FullError
        self._streams[number] = stream
        self._nodes.setdefault((client.node_id, client.cluster), {})[number] = stream.machine

    def _forget(self, number: int, client: Client) -> None:
        if self._streams.pop(number, None) is not None:
            node = client.node_id, client.cluster
            del self._nodes[node][number]
            if not self._nodes[node]:
                del self._nodes[node]

    def _full(self) -> tuple[grpc.StatusCode, str]:
        return grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {self._max_streams} streams"

    async def _run(self, stream: DiscoveryStream, context: Any) -> tuple[grpc.StatusCode, str] | None:
        """Run a stream; return the status to end it with, None for OK."""
        try:
            ended_by_us = await stream.run(context)
        except _FullError:
            self._metrics.rejected.inc()
            return self._full()
        except PeerError as error:
            self._metrics.peer_errors.inc()
            logger.warning("A discovery client broke the protocol: %s", error)
            return grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except Exception:  # the one edge: a fault of ours ends this stream, never the others
            self._metrics.faults.inc()
            logger.exception("A discovery stream failed")
            return grpc.StatusCode.INTERNAL, "internal error"
        if not ended_by_us:
            return None
        if self._draining:
            return grpc.StatusCode.UNAVAILABLE, "draining"
        self._metrics.rejected.inc()
        return self._full()


class _FullError(Exception):
    """A client beyond `max_streams`."""


def _handler(method: Callable[[Any, Any], Awaitable[None]]) -> Any:
    # Bytes both ways: `StreamState` reports unparsable requests; responses are serialised already.
    return grpc.stream_stream_rpc_method_handler(method, request_deserializer=None, response_serializer=None)
