"""The lane's server on real sockets: health, time limits, memory, limits of connections, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import grpc
import h2.connection
import h2.events
import pytest
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from fleet.lane import server as lane_server
from fleet.lane.budget import Budget
from fleet.lane.connection import Connection
from fleet.lane.health import NO_SUCH_SERVICE
from fleet.lane.metrics import LaneMetrics
from fleet.lane.server import LaneServer
from fleet.service.serving import MAX_NAME, HealthNames
from fleet.service.tls import Certificates, Files
from fleet.settings.connections import PERMITTED_PING_SECONDS, ConnectionSettings
from testing.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from fleet.lane.method import Call

PATH = "/test.Test/Echo"
MEBI = 1 << 20


class Echo:
    """Sends each message back, or as many bytes as it names; remembers how its call went."""

    def __init__(self, calls: list[Echo], call: Call) -> None:
        calls.append(self)
        self._call = call
        self.messages = 0
        self.end = ""

    def message(self, data: bytes) -> None:
        if data == b"pause":
            self._call.pause_reading()
        self.messages += 1
        self._call.write(data)

    def half_closed(self) -> None:
        self._call.end()

    def silent(self) -> None:
        self._call.end(4, "silent")

    def ended(self, reason: str) -> None:
        self.end = reason


class Served:
    """A server on a Unix socket, its calls and its metrics."""

    def __init__(self, path: Path) -> None:
        self.calls: list[Echo] = []
        self.clients: list[Client] = []
        self.path = path
        self.registry = CollectorRegistry()
        methods = {PATH: lambda call: Echo(self.calls, call)}
        health = HealthNames(("a",), "b")
        metrics = LaneMetrics.on(self.registry, "x")
        self.server = LaneServer(
            "x",
            f"unix:{path}",
            ConnectionSettings(),
            methods,
            health=health,
            metrics=metrics,
        )

    async def client(self) -> Client:
        client = Client(*await asyncio.open_unix_connection(self.path))
        self.clients.append(client)
        return client

    def ends(self, cause: str, what: str = "connection") -> float:
        labels = {"service": "x", "cause": cause}
        return self.registry.get_sample_value(f"warmroute_grpc_{what}_ends_total", labels) or 0.0


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Served]:
    served = Served(directory / "x.sock")
    await served.server.start()
    try:
        yield served
    finally:
        for client in served.clients:
            client.writer.close()
        await served.server.stop(0)


class Client:
    """A client over hyper-h2 that reads when the test says so."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._h2 = h2.connection.H2Connection()
        self._h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self._waits = False
        self.flush()

    def flush(self) -> None:
        if not self._waits:
            self.writer.write(self._h2.data_to_send())

    @contextlib.contextmanager
    def in_one_piece(self) -> Iterator[None]:
        """Send the frames of a context in one piece, at its end."""
        self._waits = True
        yield
        self._waits = False
        self.flush()

    def call(self, *headers: tuple[str, str], message: bytes | None = b"hi") -> int:
        stream: int = self._h2.get_next_available_stream_id()
        fields = [(":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "x")]
        more = [("te", "trailers"), ("content-type", "application/grpc"), *headers]
        self._h2.send_headers(stream, [*fields, *more])
        if message is not None:
            self.send(stream, message)
        self.flush()
        return stream

    def send(self, stream: int, message: bytes) -> None:
        self._h2.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message)
        self.flush()

    async def until(self, kind: type[h2.events.Event]) -> Any:
        """Read until there is an event of this kind; None: the connection ended before."""
        async with asyncio.timeout(60):
            while True:
                for event in self.events:
                    if isinstance(event, kind):
                        self.events.remove(event)
                        return event
                try:
                    data = await self._reader.read(65_536)
                except ConnectionError:
                    data = b""
                if not data:
                    return None
                self.events += self._h2.receive_data(data)
                self.flush()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


async def test_health_is_as_over_grpcio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = health_pb2.HealthCheckResponse
    monkeypatch.setattr("fleet.lane.health.MAX_WATCHES", 2)
    async with serving(tmp_path) as served, grpc.aio.insecure_channel(served.server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def watch(service: str) -> Any:
            return stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=60)

        async def code(call: Any) -> grpc.StatusCode:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await (call.read() if isinstance(call, grpc.aio.UnaryStreamCall) else call)
            return await call.code()

        watches = [watch("a"), watch("new")]
        states = [(await each.read()).status for each in watches]
        assert states == [kinds.NOT_SERVING, kinds.SERVICE_UNKNOWN]
        assert (await stub.Check(health_pb2.HealthCheckRequest(service="b"))).status == kinds.SERVING
        await served.server.set_ready(ready=True)
        assert (await watches[0].read()).status == kinds.SERVING
        codes = grpc.StatusCode
        assert await code(watch("a")) is codes.RESOURCE_EXHAUSTED
        assert await code(watch("x" * (MAX_NAME + 1))) is codes.INVALID_ARGUMENT
        watches[0].cancel()
        await until(lambda: len(served.server._health._watches) == 1)
        again = watch("a")
        assert (await again.read()).status == kinds.SERVING
        again.cancel()
        unknown = stub.Check(health_pb2.HealthCheckRequest(service="other"))
        assert (await code(unknown)).value[0] == NO_SUCH_SERVICE
        assert await code(channel.unary_unary("/grpc.health.v1.Health/Other")(b"")) is codes.UNIMPLEMENTED


async def test_time_limits_end_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first message's by the method's own status, a deadline by the server's."""
    monkeypatch.setattr(lane_server, "FIRST_MESSAGE_SECONDS", 0.05)
    async with serving(tmp_path) as served:
        client = await served.client()
        lasting = client.call()
        silent = client.call(message=None)
        assert (await client.until(h2.events.StreamEnded)).stream_id == silent
        assert served.ends("silent", "stream") == 1
        client.call(("grpc-timeout", "50m"))
        await until(lambda: served.calls[-1].end)
        assert served.calls[-1].end == "deadline"
        assert served.ends("deadline", "stream") == 1
        client.send(lasting, b"more")
        await until(lambda: served.calls[0].messages == 2)


async def test_idle_connections_end_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit; one with a stream stays, and a newcomer is served."""
    monkeypatch.setattr(lane_server, "grpc_connections", lambda: 3)
    async with serving(tmp_path) as served:
        busy = await served.client()
        stream = busy.call()
        await busy.until(h2.events.DataReceived)
        clients = []
        for _ in range(6):
            clients.append(await served.client())
            await clients[-1].until(h2.events.SettingsAcknowledged)
        assert await clients[0].until(h2.events.DataReceived) is None, "it was idle for longest"
        busy.send(stream, b"more")
        assert await busy.until(h2.events.DataReceived) is not None
        clients[-1].call()
        assert await clients[-1].until(h2.events.DataReceived) is not None
        assert served.ends("limit") == 4


async def test_drain_lets_open_calls_finish(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, grpc.aio.insecure_channel(served.server.address) as channel:
        method = channel.stream_stream(PATH)
        call = method(timeout=60)
        await call.write(b"early")
        assert await call.read() == b"early"
        stopping = asyncio.create_task(served.server.stop(60.0))
        with pytest.raises(grpc.aio.AioRpcError):
            while True:
                refused = method(timeout=60)
                await refused.write(b"x")
                assert await refused.read() == b"x", "until the client knows"
                refused.cancel()
        await call.write(b"late")
        assert await call.read() == b"late"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        await stopping


async def test_a_grace_that_is_over_ends_calls(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        client = await served.client()
        client.call()
        await client.until(h2.events.DataReceived)
        await served.server.stop(0.01)
        assert served.calls[0].end == "lost"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_reads_nothing_is_not_read(tmp_path: Path, new_loop: Callable[[], Any]) -> None:
    """Its windows are open, so only the socket limits the server; once it reads, all arrives.

    Services run on uvloop, whose transports are classes of its own.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_read_nothing(tmp_path))


