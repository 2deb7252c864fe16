"""A plain discovery client that checks every message it hears, and makers of small resources."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.envoy_api.config.listener.v3 import listener_pb2
from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.envoy_api.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2
from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE, TYPE_SECRET
from tests.xds_server.transports import TRANSPORTS, server_of
from xds_server.discovery.delta import Delta
from xds_server.discovery.server import DiscoveryService
from xds_server.discovery.sotw import Sotw
from xds_server.discovery.stream_state import StreamState
from xds_server.snapshot.snapshot import Resource, Snapshot, SnapshotStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

FULL_STATE = (TYPE_CLUSTER, TYPE_LISTENER)
SEPARATE = {
    TYPE_CLUSTER: "/envoy.service.cluster.v3.ClusterDiscoveryService/{}Clusters",
    TYPE_ENDPOINT: "/envoy.service.endpoint.v3.EndpointDiscoveryService/{}Endpoints",
    TYPE_LISTENER: "/envoy.service.listener.v3.ListenerDiscoveryService/{}Listeners",
    TYPE_ROUTE: "/envoy.service.route.v3.RouteDiscoveryService/{}Routes",
}
AGGREGATED = "/envoy.service.discovery.v3.AggregatedDiscoveryService/{}AggregatedResources"
VARIANTS: dict[str, tuple[str, Any, Any]] = {
    "sotw": ("Stream", discovery_pb2.DiscoveryRequest, discovery_pb2.DiscoveryResponse),
    "delta": ("Delta", discovery_pb2.DeltaDiscoveryRequest, discovery_pb2.DeltaDiscoveryResponse),
}
MESSAGES: dict[str, tuple[Any, str]] = {
    TYPE_CLUSTER: (cluster_pb2.Cluster, "name"),
    TYPE_ENDPOINT: (endpoint_pb2.ClusterLoadAssignment, "cluster_name"),
    TYPE_LISTENER: (listener_pb2.Listener, "name"),
    TYPE_ROUTE: (route_pb2.RouteConfiguration, "name"),
    TYPE_SECRET: (secret_pb2.Secret, "name"),
}


def _resource(name: str, type_url: str, message: Any) -> Resource:
    return Resource.of(name, type_url, message.SerializeToString(deterministic=True))


def cluster(name: str, *, seconds: int = 1, service: str = "", secret: str = "") -> Resource:
    """An EDS cluster; with TLS, whose authorities are a secret over ADS, if `secret` names one."""
    message = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.EDS)
    message.eds_cluster_config.service_name = service
    message.connect_timeout.seconds = seconds
    if secret:
        context = tls_pb2.UpstreamTlsContext()
        config = context.common_tls_context.validation_context_sds_secret_config
        config.name = secret
        config.sds_config.ads.SetInParent()
        message.transport_socket.typed_config.Pack(context)
    return _resource(name, TYPE_CLUSTER, message)


def assignment(name: str, *weights: int) -> Resource:
    """An assignment with one endpoint a weight."""
    message = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    group = message.endpoints.add()
    for port, weight in enumerate(weights, 9001):
        entry = group.lb_endpoints.add()
        entry.endpoint.address.socket_address.address = "127.0.0.1"
        entry.endpoint.address.socket_address.port_value = port
        entry.load_balancing_weight.value = weight
    return _resource(name, TYPE_ENDPOINT, message)


def listener(name: str, prefix: str = "") -> Resource:
    """A listener; `prefix` makes contents differ."""
    return _resource(name, TYPE_LISTENER, listener_pb2.Listener(name=name, stat_prefix=prefix))


def secret(name: str, content: str = "") -> Resource:
    """Authorities; `content` makes them differ."""
    message = secret_pb2.Secret(name=name)
    message.validation_context.trusted_ca.inline_string = content
    return _resource(name, TYPE_SECRET, message)


def route(name: str, target: str) -> Resource:
    """Routes that send everything to one cluster."""
    message = route_pb2.RouteConfiguration(name=name)
    host = message.virtual_hosts.add(name="all", domains=["*"])
    entry = host.routes.add()
    entry.match.prefix = "/"
    entry.route.cluster = target
    return _resource(name, TYPE_ROUTE, message)


@dataclass
class _TypeState:
    """The client's state of one type."""

    names: set[str]
    resources: dict[str, bytes]
    version: str = ""
    nonce: str = ""
    expects: bool = True
    """A subscription still waits for its response."""
    removed: tuple[str, ...] = ()
    wildcard: bool = False


