"""The client status discovery service: versions that each connected client was sent, ACKed and NACKed.

`config_status` gives the server's view, with one entry of an empty name per type: otherwise responses would
grow with clients times resources. `version_info` is the newest ACKed version, `error_state` the NACKed
one; the node's metadata has the lag as `warmroute.lag_seconds`, absent when unknown. Contents are never sent.

Source: envoy.service.status.v3, csds.proto.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from fleet.envoy_api.service.status.v3 import csds_pb2
from fleet.errors import PeerError
from fleet.service.serving import add_methods
from fleet.service.turns import Turns
from xds_server.discovery.client import MAX_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from xds_server.discovery.progress import ClientProgress, Progress, TypeProgress
    from xds_server.discovery.server import DiscoveryService, Node

_SERVICE: Final = "envoy.service.status.v3.ClientStatusDiscoveryService"
MAX_CALLS: Final = 16
"""Streams and single requests together."""
MAX_REQUEST_BYTES: Final = 256 * 1024
"""Some ten times the metadata of a large node, with `MAX_MATCHERS` matchers."""
MAX_MATCHERS: Final = 100
MAX_CLIENTS: Final = 4000
MAX_BYTES: Final = 4 * 1024 * 1024
"""gRPC's default limit of a received message."""
_AIO: Any = grpc.aio
"""Untyped: the stubs lack the end-of-stream mark."""
_PATTERNS: Final = ("exact", "prefix", "suffix", "contains")
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
        self,
        discovery: DiscoveryService,
        progress: Progress,
        *,
        max_clients: int = MAX_CLIENTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._discovery = discovery
        self._progress = progress
        self._max_clients = max_clients
        self._calls = 0
        self._answering = asyncio.Lock()
        self._turns = Turns(clock)

    def register(self, server: grpc.aio.Server) -> None:
        """Add both methods to a server that has not started."""
        # Requests stay bytes here, so that unparsable ones are reported to the client as its error.
        handlers = {
            # As a stream of one request, which is read only after the call was counted.
            "FetchClientStatus": grpc.stream_unary_rpc_method_handler(self._fetch),
            "StreamClientStatus": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        add_methods(server, _SERVICE, handlers)

    async def clients(self) -> list[ClientProgress]:
        """Each connected node with its versions, times and lag, sorted by node id.

        In small pieces, as `respond`.
        """
        nodes = await self._turns.run(self._discovery.nodes)
        async with self._answering:
            clients = await self._turns.run_all(map(self._sum_up, nodes))
        return [client for client in clients if client is not None]

    def lag(self) -> tuple[int, float]:
        """Return the number of connected clients, and the seconds since the oldest pending ACK."""
        clients, pending = self._discovery.unacknowledged()
        return clients, self._progress.longest_lag(pending)

    async def respond(self, message: bytes) -> bytes:
        """Make a serialised `ClientStatusResponse` for a serialised `ClientStatusRequest`.

        In small pieces, between which the loop serves others, and one response after the other.

        Raises:
            PeerError: the bytes are no request, a matcher is not supported, or too many clients match.
        """
        if len(message) > MAX_REQUEST_BYTES:
            raise PeerError(f"a request of {len(message)} bytes; allowed: {MAX_REQUEST_BYTES}")
        matches = await self._turns.run(partial(_read, message))
        nodes = await self._turns.run(self._discovery.nodes)
        matching = await self._turns.run_all(matches(node_id) for node_id, _ in nodes)
        matched = [*compress(nodes, matching)]
        if len(matched) > self._max_clients:
            raise PeerError(f"{len(matched)} clients match; allowed: {self._max_clients}, by node_matchers")
        async with self._answering:
            response = csds_pb2.ClientStatusResponse()
            await self._turns.run_all(self._fill(response, matched))
            content: bytes = await self._turns.run(response.SerializeToString)
        if len(content) > MAX_BYTES:
            raise PeerError(f"the answer has {len(content)} bytes; allowed: {MAX_BYTES}, by node_matchers")
        return content

    def _fill(self, response: Any, nodes: Iterable[Node]) -> Iterator[None]:
        for node in nodes:
            if (client := self._sum_up(node)) is not None:
                _add(response, client)
            yield

    def _sum_up(self, node: Node) -> ClientProgress | None:
        status = self._discovery.status(node)
        return None if status is None else self._progress.of(status)

    async def _fetch(self, _: Any, context: Any) -> bytes:
        await self._enter(context)
        try:
            message = await context.read()
            if message is not _AIO.EOF:
                return await self.respond(message)
            error_text = "no request"
        except PeerError as error:
            error_text = str(error)
        finally:
            message = None  # gRPC keeps this frame for some time where it ends with `abort`.
            self._calls -= 1
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error_text)
        raise AssertionError  # Never reached: `abort` raises.

    async def _stream(self, _: Any, context: Any) -> None:
        await self._enter(context)
        try:
            message = await context.read()
            while message is not _AIO.EOF:
                await context.write(await self.respond(message))
                message = await context.read()
        except grpc.aio.InternalError:
            return  # The connection is gone.
        except PeerError as error:
            error_text = str(error)
        else:
            return
        finally:
            message = None
            self._calls -= 1
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error_text)

    async def _enter(self, context: Any) -> None:
        """Count a call, or refuse it at once: a waiting request takes memory."""
        if self._calls >= MAX_CALLS:
            text = f"at most {MAX_CALLS} requests and streams at a time"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._calls += 1