async def _read_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        client = await served.client()
        client._h2.increment_flow_control_window(1 << 30)
        stream = client.call(message=None)
        client._h2.increment_flow_control_window(1 << 30, stream)
        message, count = bytes(16_000), 2_000
        client.flush()
        await until(lambda: served.calls)
        raw = b"\0" + len(message).to_bytes(4, "big") + message
        frame = len(raw).to_bytes(3, "big") + b"\0\0" + stream.to_bytes(4, "big") + raw

        async def send() -> None:
            for _ in range(count):
                client.writer.write(frame)
                await client.writer.drain()

        sending = asyncio.create_task(send())
        echo, before = served.calls[0], -1
        while echo.messages != before:
            before = echo.messages
            await asyncio.sleep(0.2)
        assert 0 < before < count // 4
        echoed = 0
        while echoed < count * len(raw):
            data = await client.until(h2.events.DataReceived)
            echoed += len(data.data)
        await sending


async def test_a_fault_costs_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted and logged by its place, without its text, although a peer's has just been logged."""
    receive = Connection.receive

    def faulty(connection: Connection, data: bytes) -> list[Any]:
        return fail() if b"fault" in data else receive(connection, data)

    monkeypatch.setattr(Connection, "receive", faulty)
    async with serving(tmp_path) as served:
        other, client = await served.client(), await served.client()
        other.call()
        await other.until(h2.events.DataReceived)
        _, malformed = await asyncio.open_unix_connection(served.path)
        malformed.write(bytes(100))
        await until(lambda: served.ends("protocol") == 1)
        malformed.close()
        client.call(message=b"fault")
        assert await client.until(h2.events.DataReceived) is None
        assert served.ends("fault") == 1
        assert "ValueError at " in caplog.text
        assert "secret" not in caplog.text
        other.call()
        assert await other.until(h2.events.DataReceived) is not None


