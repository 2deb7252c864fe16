"""The client status discovery service: what each connected client was told, took and refused.

From the server's view, so `config_status` says it, and per type: one entry a type with an empty name, or
answers would grow with clients times resources. `version_info` is what the client took last,
`error_state` what it refuses; the lag stands in the node's metadata as `warmroute.lag_seconds`, absent
when unknown. Contents are never sent.

Source: envoy.service.status.v3, csds.proto.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from fleet.envoy_api.service.status.v3 import csds_pb2
from fleet.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from xds_server.discovery.progress import ClientProgress, Progress, TypeProgress
    from xds_server.discovery.server import DiscoveryService

_SERVICE: Final = "envoy.service.status.v3.ClientStatusDiscoveryService"
_MAX_STREAMS: Final = 16
MAX_MATCHERS: Final = 100
MAX_CLIENTS: Final = 4000
PORTION: Final = 50
"""Clients that are looked at in one turn of the loop: some 10 ms."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""What a client of gRPC takes in one message by default."""
_AIO: Any = grpc.aio
"""Untyped: the stubs lack the end-of-stream mark."""
_STATUS: Final = {
    "not_sent": csds_pb2.NOT_SENT,
    "stale": csds_pb2.STALE,
    "error": csds_pb2.ERROR,
    "synced": csds_pb2.SYNCED,
}


class ClientStatusService:
    """Answers each request with the clients that `discovery` has at that moment.

    `progress` is the observer of that same service.
    """

    def __init__(
        self, discovery: DiscoveryService, progress: Progress, *, max_clients: int = MAX_CLIENTS
    ) -> None:
        self._discovery = discovery
        self._progress = progress
        self._max_clients = max_clients
        self._streams = 0
        self._turn = asyncio.Lock()

    def register(self, server: grpc.aio.Server) -> None:
        """Add both methods to a server that has not started."""
        # Requests stay bytes here: what cannot be parsed is the client's fault and is told so.
        handlers = {
            "FetchClientStatus": grpc.unary_unary_rpc_method_handler(self._fetch),
            "StreamClientStatus": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))

    def clients(self) -> list[ClientProgress]:
        """Each connected node with its versions, times and lag, sorted by node id."""
        return self._progress.of(self._discovery.clients())

    async def respond(self, message: bytes) -> Any:
        """Make a `ClientStatusResponse` for a serialised `ClientStatusRequest`.

        Some clients at a time, between which the loop serves others, and one response after the other.

        Raises:
            PeerError: the request is none, has matchers that cannot be honoured, or matches too much.
        """
        try:
            request = csds_pb2.ClientStatusRequest.FromString(message)
        except DecodeError as error:
            raise PeerError("the message is no client status request") from error
        matches = _matcher(request.node_matchers)
        found = [client for client in self._discovery.clients() if matches(client.node_id)]
        if len(found) > self._max_clients:
            raise PeerError(f"{len(found)} clients match; allowed: {self._max_clients}, by node_matchers")
        response = csds_pb2.ClientStatusResponse()
        async with self._turn:
            for begin in range(0, len(found), PORTION):
                for client in self._progress.of(found[begin : begin + PORTION]):
                    _add(response, client)
                await asyncio.sleep(0)
        if (size := response.ByteSize()) > MAX_BYTES:
            raise PeerError(f"the answer has {size} bytes; allowed: {MAX_BYTES}, by node_matchers")
        return response

    async def _fetch(self, message: bytes, context: Any) -> bytes:
        try:
            return bytes((await self.respond(message)).SerializeToString())
        except PeerError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise  # Never reached: `abort` raises.

    async def _stream(self, _: Any, context: Any) -> None:
        if self._streams >= _MAX_STREAMS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {_MAX_STREAMS} streams")
        self._streams += 1
        try:
            while (message := await context.read()) is not _AIO.EOF:
                await context.write(await self._fetch(message, context))
        except grpc.aio.InternalError:
            return  # The connection is gone.
        finally:
            self._streams -= 1


def _matcher(matchers: Sequence[Any]) -> Callable[[str], bool]:
    """Whether a node id matches any of the matchers; without matchers all do.

    Raises:
        PeerError: one asks for what is not held or not tried here.
    """
    if len(matchers) > MAX_MATCHERS:
        raise PeerError(f"{len(matchers)} node_matchers; allowed: {MAX_MATCHERS}")
    if any(matcher.node_metadatas for matcher in matchers):
        raise PeerError("node_matchers: node_metadatas are not held here; allowed: node_id")
    made = [_string_matcher(matcher.node_id) for matcher in matchers if matcher.HasField("node_id")]
    if len(made) < len(matchers) or not matchers:
        return lambda _: True
    return lambda node_id: any(matches(node_id) for matches in made)


def _string_matcher(matcher: Any) -> Callable[[str], bool]:
    kind = matcher.WhichOneof("match_pattern")
    if kind not in ("exact", "prefix", "suffix", "contains"):
        raise PeerError(f"node_id by {kind} is not matched here; allowed: exact, prefix, suffix, contains")

    def folded(text: str) -> str:
        return text.lower() if matcher.ignore_case else text

    wanted = folded(getattr(matcher, kind))
    if kind == "exact":
        return lambda node_id: folded(node_id) == wanted
    if kind == "prefix":
        return lambda node_id: folded(node_id).startswith(wanted)
    if kind == "suffix":
        return lambda node_id: folded(node_id).endswith(wanted)
    return lambda node_id: wanted in folded(node_id)


def _add(response: Any, client: ClientProgress) -> None:
    config = response.config.add()
    config.node.id, config.node.cluster = client.node_id, client.cluster
    where = client.locality
    if where.region or where.zone or where.sub_zone:
        config.node.locality.region = where.region
        config.node.locality.zone = where.zone
        config.node.locality.sub_zone = where.sub_zone
    if client.lag_seconds is not None:
        config.node.metadata["warmroute.lag_seconds"] = client.lag_seconds
    _add_types(config, client.types)


def _add_types(config: Any, types: Iterable[TypeProgress]) -> None:
    for entry in types:
        made = config.generic_xds_configs.add(
            type_url=entry.type_url, version_info=entry.version_acked, config_status=_STATUS[entry.state]
        )
        if entry.acked_at is not None:
            made.last_updated.FromNanoseconds(int(entry.acked_at * 1e9))
        if not entry.version_nacked:
            continue
        made.error_state.version_info, made.error_state.details = entry.version_nacked, entry.error
        if entry.nacked_at is not None:
            made.error_state.last_update_attempt.FromNanoseconds(int(entry.nacked_at * 1e9))