class Peer:
    """A client without transport: makes requests, takes responses, asserts the protocol's invariants."""

    def __init__(self, variant: str, node: str = "node-1") -> None:
        self.variant = variant
        self.node = node
        self.received: dict[str, _TypeState] = {}
        self.nonces: set[str] = set()
        self.response_types: list[str] = []
        self.introduced: set[str] = set()

    def ask(
        self, type_url: str, names: Collection[str] = (), *, again: Collection[str] = (), lane: str = ""
    ) -> Any:
        """Subscribe to exactly `names`; `again` are asked for although subscribed."""
        legacy = type_url not in self.received and type_url in FULL_STATE and not names
        state = self.received.setdefault(type_url, _TypeState(set(), {}))
        kept = state.wildcard and (self.variant == "delta" or not names) and "*" not in state.names
        state.wildcard = legacy or kept or "*" in names
        subscribed, old = set(names), state.names
        state.names = subscribed
        state.expects = state.expects or bool(subscribed - old) or bool(again)
        if type_url not in FULL_STATE:
            for name in old - subscribed:
                state.resources.pop(name, None)
        if self.variant == "sotw":
            request = self._request(type_url, lane)
            request.resource_names.extend(sorted(subscribed))
            request.version_info, request.response_nonce = state.version, state.nonce
            return request
        request = self._request(type_url, lane)
        request.resource_names_subscribe.extend(sorted((subscribed - old) | set(again)))
        request.resource_names_unsubscribe.extend(sorted(old - subscribed))
        return request

    def answer(self, response: Any, error: str = "") -> Any:
        """ACK, or with `error` NACK."""
        state = self.received[response.type_url]
        request = self._request(response.type_url, "")
        request.response_nonce = response.nonce
        if error:
            request.error_detail.code, request.error_detail.message = 13, error
        if self.variant == "sotw":
            request.version_info = "" if error else response.version_info
            request.resource_names.extend(sorted(state.names))
        return request

    def take(self, response: Any) -> _TypeState:
        """Check a response against the protocol and apply it."""
        assert response.type_url in self.received, "a response of a type without a subscription"
        assert response.nonce, "a response without nonce"
        assert response.nonce not in self.nonces, "a nonce repeats"
        self.nonces.add(response.nonce)
        self.response_types.append(response.type_url)
        state = self.received[response.type_url]
        before = dict(state.resources)
        if self.variant == "sotw":
            version, received = response.version_info, [_read(body) for body in response.resources]
            if response.type_url in FULL_STATE:
                state.removed = tuple(sorted(before.keys() - dict(received).keys()))
                state.resources.clear()
        else:
            version = response.system_version_info
            received = [_read(entry.resource) for entry in response.resources]
            assert [entry.name for entry in response.resources] == [name for name, _ in received]
            assert all(entry.version for entry in response.resources)
            state.removed = tuple(response.removed_resources)
            assert not set(state.removed) & dict(received).keys(), "both there and removed"
            for name in state.removed:
                state.resources.pop(name, None)
        assert version, "a response without version"
        names = [name for name, _ in received]
        assert len(names) == len(set(names)), "a resource twice in one response"
        if not state.wildcard:
            assert set(names) <= state.names, "resources without a subscription"
        state.resources.update(received)
        changed = state.resources != before or bool(state.removed)
        warming = response.type_url == TYPE_ENDPOINT and self._cluster_changed
        assert changed or state.expects or warming, "an unsolicited identical response"
        if response.type_url == TYPE_CLUSTER:
            self._cluster_changed = changed
        elif response.type_url == TYPE_ENDPOINT:
            self._cluster_changed = False
        state.version, state.nonce, state.expects = version, response.nonce, False
        return state

    _cluster_changed = False

    def _request(self, type_url: str, lane: str) -> Any:
        made = (
            discovery_pb2.DiscoveryRequest if self.variant == "sotw" else discovery_pb2.DeltaDiscoveryRequest
        )
        request = made(type_url=type_url)
        if lane not in self.introduced:
            # Only the first message of a stream names the node.
            self.introduced.add(lane)
            request.node.id, request.node.cluster = self.node, "fleet"
        return request


def _read(body: Any) -> tuple[str, bytes]:
    kind, field = MESSAGES[body.type_url]
    message = kind.FromString(body.value)
    return getattr(message, field), body.value