def compute(seconds: float) -> None:
    """Use the processor for so long: turns go by that, not by the time that passes."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def fail(*_: object) -> Any:
    raise ValueError("secret")


@pytest.mark.parametrize("step", ["__init__", "message", "half_closed", "silent", "ended"])
async def test_a_handlers_fault_costs_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """Which ends with OK, and its handler learns of it; the connection's other calls go on."""
    monkeypatch.setattr(lane_server, "FIRST_MESSAGE_SECONDS", 0.05)
    async with serving(tmp_path) as served:
        client = await served.client()
        lasting = client.call()
        await client.until(h2.events.DataReceived)
        client.events.clear()
        with monkeypatch.context() as faulty:
            faulty.setattr(Echo, step, fail)
            stream = client.call(message=None if step == "silent" else b"x")
            if step == "half_closed":
                client._h2.end_stream(stream)
            if step == "ended":
                client._h2.reset_stream(stream)
            client.flush()
            await until(lambda: served.ends("fault", "stream"))
        assert "ValueError at " in caplog.text
        assert "secret" not in caplog.text
        if step != "ended":
            kind = h2.events.TrailersReceived if step == "half_closed" else h2.events.ResponseReceived
            trailers = await client.until(kind)
            assert (b"grpc-status", b"0") in trailers.headers
        if step in {"message", "half_closed", "silent"}:
            assert served.calls[1].end == "fault"
        client.send(lasting, b"more")
        await until(lambda: served.calls[0].messages == 2)


@pytest.mark.parametrize("ends", ["lost", "fault of ours"])
async def test_each_handler_learns_its_calls_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Although the connection ends while the server is behind, and the client has reset the call before."""
    count = 200

    def message(echo: Echo, _: bytes) -> None:
        compute(0.001)
        echo.messages += 1
        if ends == "lost":
            link.abort()

    monkeypatch.setattr(Echo, "message", message)
    async with serving(tmp_path) as served:
        client = await served.client()
        await client.until(h2.events.SettingsAcknowledged)
        streams = [client.call(message=None) for _ in range(count)]
        await until(lambda: len(served.calls) == count)
        (link,) = served.server._links.values()
        with client.in_one_piece():
            for stream in streams[:40]:
                client.send(stream, b"x")
            for stream in streams[40:]:
                client._h2.reset_stream(stream)
        if ends == "fault of ours":
            monkeypatch.setattr(Connection, "take", fail)
        await until(lambda: all(call.end for call in served.calls))
        assert sum(call.messages for call in served.calls) < 40, "it was behind"
        await until(lambda: not served.server._links)


async def test_a_pause_is_one_calls(tmp_path: Path) -> None:
    """Other calls of its connection go on, and it has its window's rest."""
    async with serving(tmp_path) as served:
        client = await served.client()
        await client.until(h2.events.SettingsAcknowledged)
        paused = client.call(message=b"pause")
        await until(lambda: served.calls and served.calls[0].messages)
        client.call()
        await until(lambda: len(served.calls) == 2 and served.calls[1].messages)
        client.send(paused, bytes(10_000))
        client.send(paused, bytes(10_000))
        client.send(paused, bytes(16_000))
        await until(lambda: served.calls[0].messages == 4)
        assert client._h2.local_flow_control_window(paused) < 30_000
        served.calls[0]._call.resume_reading()
        while (await client.until(h2.events.WindowUpdated)).stream_id != paused:
            pass
        assert client._h2.local_flow_control_window(paused) > 60_000


