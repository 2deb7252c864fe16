"""Binding, readiness, the admin server and traces, on real sockets."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry, Counter

from fleet.errors import SettingsError
from fleet.lane.server import LaneServer
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.binding import prepare
from fleet.service.serving import GrpcServer
from fleet.service.telemetry import shut_down, tracer_provider
from fleet.settings.connections import ConnectionSettings
from fleet.settings.telemetry import TelemetrySettings


class Server(Protocol):
    """What both kinds of gRPC servers have in common."""

    address: str

    async def start(self) -> None: ...

    async def set_ready(self, *, ready: bool) -> None: ...

    async def stop(self, grace_seconds: float) -> None: ...


def lane(name: str, address: str) -> LaneServer:
    return LaneServer(name, address, ConnectionSettings(), {})


both = pytest.mark.parametrize("make", [GrpcServer, lane], ids=["grpcio", "lane"])


async def health(address: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return int(reply.status)


@both
async def test_health_follows_readiness_and_the_directory_is_private(
    tmp_path: Path, make: Callable[[str, str], Server]
) -> None:
    server = make("x", f"unix:{tmp_path}/new/x.sock")
    await server.start()
    assert (tmp_path / "new").stat().st_mode & 0o007 == 0
    kinds = health_pb2.HealthCheckResponse
    assert await health(server.address) == kinds.NOT_SERVING
    await server.set_ready(ready=True)
    assert await health(server.address) == kinds.SERVING
    await server.stop(0)


@both
async def test_a_socket_left_by_a_killed_process_is_taken_over(
    tmp_path: Path, make: Callable[[str, str], Server]
) -> None:
    path = tmp_path / "x.sock"
    code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, str(path)], check=True)
    assert path.is_socket()
    server = make("x", f"unix:{path}")
    await server.start()
    assert await health(server.address)
    await server.stop(0)


@both
async def test_a_socket_on_which_somebody_listens_is_left_alone(
    tmp_path: Path, make: Callable[[str, str], Server]
) -> None:
    """Binding would unlink it, and so would the newcomer's end: nobody could connect any more."""
    first = make("one", f"unix:{tmp_path}/x.sock")
    await first.start()
    second = make("two", first.address)
    with pytest.raises(SettingsError, match="another process listens"):
        await second.start()
    await second.stop(0)
    assert await health(first.address)
    await first.stop(0)


