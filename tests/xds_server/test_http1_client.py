"""Pages over real sockets: connections are used again, and no peer chooses whom this process asks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from bench.abuse import pages
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import FaultSettings, JoiningSettings, LimitSettings, SignalSettings
from xds_server.endpoints.engine_client import EngineClient
from xds_server.endpoints.probe import Prober
from xds_server.http1.client import Client, FetchError
from xds_server.http1.place import place_of
from xds_server.signals.gpu.dcgm import DcgmPoller
from xds_server.signals.gpu.reports import GpuBoard
from xds_server.signals.scrape.fetch import PageFetcher
from xds_server.signals.scrape.scraper import Scraper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.io

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers what a test says, and remembers who asked for what."""

    def __init__(self, answer: Callable[[int], bytes]) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(request)
                writer.write(self.answer(len(self.requests)))
                await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(answer: Callable[[int], bytes] = lambda _: OK) -> AsyncIterator[tuple[Server, str]]:
    served = Server(answer)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    try:
        yield served, "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()
        for writer in served.writers:
            writer.close()


@asynccontextmanager
async def asking(*, keeps: bool = True) -> AsyncIterator[Client]:
    client = Client({"User-Agent": "test"}, keeps=keeps)
    try:
        yield client
    finally:
        client.close()


async def test_one_connection_carries_requests_one_after_the_other() -> None:
    async with serving() as (server, address), asking() as client:
        for _ in range(5):
            answer, body = await client.get(f"http://{address}/x?y=1", 60.0, 100)
            assert (answer.status, body) == (200, b"ok")
    assert server.connections == 1
    assert server.requests[0].startswith(b"GET /x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_connection_closed_by_the_server_is_replaced() -> None:
    async with serving() as (server, address), asking() as client:
        await client.get(f"http://{address}/", 60.0, 100)
        server.writers[0].transport.abort()
        await asyncio.sleep(0)  # before the client hears of it
        assert (await client.get(f"http://{address}/", 60.0, 100))[1] == b"ok"
    assert server.connections == 2


async def test_without_keeping_each_request_has_a_connection() -> None:
    async with serving() as (server, address), asking(keeps=False) as client:
        for _ in range(3):
            await client.get(f"http://{address}/", 60.0, 100)
    assert server.connections == 3


async def test_bytes_without_a_request_close_the_connection() -> None:
    async with serving(lambda _: OK + OK) as (server, address), asking() as client:
        for _ in range(3):
            assert (await client.get(f"http://{address}/", 60.0, 100))[1] == b"ok"
    assert server.connections == 3


async def test_user_of_a_url_goes_to_its_server_only() -> None:
    async with serving() as (server, address), asking() as client:
        await client.get(f"http://a:b%20c@{address}/", 60.0, 100)
        assert b"Authorization: Basic YTpiIGM=\r\n" in server.requests[0]
        with pytest.raises(FetchError) as caught:
            await client.get("http://a:secret@127.0.0.1:99999/", 60.0, 100)
    assert "secret" not in str(caught.value)


def test_a_url_cannot_carry_a_second_request() -> None:
    assert "\r\n\r\n" not in place_of("http://x/a b\u00e4?c d%0d%0a").request
    assert place_of("http://x/a b\u00e4?c d%0d%0a").request.startswith(
        "GET /a%20b%C3%A4?c%20d%0d%0a HTTP/1.1"
    )


@pytest.mark.parametrize(
    "location", ["http://{other}/latest/", "//{other}/", "https://{same}/", "file:///x", ""]
)
async def test_a_page_does_not_say_whom_to_ask(location: str) -> None:
    async with serving() as (other, elsewhere):

        def redirect(_: int) -> bytes:
            target = location.format(other=elsewhere, same=address)
            return f"HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n".encode()

        async with serving(redirect) as (server, address), PageFetcher(1000) as fetcher:
            with pytest.raises(FetchError) as caught:
                await fetcher.fetch(f"http://{address}/metrics", 60.0)
    assert caught.value.kind == "protocol"
    assert not other.connections
    assert len(server.requests) == 1


@pytest.mark.parametrize("location", ["/metrics/", "http://u:p@{same}/metrics/"])
async def test_another_path_of_the_same_server_is_followed(location: str) -> None:
    def redirect(number: int) -> bytes:
        target = location.format(same=address).encode()
        return OK if number > 1 else b"HTTP/1.1 307 T\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % target

    async with serving(redirect) as (server, address), PageFetcher(1000) as fetcher:
        assert await fetcher.fetch(f"http://{address}/metrics", 60.0) == b"ok"
    assert server.requests[1].startswith(b"GET /metrics/ HTTP/1.1")
    assert b"Authorization" not in server.requests[1]


async def test_where_redirects_lead_is_not_remembered() -> None:
    """A peer could have thousands of them kept, each as long as a head."""

    def redirect(number: int) -> bytes:
        return b"HTTP/1.1 307 T\r\nlocation: /%d\r\ncontent-length: 0\r\n\r\n" % number

    async with serving(redirect) as (server, address), PageFetcher(1000) as fetcher:
        before = place_of.cache_info().currsize
        for _ in range(20):
            with pytest.raises(FetchError, match="more than 3 redirects"):
                await fetcher.fetch(f"http://{address}/metrics", 60.0)
    assert len(server.requests) == 80
    assert place_of.cache_info().currsize <= before + 1


async def test_a_redirect_is_not_long() -> None:
    def redirect(_: int) -> bytes:
        return b"HTTP/1.1 307 T\r\nlocation: /%b\r\ncontent-length: 0\r\n\r\n" % (b"x" * 2048)

    async with serving(redirect) as (server, address), PageFetcher(1000) as fetcher:
        with pytest.raises(FetchError, match="2049 characters; allowed: 2048"):
            await fetcher.fetch(f"http://{address}/metrics", 60.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["http://elsewhere.test:{port}/", "http://0.0.0.0:{port}/"])
async def test_a_name_leads_a_screened_request_to_no_special_address(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is resolved again for each connection, so an earlier check says nothing."""

    def leads(_host: str, port: int, *_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", port))]

    async with serving() as (server, address), PageFetcher(1000) as fetcher:
        url = url.format(port=address.partition(":")[2])
        monkeypatch.setattr(socket, "getaddrinfo", leads)
        with pytest.raises(FetchError, match=r"unspecified.*special_addresses") as caught:
            await fetcher.fetch(url, 60.0, screened=True)
        assert not server.connections
        assert await fetcher.fetch(url, 60.0) == b"ok"
        with pytest.raises(FetchError):  # nor over the connection that is kept
            await fetcher.fetch(url, 60.0, screened=True)
    assert (caught.value.kind, server.connections) == ("connect", 1)


async def test_probes_and_pages_of_a_sources_endpoints_are_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, bool]] = []

    async def get(_: Client, url: str, *__: object, screened: bool = False, **___: object) -> object:
        requests.append((url, screened))
        raise FetchError("connect", "not now")

    monkeypatch.setattr(Client, "get", get)
    endpoints = tuple(
        Endpoint(
            f"10.0.0.{number}:80", "p", metrics_url=f"http://m{number}/", gpu_metrics_url=f"http://g{which}/"
        )
        for number, which in enumerate((1, 2, 3, 1, 2))
    )
    endpoints = (*(replace(each, screened=True) for each in endpoints[:3]), *endpoints[3:])
    membership = Membership((Pool("p", endpoints),))
    signals, limits, registry = SignalSettings(), LimitSettings(), CollectorRegistry()
    scraper, prober = Scraper(signals, limits), Prober(lambda *_: False, EngineClient())
    board = GpuBoard(signals, FaultSettings(), registry)
    poller = DcgmPoller(board, signals, limits, registry)
    scraper.update(membership)
    poller.update(membership)
    prober.update({each.address: (each, JoiningSettings()) for each in endpoints})
    async with asyncio.timeout(60):
        while len(set(requests)) < 13:
            await asyncio.sleep(0.01)
    for part in (scraper, poller, prober):
        await part.close()
    screened = dict(requests)
    assert [screened[each.metrics_url] for each in endpoints] == [True, True, True, False, False]
    assert [screened[f"http://{each.address}/v1/models"] for each in endpoints] == [True] * 3 + [False] * 2
    # One that the settings name too is asked for as they want.
    assert [screened[f"http://g{which}/"] for which in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize(
    "kind", ["interim", "endless_head", "endless_body", "tiny_chunks", "endless_trailer"]
)
async def test_of_a_flood_few_bytes_are_read(kind: str, unused_tcp_port: int) -> None:
    """What was sent lies in the system's buffers: before, it was read to its end, in one turn of the loop."""
    most = 64 << 20
    address = f"127.0.0.1:{unused_tcp_port}"
    listening = asyncio.Event()
    running = pages.attack(address, kind, most_bytes=most, seconds=60.0, listening=listening)
    attack = asyncio.create_task(running)
    await listening.wait()
    async with PageFetcher(1 << 20) as fetcher:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(f"http://{address}/metrics", 60.0)
    assert caught.value.kind in ("protocol", "too_large")
    assert not attack.done()
    attack.cancel()
    await asyncio.wait([attack])


@pytest.mark.parametrize("kind", ["drip", "drip_interim"])
async def test_bytes_that_keep_coming_buy_no_time(kind: str, unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    listening = asyncio.Event()
    attack = asyncio.create_task(pages.attack(address, kind, seconds=60.0, listening=listening))
    await listening.wait()
    async with PageFetcher(1 << 20) as fetcher:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(f"http://{address}/metrics", 0.2)
    assert caught.value.kind == "timeout"
    assert not attack.done()
    attack.cancel()
    await asyncio.wait([attack])
