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
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.credentials import server_credentials
from fleet.service.serving import GrpcServer
from fleet.service.tls import Certificates, Files
from testing.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleet.service.tls import CertificateProvider

CONNECTIONS = 100


@contextlib.asynccontextmanager
async def door(address: str, provider: CertificateProvider, *, http2: bool) -> AsyncIterator[None]:
    server: Any
    if http2:
        server = GrpcServer("xds", address, credentials=server_credentials(provider))
    else:
        server = AdminServer(Access(address, tls=provider), CollectorRegistry(), lambda: True, {})
    await server.start()
    try:
        yield
    finally:
        await (server.stop(0) if http2 else server.stop())


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("http2", [True, False], ids=["grpc", "admin"])
@pytest.mark.parametrize("kind", KINDS)
async def test_half_open_handshakes_do_not_block_others(
    tmp_path: Path, unused_tcp_port: int, kind: str, *, http2: bool
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
            issued.certificate_file, issued.key_file, version=ssl.TLSVersion.TLSv1_3, http2=http2
        )
        return await client.gets_in(address, seconds=30)

    async with door(address, provider, http2=http2):
        assert await honest()
        before = descriptors()
        attacking = asyncio.create_task(attack(address, kind, connections=CONNECTIONS, seconds=1.0))
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
