"""The cheapest client that keeps to the protocol: one connection, one ADS stream, an ACK a response."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.names import TYPE_ENDPOINT
from fleet.service.serving import MAX_MESSAGE_BYTES
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

METHODS: Final = {
    "sotw": "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
    "delta": "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
}
_CHANNEL_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection each, as Envoys have
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)
_AIO: Any = grpc.aio
"""Untyped: the stubs lack bytes without serialisers, and the end-of-stream mark."""


class XdsClient:
    """A client that looks like one Envoy. `received` is called with each endpoint response at once."""

    def __init__(
        self,
        node_id: str,
        address: str,
        variant: str,
        names: Mapping[str, Sequence[str]],
        received: Callable[[int], None],
    ) -> None:
        self.subscribed = asyncio.Event()
        """Set when the first request has been written."""
        self.synced = asyncio.Event()
        """Set when every type has been answered once."""
        self.versions: dict[str, str] = {}
        """Type URL to the version of its newest response."""
        self._node_id = node_id
        self._variant = variant
        self._names = names
        self._received = received
        self._channel = _AIO.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._call = self._channel.stream_stream(METHODS[variant])()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the stream and the connection."""
        self._call.cancel()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    def check(self) -> None:
        """Raise what ended the stream.

        Raises:
            BenchError: the server ended it.
        """
        if self._task.done():
            raise BenchError(f"stream of {self._node_id} ended") from self._task.exception()

    async def _run(self) -> None:
        missing = set(self._names)
        for number, (type_url, names) in enumerate(self._names.items()):
            await self._call.write(self._first(type_url, names, with_node=number == 0))
            self.subscribed.set()
        delta = self._variant == "delta"
        decode = (
            discovery_pb2.DeltaDiscoveryResponse if delta else discovery_pb2.DiscoveryResponse
        ).FromString
        while (message := await self._call.read()) is not _AIO.EOF:
            response = decode(message)
            self.versions[response.type_url] = self._version(response)
            if response.type_url == TYPE_ENDPOINT:
                self._received(len(message))
            await self._call.write(self._ack(response))
            missing.discard(response.type_url)
            if not missing:
                self.synced.set()

    def _version(self, response: Any) -> str:
        return str(response.system_version_info if self._variant == "delta" else response.version_info)

    def _first(self, type_url: str, names: Sequence[str], *, with_node: bool) -> bytes:
        request: Any
        if self._variant == "delta":
            request = discovery_pb2.DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names)
        else:
            request = discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names)
        if with_node:
            request.node.id, request.node.cluster = self._node_id, "bench"
        return bytes(request.SerializeToString())

    def _ack(self, response: Any) -> bytes:
        request: Any
        if self._variant == "delta":
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=response.type_url, response_nonce=response.nonce
            )
        else:
            request = discovery_pb2.DiscoveryRequest(
                type_url=response.type_url,
                resource_names=self._names[response.type_url],
                version_info=response.version_info,
                response_nonce=response.nonce,
            )
        return bytes(request.SerializeToString())