def _read(message: bytes) -> Callable[[str], bool]:
    """Return the predicate over node ids of a serialised request.

    Raises:
        PeerError: the bytes are no request, or a matcher is not supported.
    """
    try:
        request = csds_pb2.ClientStatusRequest.FromString(message)
    except DecodeError as error:
        raise PeerError("the message is no client status request") from error
    return _matcher(request.node_matchers)


def _matcher(matchers: Sequence[Any]) -> Callable[[str], bool]:
    """Return whether a node id matches any of the matchers; without matchers all do.

    Raises:
        PeerError: a matcher is not supported.
    """
    if len(matchers) > MAX_MATCHERS:
        raise PeerError(f"{len(matchers)} node_matchers; allowed: {MAX_MATCHERS}")
    if any(matcher.node_metadatas for matcher in matchers):
        raise PeerError("node_matchers: node_metadatas are not supported; allowed: node_id")
    named = [matcher.node_id for matcher in matchers if matcher.HasField("node_id")]
    as_is = _any_of([_pattern(entry) for entry in named if not entry.ignore_case])
    folded = _any_of([_pattern(entry) for entry in named if entry.ignore_case])
    if len(named) < len(matchers) or not matchers:
        return lambda _: True
    return lambda node_id: as_is(node_id) or folded(node_id.lower())


def _pattern(matcher: Any) -> tuple[str, str]:
    """Return the kind and the text of a string matcher; the text in lower case if cases are ignored."""
    kind = matcher.WhichOneof("match_pattern")
    if kind not in _PATTERNS:
        raise PeerError(f"node_id by {kind} is not supported; allowed: {', '.join(_PATTERNS)}")
    text: str = getattr(matcher, kind)
    if len(text) > MAX_TEXT:
        raise PeerError(f"node_id by a text of {len(text)} characters; allowed: {MAX_TEXT}")
    return kind, text.lower() if matcher.ignore_case else text


def _any_of(patterns: Sequence[tuple[str, str]]) -> Callable[[str], bool]:
    exact, prefixes, suffixes, parts = (
        tuple(text for kind, text in patterns if kind == pattern) for pattern in _PATTERNS
    )
    return lambda text: (
        text in exact
        or text.startswith(prefixes)
        or text.endswith(suffixes)
        or any(part in text for part in parts)
    )


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
        status = config.generic_xds_configs.add(
            type_url=entry.type_url, version_info=entry.version_acked, config_status=_STATUS[entry.state]
        )
        if entry.acked_at is not None:
            status.last_updated.FromNanoseconds(int(entry.acked_at * 1e9))
        if not entry.version_nacked:
            continue
        status.error_state.version_info, status.error_state.details = entry.version_nacked, entry.error
        if entry.nacked_at is not None:
            status.error_state.last_update_attempt.FromNanoseconds(int(entry.nacked_at * 1e9))