async def test_many_requests_of_one_read_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another connection is answered between them."""
    count, order = 300, []

    def message(echo: Echo, data: bytes) -> None:
        compute(0.0005)
        order.append(data)
        echo._call.write(data)

    monkeypatch.setattr(Echo, "message", message)
    async with serving(tmp_path) as served:
        crowd, other = await served.client(), await served.client()
        await other.until(h2.events.SettingsAcknowledged)
        with crowd.in_one_piece():
            for _ in range(count):
                crowd.call(message=b"crowd")
        await until(lambda: order)
        other.call(message=b"other")
        assert await other.until(h2.events.DataReceived) is not None
        assert order.index(b"other") < count // 2
        await until(lambda: len(order) == count + 1)


async def test_a_wait_for_memory_ends_what_stands_still(tmp_path: Path) -> None:
    """In periods, as long as something waits; without it there is no timer."""
    payload = b"\0" + (200_000).to_bytes(4, "big") + bytes(200_000)
    async with serving(tmp_path) as served:
        server = served.server
        budget = server.budget = Budget(1, MEBI)
        client = await served.client()
        await client.until(h2.events.SettingsAcknowledged)
        still, waits = client.call(message=None), client.call(message=None)
        for stream in (still, waits):
            for at in range(0, 40_000, 10_000):
                client._h2.send_data(stream, payload[at : at + 10_000])
            client.flush()
            await until(lambda: budget.permitted)
        await until(lambda: budget.waiting == 1)
        for _ in range(3):
            assert not served.ends("memory", "stream")
            server._relieve()
        assert served.ends("memory", "stream") == 1
        assert server._relief is None, "nothing waits"
        assert [call.end for call in served.calls] == ["memory", ""]


@pytest.mark.parametrize("seconds", [PERMITTED_PING_SECONDS, 86_400])
async def test_every_ping_setting_serves_tcp(seconds: float, unused_tcp_port: int) -> None:
    """Also one above what the kernel permits."""
    settings = ConnectionSettings(ping_seconds=seconds, ping_timeout_seconds=seconds)
    server = LaneServer("x", f"127.0.0.1:{unused_tcp_port}", settings, {})
    await server.start()
    client = Client(*await asyncio.open_connection("127.0.0.1", unused_tcp_port))
    assert await client.until(h2.events.SettingsAcknowledged) is not None
    client.writer.close()
    await server.stop(0)


async def test_a_fault_at_accept_costs_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        with monkeypatch.context() as faulty:
            faulty.setattr(lane_server, "Connection", fail)
            assert await (await served.client()).until(h2.events.SettingsAcknowledged) is None
        assert await (await served.client()).until(h2.events.SettingsAcknowledged) is not None
        assert served.ends("fault") == 1


async def test_a_failed_tls_handshake_leaves_nothing(tmp_path: Path) -> None:
    """Of one that the client breaks, gets wrong, or never begins."""
    issued = Authority(tmp_path).issue("x", "localhost")
    files = Files(str(issued.certificate_file), str(issued.key_file), None)
    tls = Certificates().watch("xds", "tls.xds", files)
    path = tmp_path / "x.sock"
    server = LaneServer("x", f"unix:{path}", ConnectionSettings(), {}, tls=tls)
    await server.start()
    for first in (b"", b"GET / HTTP/1.0\r\n\r\n"):
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(first)
        writer.close()
    _, waits = await asyncio.open_unix_connection(path)
    await until(lambda: len(server._links) == 1)
    waits.close()
    server._opening.expire_oldest()
    await until(lambda: not server._links)
    assert not server.budget.owners
    await server.stop(0)


async def test_malformed_bytes_end_one_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        reader, writer = await asyncio.open_unix_connection(served.path)
        writer.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
        async with asyncio.timeout(60):
            await reader.read(-1)
        assert served.ends("protocol") == 1
        writer.close()


@pytest.mark.parametrize("busy", [False, True])
def test_an_idle_server_is_never_woken_up(tmp_path: Path, busy: bool) -> None:
    """With a connection, and with a stream that waits for its response's end."""
    code = """
import asyncio, sys
from pathlib import Path
import h2.events, uvloop
from fleet.lane import server
from tests.fleet.test_lane_server import Served
server.FIRST_MESSAGE_SECONDS = 0.05
def switches():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
async def main():
    served = Served(Path(sys.argv[1]))
    await served.server.start()
    client = await served.client()
    if sys.argv[2] == "True":
        client.call()
        await client.until(h2.events.DataReceived)
    else:
        await client.until(h2.events.SettingsAcknowledged)
    await asyncio.sleep(0.2)
    before = switches()
    await asyncio.sleep(0.5)
    print(switches() - before)
    client.writer.close()
    await served.server.stop(0)
uvloop.run(main())
"""
    command = [sys.executable, "-c", code, str(tmp_path / "x.sock"), str(busy)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) == 1, "the one that ends the wait"
