"""A client whose authority is withdrawn: neither an open connection nor a remembered session lets it stay."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from bench.abuse.tls import HTTP1, Resuming
from fleet.lane.server import LaneServer
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.credentials import server_credentials
from fleet.service.gate import Gate, GrpcGate
from fleet.service.serving import GrpcServer
from fleet.service.tls import Certificates, Files
from fleet.settings.connections import ConnectionSettings
from testing.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from fleet.lane.method import Call
    from fleet.service.tls import CertificateProvider


class Door:
    """Certificates of one address, of an authority that can be replaced by another one."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{port}"
        self.certificates = Certificates()
        self.issue("old")
        at = directory
        files = Files(f"{at}/own.crt", f"{at}/own.key", f"{at}/test-ca.crt", ca_field="client_ca_file")
        self.provider: CertificateProvider = self.certificates.watch("admin", "tls.admin", files)

    def issue(self, client: str) -> None:
        """Make a new authority, which signs the server's certificate and one for a client."""
        authority = Authority(self.directory)
        authority.issue("own", "warmroute")
        authority.issue(client, client)
        self.authorities = authority.file.read_bytes()

    async def withdraw(self) -> None:
        """From here on `new` is let in, and `old` is a stranger."""
        self.issue("new")
        await self.certificates.look()

    def resuming(self, who: str, version: ssl.TLSVersion, *, http2: bool) -> Resuming:
        at = self.directory
        return Resuming(at / f"{who}.crt", at / f"{who}.key", version=version, http2=http2)

    def channel(self, who: str) -> grpc.aio.Channel:
        shown = [(self.directory / f"{who}.{kind}").read_bytes() for kind in ("key", "crt")]
        # All of its server's certificates, for `old` too: it is the server that must refuse.
        roots = self.authorities
        return grpc.aio.secure_channel(
            self.address,
            grpc.ssl_channel_credentials(roots, *shown),
            options=[("grpc.ssl_target_name_override", "warmroute"), ("grpc.use_local_subchannel_pool", 1)],
        )


@contextlib.asynccontextmanager
async def admin(door: Door) -> AsyncIterator[None]:
    server = AdminServer(Access(door.address, tls=door.provider), CollectorRegistry(), lambda: True, {})
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def services(door: Door, gate: GrpcGate | None = None) -> AsyncIterator[None]:
    server = GrpcServer("xds", door.address, credentials=server_credentials(door.provider), gate=gate)

    async def echo(_: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(message)

    for service in ("FleetControl", "GpuReports"):
        handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
        generic = grpc.method_handlers_generic_handler(f"warmroute.v1.{service}", handlers)
        server.server.add_generic_rpc_handlers((generic,))
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)


class Echo:
    """Sends each message back."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def message(self, data: bytes) -> None:
        self._call.write(data)

    def half_closed(self) -> None:
        self._call.end()

    def silent(self) -> None:
        self._call.end()

    def ended(self, reason: str) -> None:
        """Nothing is kept."""


@contextlib.asynccontextmanager
async def lane(door: Door, last_seconds: float | None = None) -> AsyncIterator[None]:
    gate = Gate("admin", None, door.certificates.refusals)
    methods = {"/warmroute.v1.FleetControl/Echo": Echo}
    server = LaneServer("xds", door.address, ConnectionSettings(), methods, tls=door.provider, gate=gate)
    server.last_seconds = last_seconds
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(("serving", "http2"), [(admin, False), (services, True), (lane, True)])
async def test_a_session_from_before_lets_nobody_in(
    tmp_path: Path,
    unused_tcp_port: int,
    serving: Callable[[Door], Any],
    version: ssl.TLSVersion,
    *,
    http2: bool,
) -> None:
    door = Door(tmp_path, unused_tcp_port)
    async with serving(door):
        old = door.resuming("old", version, http2=http2)
        assert await old.gets_in(door.address)
        assert await old.gets_in(door.address)
        assert old.resumed, "without resumption there is nothing to see here"
        await door.withdraw()
        for _ in range(3):
            assert not await old.gets_in(door.address)
        assert await door.resuming("new", version, http2=http2).gets_in(door.address)


async def test_admin_connection_ends_after_a_change(tmp_path: Path, unused_tcp_port: int) -> None:
    """The next one is a new handshake. A connection with what is in force is kept."""
    door = Door(tmp_path, unused_tcp_port)
    head = HTTP1.replace(b"connection: close\r\n", b"")
    context = ssl.create_default_context(cafile=str(tmp_path / "test-ca.crt"))
    context.load_cert_chain(tmp_path / "old.crt", tmp_path / "old.key")
    async with admin(door):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", unused_tcp_port, ssl=context, server_hostname="warmroute"
        )

        async def ask() -> bytes:
            writer.write(head)
            response_head = await reader.readuntil(b"\r\n\r\n")
            return response_head + await reader.readexactly(len(b"ok\n"))

        for _ in range(3):
            assert b"connection: close" not in (await ask()).lower()
        await door.withdraw()
        assert b"connection: close" in (await ask()).lower()
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("over_lane", [False, True])
@pytest.mark.parametrize("lasting", [False, True])
async def test_connections_are_renewed_and_streams_that_last_with_them(
    tmp_path: Path,
    unused_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    lasting: bool,
    over_lane: bool,
) -> None:
    """A stream of one request has an end of its own, and goes on to it."""
    door = Door(tmp_path, unused_tcp_port)
    monkeypatch.setattr("fleet.lane.server.CONNECTION_SECONDS", 0.5)
    gate = GrpcGate(
        Gate("xds", None, door.certificates.refusals),
        lasting=lasting,
        connection_seconds=0.5,
        last_seconds=0.5,
    )
    method = "/warmroute.v1.FleetControl/Echo"
    serving = lane(door, 0.5 if lasting else None) if over_lane else services(door, gate)
    async with serving, door.channel("old") as channel:
        call = channel.stream_stream(method)(timeout=60)
        await call.write(b"a")
        assert await call.read() == b"a"
        await door.withdraw()
        # On another connection it is a stranger, so once this one has been renewed nothing is heard any more.
        async with asyncio.timeout(30):
            while await answers(channel, method):
                await asyncio.sleep(0.1)
        if lasting:
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert await call.read() is grpc.aio.EOF
            assert await call.code() is not grpc.StatusCode.OK
        else:
            await call.write(b"b")
            assert await call.read() == b"b"
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK
        async with door.channel("new") as other:
            assert await answers(other, method)


async def answers(channel: grpc.aio.Channel, method: str) -> bool:
    """Whether a new stream is answered; the channel connects again where it has to."""
    call = channel.stream_stream(method)(timeout=5)
    try:
        await call.write(b"x")
        return bool(await call.read() == b"x")
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return False
    finally:
        call.cancel()
