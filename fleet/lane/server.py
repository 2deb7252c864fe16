"""A gRPC server on asyncio around `Connection`: Unix sockets, TCP, TLS, health, drain.

A call costs no task. Nothing wakes an idle server up: the kernel notices half-dead peers over TCP
(`SO_KEEPALIVE`, `TCP_USER_TIMEOUT`), and the timers run only while a handshake, a first message, a deadline
or a stream that waits for memory needs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from grpc_health.v1 import health_pb2

from fleet.lane.budget import Budget
from fleet.lane.connection import Connection, Ended, HalfClosed, Message, Opened
from fleet.lane.health import DEADLINE_EXCEEDED, Health
from fleet.lane.limits import Limits
from fleet.lane.timeouts import Timeouts
from fleet.lane.turns import FairTurns
from fleet.service.credentials import http_server
from fleet.service.descriptors import grpc_connections
from fleet.service.gate import CONNECTION_SECONDS, HEALTH, allowed_roles
from fleet.service.listening import Listener
from fleet.service.opening import CROWDED, FIRST_MESSAGE_SECONDS, too_silent
from fleet.service.serving import HANDSHAKE_SECONDS, MAX_MESSAGE_BYTES, HealthNames
from fleet.service.turns import SLICE_SECONDS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from fleet.lane.connection import Event
    from fleet.lane.method import Handler, Method
    from fleet.lane.metrics import LaneMetrics
    from fleet.service.gate import Gate
    from fleet.service.tls import CertificateProvider
    from fleet.settings.connections import ConnectionSettings

logger = logging.getLogger(__name__)

MESSAGE_BYTES: Final = 192 * 1024 * 1024
"""Of unfinished messages beyond their stream's window; further ones wait, apart from one at a time."""
MEMORY_SECONDS: Final = 1.0
"""Between two calls of `Budget.relieve` while streams wait."""
_PERMISSION_DENIED: Final = 7
_UNIMPLEMENTED: Final = 12
_CLOSING_SECONDS: Final = 5.0
"""For a peer to read what is written before its connection is closed."""
_LAST_SECONDS: Final = 1.0
"""The same, once the server ends."""
_MOST_DEADLINE_SECONDS: Final = 86_400.0
"""A later deadline is none."""
_PROBES: Final = 3
"""Of keep-alive, within `connections.ping_timeout_seconds`: one may be lost."""
_MOST_KEEP_ALIVE_SECONDS: Final = 32_767
"""Of a quiet connection before its first probe: Linux permits no more."""
_FEWEST_PIECE_BYTES: Final = 1024
_MOST_PIECE_BYTES: Final = 16_384
"""Read between two looks at the clock. A connection begins with the fewest, and gets more while its frames
are cheap: 1,024 bytes are at most 113 frames."""
_EVENTS_AT_ONCE: Final = 16
"""Handled between two looks at the clock; a request is two events."""
_FULL: Final = "full"
"""The transport's buffer is."""
_BEHIND: Final = "behind"
"""Events wait for their turn."""
_LOG_SECONDS: Final = 60.0
"""Between two lines about peers that break the protocol, or faults of ours."""