class Connection:
    """A `Peer` over real gRPC: one ADS stream, or a stream a type."""

    def __init__(self, channel: Any, variant: str, service: str, node: str = "node-1") -> None:
        self.peer = Peer(variant, node)
        self._channel = channel
        self._service = service
        self._calls: dict[str, Any] = {}

    def call(self, type_url: str) -> Any:
        """The gRPC call that carries a type."""
        lane = "" if self._service == "ads" else type_url
        if lane not in self._calls:
            prefix, request, response = VARIANTS[self.peer.variant]
            method = (AGGREGATED if self._service == "ads" else SEPARATE[type_url]).format(prefix)
            self._calls[lane] = self._channel.stream_stream(
                method,
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )()
        return self._calls[lane]

    async def ask(self, type_url: str, names: Collection[str] = (), *, again: Collection[str] = ()) -> None:
        """Subscribe to exactly `names`."""
        lane = "" if self._service == "ads" else type_url
        call = self.call(type_url)
        if lane:
            self.peer.introduced.add("")
        await call.write(self.peer.ask(type_url, names, again=again, lane=lane))

    async def receive(self, type_url: str, *, error: str = "") -> _TypeState:
        """Take the next response on the stream that carries `type_url`, and answer it."""
        call = self.call(type_url)
        response = await asyncio.wait_for(call.read(), 60)
        assert response is not grpc.aio.EOF, f"{await call.code()}: {await call.details()}"
        assert response.type_url == type_url
        state = self.peer.take(response)
        await call.write(self.peer.answer(response, error))
        return state

    def cancel(self) -> None:
        """Go away without a word."""
        for call in self._calls.values():
            call.cancel()


class _Driven(StreamState):
    """Takes a request or a snapshot and returns all responses to it."""

    def on_request(self, request: Any) -> list[Any]:
        self.receive_request(request)
        return self._drain()

    def on_snapshot(self, snapshot: Snapshot) -> list[Any]:
        self._snapshot = snapshot
        return self._drain()

    def _drain(self) -> list[Any]:
        return list(iter(lambda: self.next_response(self._snapshot), None))


class _Sotw(_Driven, Sotw):
    """A machine whose responses are read back, as its client would."""

    def next_response(self, snapshot: Snapshot | None) -> Any:
        response = super().next_response(snapshot)
        return response and discovery_pb2.DiscoveryResponse.FromString(response.data)


class _Delta(_Driven, Delta):
    """The same for delta."""

    def next_response(self, snapshot: Snapshot | None) -> Any:
        response = super().next_response(snapshot)
        return response and discovery_pb2.DeltaDiscoveryResponse.FromString(response.data)


@pytest.fixture
def xds() -> SimpleNamespace:
    """Makers of resources, snapshots, peers and state machines."""

    def machine(variant: str, **keywords: Any) -> Any:
        numbers = itertools.count(1)
        return {"sotw": _Sotw, "delta": _Delta}[variant](lambda: f"n{next(numbers)}", **keywords)

    def snapshot(*resources: Resource) -> Snapshot:
        return Snapshot.of(resources)

    return SimpleNamespace(
        cluster=cluster,
        assignment=assignment,
        listener=listener,
        secret=secret,
        route=route,
        snapshot=snapshot,
        machine=machine,
        peer=Peer,
    )


class Running:
    """A discovery service on a Unix socket."""

    def __init__(self, store: SnapshotStore, target: str, transport: str, **settings: Any) -> None:
        self.store = store
        self.registry = CollectorRegistry()
        self.service = DiscoveryService(store, self.registry, settings.pop("max_streams", 1000), **settings)
        self.server = server_of(transport, target, self.service.register)
        self.target, self.transport = target, transport
        self.channels: list[Any] = []

    def channel(self, *options: tuple[str, int]) -> Any:
        """A channel of its own, so that clients share no connection."""
        options = (("grpc.use_local_subchannel_pool", 1), *options)
        self.channels.append(grpc.aio.insecure_channel(self.target, options=options))
        return self.channels[-1]

    def connect(
        self, variant: str, service: str = "ads", node: str = "node-1", *options: tuple[str, int]
    ) -> Connection:
        """A client on a channel of its own."""
        return Connection(self.channel(*options), variant, service, node)

    def value(self, name: str, **labels: str) -> float:
        """A counter's value."""
        return self.registry.get_sample_value(f"warmroute_xds_{name}", labels) or 0.0

    async def idle(self) -> None:
        """Wait until the service has no stream and the store no listener."""
        async with asyncio.timeout(60):
            while self.value("streams") or self.store._listeners:
                await asyncio.sleep(0.01)


@pytest.fixture(params=TRANSPORTS)
async def serve(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Start discovery services; all are stopped at the end."""
    running: list[Running] = []

    async def start(store: SnapshotStore | None = None, **settings: Any) -> Running:
        target = f"unix:{tmp_path}/xds{len(running)}.sock"
        running.append(Running(store or SnapshotStore(), target, request.param, **settings))
        await running[-1].server.start()
        return running[-1]

    yield start
    for entry in running:
        for channel in entry.channels:
            await channel.close()
        await entry.server.stop(0)
