"""A service's life: bind, become ready, drain on SIGTERM, stop. Shared by both services."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio

from fleet.service.allocator import share_one_heap, trim_after_peaks
from fleet.service.binding import cannot_listen, prepare, sockets_for_the_group
from fleet.service.descriptors import grpc_connections, raise_limit
from fleet.service.opening import FirstMessages
from fleet.settings.connections import PERMITTED_PING_SECONDS, ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence

    from fleet.service.gate import GrpcGate

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""gRPC's default of 4 MiB would refuse bodies that other Envoys buffer whole."""
_UNREAD_BYTES: Final = 65_536
"""Of a call, in addition to the message that is read. A peer that is not read could fill gRPC's default of
4 MiB."""
_IDLE_SECONDS: Final = 300.0
"""A connection without a call ends after this time. Peers open another one when they need it."""
HANDSHAKE_SECONDS: Final = 5.0
"""For TLS and the first HTTP/2 frames of a connection to a gRPC server; gRPC's own default is two minutes."""
MAX_NAME: Final = 256
"""Characters of a service that a peer asks the health of."""
MAX_WATCHES: Final = 1024
"""`Watch` streams of one server; each takes some 25 KB."""


def server_options(
    connections: ConnectionSettings | None = None, receive_bytes: int = MAX_MESSAGE_BYTES
) -> Sequence[tuple[str, int]]:
    """Return the options of our gRPC servers, which refuse messages of more than `receive_bytes`.

    Clients limit the streams of a connection: Envoy opens another connection for more, but other proxies
    would let requests wait.
    """
    connections = connections or ConnectionSettings()
    return (
        ("grpc.max_receive_message_length", receive_bytes),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
        ("grpc.max_connection_idle_ms", round(1000 * _IDLE_SECONDS)),
        ("grpc.so_reuseport", 0),
        # It lets peers send megabytes of the next message before the last one is handled.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.server_handshake_timeout_ms", round(1000 * HANDSHAKE_SECONDS)),
        # A half-dead peer is noticed within these two times.
        ("grpc.keepalive_time_ms", round(1000 * connections.ping_seconds)),
        ("grpc.keepalive_timeout_ms", round(1000 * connections.ping_timeout_seconds)),
        # Without it gRPC waits a minute: the longer of the two.
        ("grpc.http2.ping_timeout_ms", round(1000 * connections.ping_timeout_seconds)),
        ("grpc.keepalive_permit_without_calls", 1),
        # Envoys ping quiet streams every few seconds; gRPC's default answers "too many pings".
        ("grpc.http2.min_recv_ping_interval_without_data_ms", round(1000 * PERMITTED_PING_SECONDS)),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.max_pings_without_data", 0),
    )


PING_SECONDS: Final = 10.0
"""Between the pings of our gRPC clients, unless the server permits only fewer."""
_PERMITTED_PING_KEY: Final = "warmroute-permitted-ping-ms"
PERMITTED_PING: Final = ((_PERMITTED_PING_KEY, str(round(1000 * PERMITTED_PING_SECONDS))),)
"""Initial metadata of our servers: the shortest pause between pings, for our clients."""


def permitted_ping_seconds(metadata: Iterable[tuple[str, str | bytes]]) -> float | None:
    """Read `PERMITTED_PING`; None if the server does not send it, or sends no number."""
    text = next((value for key, value in metadata if key == _PERMITTED_PING_KEY), "")
    return int(text) / 1000 if isinstance(text, str) and text.isascii() and text.isdigit() else None