@both
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177])
async def test_a_socket_is_for_its_owner_and_group_whatever_the_umask(
    tmp_path: Path, umask: int, make: Callable[[str, str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its first moment: a directory that was there before may be open to everybody."""
    path, server = tmp_path / "x.sock", make("x", f"unix:{tmp_path}/x.sock")
    modes: list[int] = []

    def look(step: Any) -> Any:
        def looked(*values: Any) -> Any:
            modes.append(path.stat().st_mode & 0o777)
            return step(*values)

        return looked

    if isinstance(server, GrpcServer):
        monkeypatch.setattr(server.server, "start", look(server.server.start))
    else:
        monkeypatch.setattr(socket.socket, "listen", look(socket.socket.listen))
    before = os.umask(umask)
    try:
        await server.start()
        assert os.umask(umask) == umask, "what others make meanwhile keeps its mode"
    finally:
        os.umask(before)
    assert [*modes, path.stat().st_mode & 0o777] == [0o660, 0o660]
    await server.stop(0)


@both
async def test_silent_grpc_connections_are_limited(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch, make: Callable[[str, str], Server]
) -> None:
    """Whoever opens connections and says nothing keeps nobody out for longer than a handshake takes."""
    for module in ("fleet.service.serving", "fleet.lane.server"):
        monkeypatch.setattr(f"{module}.grpc_connections", lambda: 8)
        monkeypatch.setattr(f"{module}.HANDSHAKE_SECONDS", 0.5)
    server = make("x", f"127.0.0.1:{unused_tcp_port}")
    await server.start()
    silent = [await asyncio.open_connection("127.0.0.1", unused_tcp_port) for _ in range(20)]
    async with asyncio.timeout(60):
        # gRPC may say its first words before it ends a connection.
        await asyncio.gather(*(reader.read() for reader, _ in silent), return_exceptions=True)
    assert await health(server.address)
    for _, writer in silent:
        writer.transport.abort()
    await server.stop(0)


def test_a_file_in_the_sockets_place_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    path.write_text("precious")
    with pytest.raises(SettingsError, match="not a socket"):
        prepare("x.address", f"unix:{path}")


@both
async def test_a_taken_port_is_an_error_with_the_address(
    unused_tcp_port: int, make: Callable[[str, str], Server]
) -> None:
    first = make("one", f"127.0.0.1:{unused_tcp_port}")
    await first.start()
    with pytest.raises(SettingsError, match=rf"two\.address: '127.0.0.1:{unused_tcp_port}': another process"):
        await make("two", f"127.0.0.1:{unused_tcp_port}").start()
    await first.stop(0)


async def test_admin_shows_health_readiness_metrics_and_views(unused_tcp_port: int) -> None:
    registry, ready = CollectorRegistry(), [False]
    Counter("warmroute_test_total", "x", registry=registry).inc()
    address = f"127.0.0.1:{unused_tcp_port}"
    admin = AdminServer(Access(address), registry, lambda: ready[0], {"/api/v1/x": lambda: {"a": None}})
    await admin.start()
    async with aiohttp.ClientSession(f"http://{address}") as client:
        assert (await client.get("/healthz")).status == 200
        assert (await client.get("/readyz")).status == 503
        ready[0] = True
        assert (await client.get("/readyz")).status == 200
        assert "warmroute_test_total 1.0" in await (await client.get("/metrics")).text()
        assert json.loads(await (await client.get("/api/v1/x")).text()) == {"a": None}
        assert (await client.get("/nothing")).status == 404
        listed = (await (await client.get("/")).text()).split()
        assert listed == ["/healthz", "/readyz", "/metrics", "/api/v1/x"]
    await admin.stop()


async def test_unread_response_does_not_delay_admin_stop(
    unused_tcp_port: int,
) -> None:
    """Aiohttp's own patience is a minute."""
    admin = AdminServer(
        Access(f"127.0.0.1:{unused_tcp_port}"),
        CollectorRegistry(),
        lambda: True,
        {"/big": lambda: "x" * 33_554_432},
    )
    await admin.start()
    _, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port, limit=1024)
    writer.write(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.sleep(0.1)
    async with asyncio.timeout(20):
        await admin.stop()
    writer.close()


async def test_a_dead_collector_does_not_hold_up_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    provider = tracer_provider(TelemetrySettings(traces="otlp"), "test")
    with provider.get_tracer("x").start_as_current_span("y"):
        pass
    async with asyncio.timeout(8):
        await shut_down(provider)


def test_silent_collector_does_not_delay_exit(unused_tcp_port: int) -> None:
    """It takes connections and answers nothing, so each of several batches runs into its timeout."""
    patience = {"OTEL_EXPORTER_OTLP_TIMEOUT": "300"}
    code = """
import asyncio, socket
from fleet.service.serving import run
from fleet.settings.connections import ConnectionSettings
from fleet.settings.telemetry import TelemetrySettings
from fleet.service.telemetry import shut_down, tracer_provider
silent = socket.create_server(("127.0.0.1", PORT))
async def main():
    provider = tracer_provider(TelemetrySettings(traces="otlp"), "test")
    for _ in range(2000):
        provider.get_tracer("x").start_span("y").end()
    print("began", flush=True)
    await shut_down(provider, 0.5)
    return 0
raise SystemExit(run(main()))
""".replace("PORT", str(unused_tcp_port))
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{unused_tcp_port}"}
    environment = {**os.environ, **endpoint, **patience}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"began\n"
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()


async def test_a_span_reaches_an_otlp_collector(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """Whichever package's protobuf modules are installed, what arrives is the span that was ended."""
    arrived: list[bytes] = []

    async def export(request: bytes, _: object) -> bytes:
        arrived.append(request)
        return b""

    handler = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.trace.v1.TraceService",
        {"Export": grpc.unary_unary_rpc_method_handler(export)},
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"127.0.0.1:{unused_tcp_port}")
    await server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{unused_tcp_port}")
    provider = tracer_provider(TelemetrySettings(traces="otlp", service_name="mine"), "test")
    with provider.get_tracer("scope").start_as_current_span("weight_update") as span:
        span.set_attribute("warmroute.endpoint", "10.0.0.1:80")
    await shut_down(provider)
    await server.stop(0)
    assert len(arrived) == 1
    for part in (b"weight_update", b"warmroute.endpoint", b"10.0.0.1:80", b"mine", b"scope"):
        assert part in arrived[0]


@pytest.mark.parametrize("count", [1, 2])
def test_sigterm_drains_and_a_second_one_leaves_at_once(count: int) -> None:
    code = """
import asyncio, sys
from fleet.service.serving import StopSignals, run
async def main():
    stop = StopSignals()
    print("up", flush=True)
    await stop.wait()
    print("draining", flush=True)
    if sys.argv[1] == "2":
        await asyncio.sleep(60)
    return 7
sys.exit(run(main()))
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(count)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "up\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "draining\n"
        if count == 2:
            os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == (7 if count == 1 else 128 + signal.SIGTERM)


@both
async def test_all_pings_on_a_quiet_connection_are_answered(
    tmp_path: Path, make: Callable[[str, str], Server]
) -> None:
    """By gRPC's default two pings too many within minutes end a connection: Envoys ping every few seconds."""
    address = f"unix:{tmp_path / 'a.sock'}"
    server = make("quiet", address)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(tmp_path / "a.sock")
    settings, ping, go_away = 4, 6, 7
    payloads = [number.to_bytes(8, "big") for number in range(20)]
    # RFC 9113, sections 3.4, 4.1 and 6.7: preface, empty SETTINGS, then PING frames.
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, settings, 0, 0, 0, 0, 0)))
    answered: list[bytes] = []
    try:
        async with asyncio.timeout(60):
            for payload in payloads:
                writer.write(bytes((0, 0, 8, ping, 0, 0, 0, 0, 0)) + payload)
                while payload not in answered:
                    header = await reader.readexactly(9)
                    frame = await reader.readexactly(int.from_bytes(header[:3], "big"))
                    assert header[3] != go_away, frame
                    if header[3] == ping and header[4] == 1:
                        answered.append(frame)
    finally:
        writer.close()
        await server.stop(0)
    assert answered == payloads