class LaneServer:
    """Serves methods and health on one address."""

    def __init__(
        self,
        name: str,
        address: str,
        connections: ConnectionSettings,
        methods: Mapping[str, Method],
        *,
        health: HealthNames | None = None,
        tls: CertificateProvider | None = None,
        receive_bytes: int = MAX_MESSAGE_BYTES,
        budget: Budget | None = None,
        gate: Gate | None = None,
        metrics: LaneMetrics | None = None,
    ) -> None:
        """`name` is the section of the settings that has the `address`; `methods` are by path.

        Without `tls` the server speaks plaintext. `gate` checks the names in clients' certificates.
        """
        self.name = name
        self.address = address
        self.gate = gate
        self.budget = budget or Budget(MESSAGE_BYTES)
        self._limits = Limits(message_bytes=receive_bytes)
        self._connections = connections
        self.last_seconds: float | None = None
        """Grace of a connection's streams once it is renewed; None: they end by themselves."""
        self._health_names = health or HealthNames()
        self._tls = tls
        self._metrics = metrics
        self._health = Health()
        self._methods = {
            path: (method, path[1:].partition("/")[0])
            for path, method in (*methods.items(), *self._health.methods.items())
        }
        self._listener = Listener(f"{name}.address", address)
        self._most = 0
        self._links: dict[object, _Link] = {}
        """By connection."""
        self._idle: dict[_Link, None] = {}
        """Links without streams; the first has been so for longest."""
        self._empty: asyncio.Event | None = None
        """Set once no link is left, while the server stops."""
        self._opening: Timeouts[_Link] = Timeouts(HANDSHAKE_SECONDS, self._expire)
        self.first_messages: Timeouts[tuple[_Link, int]] = Timeouts(FIRST_MESSAGE_SECONDS, _end_silent)
        """Calls without a first message."""
        self._relief: asyncio.TimerHandle | None = None
        self.turns = FairTurns(time.thread_time, lambda step: asyncio.get_running_loop().call_soon(step))
        self._quiet_until: dict[tuple[str, str], float] = {}
        """By what ends and its cause: until when no further line names it."""
        if metrics is not None:
            metrics.connections.set_function(lambda: len(self._links))

    async def start(self) -> None:
        """Bind and serve, not ready yet.

        Raises:
            SettingsError: the address cannot be bound.
        """
        self._most = grpc_connections()
        await self.set_ready(ready=False)
        context = None if self._tls is None else http_server(self._tls, ["h2"])
        await self._listener.bind()
        self._listener.accept(lambda sock: self._admit(sock, context))
        tls = " with TLS" if self._tls else ""
        logger.info("%s listens on %s%s (transport: lane)", self.name, self.address, tls)

    async def set_ready(self, *, ready: bool) -> None:
        """Set what health checks report."""
        kinds = health_pb2.HealthCheckResponse
        for name in ("", *self._health_names.readiness):
            self._health.set(name, kinds.SERVING if ready else kinds.NOT_SERVING)
        if self._health_names.liveness:
            self._health.set(self._health_names.liveness, kinds.SERVING)

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new connections and streams, and end the open ones after `grace_seconds`."""
        await self._listener.close()
        self._empty = asyncio.Event()
        for link in tuple(self._links.values()):
            link.go_away()
        await self._emptied(grace_seconds)
        for link in tuple(self._links.values()):
            link.go_away()  # Now without the streams that are on their way.
            link.close()
        await self._emptied(_LAST_SECONDS)
        for link in tuple(self._links.values()):
            link.abort()
        await self._emptied(_LAST_SECONDS)
        self._opening.close()
        self.first_messages.close()
        if self._relief is not None:
            self._relief.cancel()

    async def _emptied(self, seconds: float) -> None:
        if self._links and self._empty is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)

    def _admit(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Serve a connection. The edge for faults of ours: they would end the task that accepts."""
        try:
            self._serve(sock, context)
        except Exception as error:  # noqa: BLE001 - counted and logged by its place: it costs one connection
            self.count_end("fault", error)
            sock.close()

    def _serve(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        if len(self._links) >= self._most:
            self.count_end("limit")
            evicted = self._opening.oldest() or next(iter(self._idle), None)
            if evicted is None:
                sock.close()
                return
            evicted.abort()
            self.forget(evicted)
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            _set_options(sock, self._connections)
        link = _Link(self, sock, Connection(self._limits, self.budget))
        self._links[link.connection] = link
        self._opening.add(link)
        link.begin(context)

    def _expire(self, link: _Link) -> None:
        self.count_end("handshake")
        link.abort()
        self.forget(link)

    def handler_of(self, call: _Call, path: str) -> Handler | None:
        """Begin a call; None: it is refused, and has ended."""
        served = self._methods.get(path)
        if served is None:
            call.end(_UNIMPLEMENTED, "no such method")
            return None
        method, service = served
        if self.gate is not None and service != HEALTH:
            names = self.gate.names(call.link.certificate)
            why = self.gate.refuses(names, service, allowed_roles(service), call.peer)
            if why is not None:
                call.end(_PERMISSION_DENIED, why)
                return None
        return method(call)

    def write_out(self, link: _Link) -> None:
        """Write what a call of a connection's method has caused, there and on other links."""
        link.flush()
        idle = not link.connection.streams
        if idle is not link.idle and link.connection.started and not link.lost:
            self._opening.discard(link)
            link.idle = idle
            if idle:
                self._idle[link] = None
            else:
                self._idle.pop(link, None)
        if self.budget.stirred or self.budget.waiting or self._relief is not None:
            self._write_others()

    def _write_others(self) -> None:
        budget = self.budget
        while budget.stirred:
            link = self._links.get(budget.stirred.pop())
            if link is not None:
                link.react()
                link.flush()
        if budget.waiting and self._relief is None:
            self._relief = asyncio.get_running_loop().call_later(MEMORY_SECONDS, self._relieve)
        if not budget.waiting and self._relief is not None:
            self._relief.cancel()
            self._relief = None

    def _relieve(self) -> None:
        self._relief = None
        self.budget.relieve()
        self._write_others()

    def add_silent(self, call: tuple[_Link, int]) -> None:
        """Give a call's first message its time; the oldest call may have to end for that."""
        silent = self.first_messages
        silent.add(call)
        if len(silent) > CROWDED and too_silent(len(silent), silent.longest_seconds()):
            silent.expire_oldest()

    def forget(self, link: _Link) -> None:
        """A link is gone, perhaps before its transport was there."""
        link.connection.lost()
        self._links.pop(link.connection, None)
        self._idle.pop(link, None)
        self._opening.discard(link)
        if self._empty is not None and not self._links:
            self._empty.set()

    def count_end(self, cause: str, why: str | Exception = "") -> None:
        """Count a connection that the server ends, and log why."""
        if self._metrics is not None:
            self._metrics.connection_ends[cause].inc()
        self._log("connection", cause, why)

    def count_stream_end(self, cause: str, why: str | Exception = "") -> None:
        """Count a stream that ends neither by its method, nor by its client, nor with its connection."""
        if self._metrics is not None and cause in self._metrics.stream_ends:
            self._metrics.stream_ends[cause].inc()
        self._log("call", cause, why)

    def _log(self, what: str, cause: str, why: str | Exception) -> None:
        """Log why something ends, one line a minute for each cause; of a fault of ours its place alone."""
        now = asyncio.get_running_loop().time() if why else 0.0
        if not why or now < self._quiet_until.get((what, cause), now):
            return
        self._quiet_until[what, cause] = now + _LOG_SECONDS
        if isinstance(why, Exception):
            place = traceback.extract_tb(why.__traceback__)[-1]
            why = f"fault of ours, {type(why).__name__} at {place.filename}:{place.lineno}"
        logger.warning("%s ends a %s: %s", self.name, what, why)


class _Call:
    """A call on a link: `fleet.lane.method.Call`."""

    __slots__ = ("_stream", "link")

    def __init__(self, link: _Link, stream: int) -> None:
        self.link = link
        self._stream = stream

    @property
    def peer(self) -> str:
        return self.link.peer

    @property
    def certificate(self) -> bytes:
        return self.link.certificate

    def sending(self) -> asyncio.Future[None] | None:
        return self.link.sending(self._stream)

    def answer(self, *fields: tuple[bytes, bytes]) -> None:
        self.link.connection.answer(self._stream, fields)
        self.link.write_out()

    def keep(self, size: int) -> None:
        self.link.connection.keep(self._stream, size)

    def free(self, size: int) -> None:
        self.link.connection.free(self._stream, size)
        self.link.write_out()

    def write(self, *messages: bytes) -> None:
        self.link.connection.send(self._stream, *messages)
        self.link.write_out()

    def end(self, status: int = 0, text: str = "") -> None:
        self.link.end(self._stream, status, text)

    def pause_reading(self) -> None:
        self.link.connection.pause(self._stream)

    def resume_reading(self) -> None:
        self.link.connection.resume(self._stream)
        self.link.write_out()


class _Link(asyncio.Protocol):
    """An accepted connection: feeds its `Connection`, and runs the handlers of its calls."""

    def __init__(self, server: LaneServer, sock: socket.socket, connection: Connection) -> None:
        self.connection = connection
        self.peer = ""
        self.certificate = b""
        self.idle: bool | None = None
        """Whether it has no streams; None: the client has not begun yet."""
        self._server = server
        self._sock = sock
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._calls: dict[int, Handler | None] = {}
        """None: its handler is being made."""
        self._sending: dict[int, asyncio.Future[None]] = {}
        """What calls wait for whose messages wait."""
        self._deadlines: dict[int, asyncio.TimerHandle] = {}
        self._timer: asyncio.TimerHandle | None = None
        """Renews the connection; once that closes, ends it."""
        self._reacting = False
        """Events are being handled."""
        self._pauses: set[str] = set()
        """Causes not to read: `_FULL`, `_BEHIND`."""
        self._data: deque[bytes] = deque()
        """Not read yet."""
        self._at = 0
        """Bytes of the first that are."""
        self._piece_bytes = _FEWEST_PIECE_BYTES
        self.used = server.turns.start
        self._events: deque[Event] = deque()
        """Not handled yet."""
        self._in_turn = False
        """What is behind waits for its turns."""
        self.lost = False

    def begin(self, context: ssl.SSLContext | None) -> None:
        """Begin to read, after the TLS handshake if there is one."""
        self._connecting = asyncio.create_task(self._connect(context))

    async def _connect(self, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            if context is None:
                await loop.connect_accepted_socket(lambda: self, self._sock)
            else:
                await loop.connect_accepted_socket(
                    lambda: self,
                    self._sock,
                    ssl=context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=_CLOSING_SECONDS,
                )
        except OSError as error:
            logger.debug("a connection to %s came to nothing: %s", self._server.address, error)
            self._server.forget(self)
            self._sock.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are not of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = _peer(peer) if isinstance(peer, tuple) else "unix:"
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            if secured.selected_alpn_protocol() != "h2":
                self.abort()
                return
            self.certificate = secured.getpeercert(binary_form=True) or b""
            if self._server.gate is not None:
                age = CONNECTION_SECONDS * random.uniform(0.9, 1.1)  # noqa: S311 - spreads handshakes
                self._timer = asyncio.get_running_loop().call_later(age, self._renew)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._data.append(data)
        self._work()
        self._server.write_out(self)

    def connection_lost(self, _error: BaseException | None) -> None:
        self._transport = None
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
        self._drop()
        self._events.extend(self.connection.lost())
        # A call whose end the connection has already reported may be among them: the first report counts.
        self._events.extend(Ended(stream, "lost") for stream in self._calls)
        self._work()
        self._server.write_out(self)

    def _drop(self) -> None:
        """Drop what is unread and not handled, apart from the ends of calls: handlers need them."""
        self._data.clear()
        self._at = 0
        self._events = deque(event for event in self._events if isinstance(event, Ended))

    def pause_writing(self) -> None:
        self.pause(_FULL)

    def resume_writing(self) -> None:
        self.resume(_FULL)
        self._server.write_out(self)

    def pause(self, cause: str) -> None:
        """Read nothing until each cause is resumed."""
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pauses.add(cause)

    def resume(self, cause: str) -> None:
        """Read again, if no other cause is left."""
        if cause not in self._pauses:
            return
        self._pauses.discard(cause)
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def react(self) -> None:
        """Handle what a call of another connection has caused here."""
        self._data.append(b"")
        self._work()

    def _work(self) -> None:
        """Read and handle at once, or in turns with other links, and this link is not read meanwhile.

        One pass of uvloop may read megabytes of a connection: thousands of streams, or a flood of frames.
        """
        if self._in_turn:
            return
        if self._server.turns.work(self):
            self._in_turn = True
            self.pause(_BEHIND)
        elif self.lost:
            self._server.forget(self)

    @property
    def behind(self) -> bool:
        return bool(self._events or self._data)

    def after_turn(self) -> None:
        if not self.behind:
            self._in_turn = False
            self.resume(_BEHIND)
        self._server.write_out(self)
        if self.lost and not self._in_turn:
            self._server.forget(self)

    def work_piece(self) -> None:
        """Handle some events, after the next bytes if there are none. The edge for faults of ours."""
        self._reacting = True
        try:
            if not self._events:
                self._read_piece()
            for _ in range(min(_EVENTS_AT_ONCE, len(self._events))):
                event = self._events.popleft()
                self._guard(event.stream, self._handle, event)
        except Exception as error:  # noqa: BLE001 - counted and logged by its place: it costs one connection
            self._fail(error)
        finally:
            self._reacting = False

    def _read_piece(self) -> None:
        """Read the next bytes: few where frames are dear, such as header blocks that need decoding."""
        data, size = self._data[0], self._piece_bytes
        piece = data[self._at : self._at + size]
        self._at += size
        if self._at >= len(data):
            self._data.popleft()
            self._at = 0
        began = time.monotonic()
        self._events.extend(self.connection.receive(piece))
        if time.monotonic() - began > SLICE_SECONDS / 2:
            self._piece_bytes = max(size // 2, _FEWEST_PIECE_BYTES)
        elif len(piece) == size:
            self._piece_bytes = min(2 * size, _MOST_PIECE_BYTES)

    def _fail(self, error: Exception) -> None:
        self._server.count_end("fault", error)
        self._drop()
        self.abort()

    def _guard(self, stream: int, step: Callable[..., None], *arguments: Any) -> None:
        """Let a call's handler act. The edge for its faults: one costs its call, which ends with OK.

        An error could fail a request that Envoy alone would have served.
        """
        try:
            step(*arguments)
        except Exception as error:  # noqa: BLE001 - counted and logged by its place
            self._server.count_stream_end("fault", error)
            handler = self._calls.get(stream)
            self.end(stream, 0, "")
            if handler is not None:
                self._guard(stream, handler.ended, "fault")

    def _handle(self, event: Event) -> None:
        stream = event.stream
        if isinstance(event, Opened):
            self._begin(event)
            return
        handler = self._calls.get(stream)
        if handler is None:
            return
        if isinstance(event, Message):
            self._server.first_messages.discard((self, stream))
            handler.message(event.data)
        elif isinstance(event, HalfClosed):
            handler.half_closed()
        else:
            self._finish(event)

    def _begin(self, opened: Opened) -> None:
        stream, server = opened.stream, self._server
        self._calls[stream] = None
        handler = server.handler_of(_Call(self, stream), opened.path)
        if handler is None or stream not in self._calls:
            return
        self._calls[stream] = handler
        server.add_silent((self, stream))
        seconds = opened.timeout_seconds
        if seconds is not None and seconds <= _MOST_DEADLINE_SECONDS:
            self._deadlines[stream] = asyncio.get_running_loop().call_later(seconds, self._late, stream)

    def _finish(self, event: Ended) -> None:
        """A call has ended, from the outside."""
        handler = self._forget(event.stream)
        self._server.count_stream_end(event.reason)
        if handler is not None:
            handler.ended(event.reason)

    def _forget(self, stream: int) -> Handler | None:
        self._server.first_messages.discard((self, stream))
        if self._deadlines and (deadline := self._deadlines.pop(stream, None)) is not None:
            deadline.cancel()
        if self._sending:
            self._sending.pop(stream, None)
        return self._calls.pop(stream, None)

    def _late(self, stream: int) -> None:
        self.connection.end(stream, DEADLINE_EXCEEDED, "the deadline is over")
        self._guard(stream, self._finish, Ended(stream, "deadline"))
        self.write_out()

    def sending(self, stream: int) -> asyncio.Future[None] | None:
        """Return what is done once a call's messages no longer wait for the client."""
        if not self.connection.unread(stream):
            return None
        waiting = self._sending[stream] = asyncio.get_running_loop().create_future()
        return waiting

    def end_silent(self, stream: int) -> None:
        """End a call without a first message."""
        handler = self._calls.get(stream)
        if handler is not None:
            self._server.count_stream_end("silent")
            self._guard(stream, handler.silent)

    def end(self, stream: int, status: int, text: str) -> None:
        """End a call from its method's side."""
        if stream in self._calls:
            self._forget(stream)
            self.connection.end(stream, status, text)
            self.write_out()

    def write_out(self) -> None:
        """Write, unless that follows once all events are handled."""
        if not self._reacting:
            self._server.write_out(self)

    def _renew(self) -> None:
        """Have the client open another connection."""
        self.go_away()
        seconds = self._server.last_seconds
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def go_away(self) -> None:
        """Ask the client to leave; the second time without the streams that are on their way."""
        self.connection.go_away()
        self._server.write_out(self)

    def flush(self) -> None:
        """Write as much as the transport takes. The edge for faults of ours."""
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001 - counted and logged by its place: it costs one connection
            self._fail(error)

    def _flush(self) -> None:
        transport, connection = self._transport, self.connection
        if transport is None or transport.is_closing():
            return
        while _FULL not in self._pauses and (data := connection.take()):
            transport.write(data)
        if connection.sent:
            sent, connection.sent = connection.sent, []
            for stream in sent:
                waiting = self._sending.pop(stream, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)
        if connection.closing and _FULL not in self._pauses:
            if connection.error:
                self._server.count_end("protocol", connection.error)
            self.close()

    def close(self) -> None:
        """Close it, once what is written has been sent."""
        if self._transport is None:
            self.abort()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
        self._timer = asyncio.get_running_loop().call_later(_CLOSING_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Close it immediately."""
        if self._transport is not None:
            self._transport.abort()
        elif self._connecting is not None:
            self._connecting.cancel()
            self._sock.close()
            self._server.forget(self)


def _peer(address: tuple[str, int]) -> str:
    """Return an address of a client in gRPC's form."""
    host, port = address[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _end_silent(call: tuple[_Link, int]) -> None:
    link, stream = call
    link.end_silent(stream)


def _set_options(sock: socket.socket, settings: ConnectionSettings) -> None:
    """Send replies at once, and let the kernel notice a half-dead peer within both times of pings."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    whole = settings.ping_seconds + settings.ping_timeout_seconds
    for name, value in (
        ("TCP_KEEPIDLE", min(settings.ping_seconds, _MOST_KEEP_ALIVE_SECONDS)),
        ("TCP_KEEPINTVL", settings.ping_timeout_seconds / _PROBES),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", 1000 * whole),
    ):
        # Not every system has each of them.
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, max(1, round(value)))