def channel_options(ping_seconds: float = PING_SECONDS) -> Sequence[tuple[str, int]]:
    """Return the options of our gRPC clients."""
    return (
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", round(1000 * ping_seconds)),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.ping_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    )


def add_methods(server: grpc.aio.Server, service: str, handlers: Mapping[str, Any]) -> None:
    """Add a service to a server as generated code does."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_registered_method_handlers(service, handlers)


@dataclass(frozen=True, slots=True)
class HealthNames:
    """Names of a server's health, in addition to the empty one."""

    readiness: tuple[str, ...] = ()
    """Report what the server itself reports."""
    liveness: str = ""
    """Reports serving from the start."""


class GrpcServer:
    """A grpc.aio server on one address, with the gRPC health service (`Check` and `Watch`)."""

    def __init__(
        self,
        name: str,
        address: str,
        connections: ConnectionSettings | None = None,
        *,
        health: HealthNames | None = None,
        credentials: grpc.ServerCredentials | None = None,
        receive_bytes: int = MAX_MESSAGE_BYTES,
        gate: GrpcGate | None = None,
        apart: Collection[str] = (),
    ) -> None:
        """`name` is the section of the settings that has the `address`.

        The first message of each call has a time limit, except in the services of `apart`.

        Without `credentials` the server speaks plaintext. `gate` checks the names in clients' certificates.
        """
        self.name = name
        self.address = address
        self._health_names = health or HealthNames()
        self._credentials = credentials
        self.gate = gate
        most = ("grpc.max_allowed_incoming_connections", grpc_connections())
        renewal = () if gate is None else gate.options
        self.server = grpc.aio.server(
            options=(*server_options(connections, receive_bytes), most, *renewal),
            interceptors=[*([] if gate is None else [gate]), FirstMessages(apart)],
        )
        self._health = Health()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)

    async def start(self) -> None:
        """Bind and serve, not ready yet.

        Raises:
            SettingsError: the address cannot be bound.
        """
        field = f"{self.name}.address"
        prepare(field, self.address)
        await self.set_ready(ready=False)
        try:
            with sockets_for_the_group():
                if self._credentials is None:
                    self.server.add_insecure_port(self.address)
                else:
                    self.server.add_secure_port(self.address, self._credentials)
        except RuntimeError as error:
            # Only a started server can be stopped, and one that is not stopped leaves a task behind.
            await self.server.start()
            await self.server.stop(None)
            raise cannot_listen(field, self.address, str(error)) from error
        await self.server.start()
        tls = " with TLS" if self._credentials else ""
        logger.info("%s listens on %s%s (transport: grpcio)", self.name, self.address, tls)

    async def set_ready(self, *, ready: bool) -> None:
        """Set what health checks report."""
        kinds = health_pb2.HealthCheckResponse
        for name in ("", *self._health_names.readiness):
            await self._health.set(name, kinds.SERVING if ready else kinds.NOT_SERVING)
        if self._health_names.liveness:
            await self._health.set(self._health_names.liveness, kinds.SERVING)

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new streams and end the open ones after `grace_seconds`."""
        await self.server.stop(grace_seconds)


class StopSignals:
    """SIGTERM and SIGINT request a drain; a second one ends the process immediately."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._requested.is_set():
            logger.warning("second %s: leaving without draining", number.name)
            logging.shutdown()
            os._exit(128 + number)
        logger.info("%s: draining", number.name)
        self._requested.set()

    @property
    def requested(self) -> bool:
        """Whether a drain has been requested."""
        return self._requested.is_set()

    async def wait(self) -> None:
        """Return once a drain is requested."""
        await self._requested.wait()


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a service's main coroutine on uvloop and return its exit status."""
    raise_limit()
    share_one_heap()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run_and_trim(main))


async def _run_and_trim(main: Coroutine[Any, Any, int]) -> int:
    trimming = asyncio.create_task(trim_after_peaks(), name="free memory")
    try:
        return await main
    finally:
        trimming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await trimming


class Health(aio.HealthServicer):  # type: ignore[misc]
    """`Check` and `Watch`."""

    def __init__(self) -> None:
        super().__init__()
        self._watches = 0

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802 - gRPC's name
        """Send a service's state now and whenever it changes."""
        if len(request.service) > MAX_NAME:
            why = f"a name of {len(request.service)} characters; allowed: {MAX_NAME}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        # Without fields of unknown numbers, which may be large and would stay for as long as the call.
        request = health_pb2.HealthCheckRequest(service=request.service)
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {MAX_WATCHES} watches")
        self._watches += 1
        try:
            await super().Watch(request, context)
        finally:
            self._watches -= 1
