"""Clients of admin pages, Warmroute's and Envoy's, follow no redirects."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from warmroute.cli.view.client import AdminClient, AdminError
from warmroute.cli.view.envoy_admin import ask
from warmroute.cli.worker_admin import WorkerAdmins
from warmroute.doctor.rule import DoctorError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.io


class Pages:
    """One that redirects, and another one, which counts."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.address = ""

    def server(self, name: str, answer: str) -> Callable[..., Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            self.requests.append(name)
            writer.write(f"HTTP/1.1 {answer}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}".encode())
            writer.close()

        return serve


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    made = Pages()
    other = await asyncio.start_server(made.server("other", "200 OK"), "127.0.0.1", 0)
    location = f"302 Found\r\nlocation: http://127.0.0.1:{other.sockets[0].getsockname()[1]}/"
    first = await asyncio.start_server(made.server("first", location), "127.0.0.1", 0)
    made.address = f"127.0.0.1:{first.sockets[0].getsockname()[1]}"
    yield made
    for server in (first, other):
        server.close()


async def test_the_admin_client_follows_none(pages: Pages) -> None:
    async with AdminClient(f"http://{pages.address}", "token") as client:
        with pytest.raises(AdminError, match="status 302"):
            await client.get("/api/v1/status")
        with pytest.raises(AdminError, match="refuses"):
            await client.post("/api/v1/weights", {})
    assert pages.requests == ["first", "first"]


async def test_what_asks_envoys_admin_follows_none(pages: Pages) -> None:
    with pytest.raises(DoctorError, match="status 302"):
        await ask(pages.address, ["/config_dump"])
    assert pages.requests == ["first"]


async def test_a_parent_of_workers_follows_none(pages: Pages) -> None:
    workers = WorkerAdmins([pages.address], None, CollectorRegistry())
    looking = asyncio.create_task(workers.run())
    async with asyncio.timeout(60):
        while len(pages.requests) < 2:
            await asyncio.sleep(0.01)
    looking.cancel()
    await asyncio.wait([looking])
    assert workers.ready == [False]
    assert set(pages.requests) == {"first"}
