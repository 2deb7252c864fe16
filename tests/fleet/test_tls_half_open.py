"""Handshakes that never come to an end keep nobody else out, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from bench.abuse.tls import KINDS, Resuming, attack
from fleet.lane.server import LaneServer
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.credentials import server_credentials
from fleet.service.serving import GrpcServer
from fleet.service.tls import Certificates, Files
from fleet.settings.connections import ConnectionSettings
from testing.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleet.service.tls import CertificateProvider

CONNECTIONS = 100


@contextlib.asynccontextmanager
async def door(address: str, provider: CertificateProvider, kind: str) -> AsyncIterator[None]:
    server: Any
    if kind == "grpcio":
        server = GrpcServer("xds", address, credentials=server_credentials(provider))
    elif kind == "lane":
        server = LaneServer("xds", address, ConnectionSettings(), {}, tls=provider)
    else:
        server = AdminServer(Access(address, tls=provider), CollectorRegistry(), lambda: True, {})
    await server.start()
    try:
        yield
    finally:
        await (server.stop() if kind == "admin" else server.stop(0))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("server", ["grpcio", "lane", "admin"])
@pytest.mark.parametrize("kind", KINDS)
async def test_half_open_handshakes_do_not_block_others(
    tmp_path: Path, unused_tcp_port: int, kind: str, server: str
) -> None:
    authority = Authority(tmp_path)
    authority.issue("own", "warmroute")
    issued = authority.issue("client")
    at = tmp_path
    files = Files(f"{at}/own.crt", f"{at}/own.key", f"{at}/test-ca.crt", ca_field="client_ca_file")
    provider = Certificates().watch("admin", "tls.admin", files)
    address = f"127.0.0.1:{unused_tcp_port}"

    async def honest() -> bool:
        client = Resuming(
            issued.certificate_file,
            issued.key_file,
            version=ssl.TLSVersion.TLSv1_3,
            http2=server != "admin",
        )
        return await client.gets_in(address, seconds=30)

    async with door(address, provider, server):
        assert await honest()
        before = descriptors()
        attacking = asyncio.create_task(attack(address, kind, connections=CONNECTIONS, seconds=0.3))
        served = 0
        while not attacking.done():
            assert await honest()
            served += 1
            await asyncio.sleep(0.02)
        await attacking
        assert served
        async with asyncio.timeout(30):
            while descriptors() > before + 2:
                await asyncio.sleep(0.02)
