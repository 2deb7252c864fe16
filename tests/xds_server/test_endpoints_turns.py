"""Turns on the event loop: what is there at one moment does not become one pass."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import dns.message
import dns.rdatatype
import dns.rrset
import pytest
from h2.connection import H2Connection
from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.service.turns import Turns
from fleet.settings import (
    DiscoverySettings,
    JoiningSettings,
    LimitSettings,
    PoolSettings,
    SignalSettings,
)
from xds_server.endpoints import name_server
from xds_server.endpoints.dns import MAX_PLACES, DnsSource
from xds_server.endpoints.engine_client import EngineClient
from xds_server.endpoints.factory import SourceFactory
from xds_server.endpoints.gate import ProbeResult
from xds_server.endpoints.lookup import Reply, ReplyStatus
from xds_server.endpoints.probe import Prober
from xds_server.endpoints.source import SourceMetrics, TroubleReport
from xds_server.http1.client import Client, FetchError
from xds_server.http2.probe import speaks_http2
from xds_server.signals.scrape.scraper import Scraper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

ENDPOINTS = tuple(
    Endpoint(f"10.0.{n >> 8}.{n & 255}:80", "p", metrics_url=f"http://e{n}/") for n in range(600)
)


class Passes:
    """Counts the passes of the loop."""

    def __init__(self) -> None:
        self.count = 0


@asynccontextmanager
async def counting() -> AsyncIterator[Passes]:
    passes, loop = Passes(), asyncio.get_running_loop()
    run_once = loop._run_once  # type: ignore[attr-defined]

    def counted() -> None:
        passes.count += 1
        run_once()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_run_once", counted)
        yield passes


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pass in which each request began; all are answered at once, and none well."""
    at: list[int] = []

    async def get(*_: object, **__: object) -> object:
        at.append(PASSES[0].count)
        raise FetchError("refused", "nobody listens")

    monkeypatch.setattr(Client, "get", get)
    return at


PASSES: list[Passes] = [Passes()]


@pytest.mark.parametrize("kind", ["scrapes", "probes"])
async def test_many_endpoints_are_asked_one_after_the_other(kind: str, begun: list[int]) -> None:
    """Late timers all fire in one pass: 5,000 engines that refuse connections held the loop for seconds."""
    results: list[ProbeResult] = []
    async with counting() as PASSES[0]:
        if kind == "scrapes":
            asker: Any = Scraper(SignalSettings(scrape_interval_seconds=3600.0), LimitSettings())
            asker.update(Membership((Pool("p", ENDPOINTS),)))
        else:
            asker = Prober(lambda _, result: bool(results.append(result)), EngineClient())
            asker.update({each.address: (each, JoiningSettings()) for each in ENDPOINTS})
        tasks = len(asyncio.all_tasks())
        await until(lambda: len(begun) >= len(ENDPOINTS))
        await asyncio.sleep(0)
        await asker.close()
    assert tasks < 20
    assert len(set(begun)) == len(begun)
    assert kind == "scrapes" or set(results) == {ProbeResult.NOT_READY}


@pytest.mark.parametrize("kind", ["scrapes", "probes"])
async def test_updates_delay_no_first_request(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of membership put new endpoints behind the requests to the others."""
    busy, new = ENDPOINTS[:50], ENDPOINTS[50:100]
    urls: list[str] = []

    async def get(_: object, url: str, *__: object, **___: object) -> object:
        urls.append(url)
        if len(urls) >= len(busy):
            update([*busy, *new, ENDPOINTS[100 + len(urls) % 2]])
        raise FetchError("refused", "nobody listens")

    monkeypatch.setattr(Client, "get", get)
    if kind == "scrapes":
        settings = SignalSettings.model_construct(scrape_interval_seconds=1e-6)
        poller: Any = Scraper(settings, LimitSettings())
    else:
        poller = Prober(lambda *_: True, EngineClient())

    def update(endpoints: Sequence[Endpoint]) -> None:
        if kind == "scrapes":
            poller.update(Membership((Pool("p", tuple(endpoints)),)))
        else:
            joining = JoiningSettings.model_construct(probe_interval_seconds=1e-6)
            poller.update({each.address: (each, joining) for each in endpoints})

    update(busy)
    await until(lambda: len(urls) >= 1000)
    await poller.close()
    assert len(set(urls)) >= len(busy) + len(new)


async def test_http2_probes_decode_one_block_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of header fields takes up to 33 ms, and sixteen engines may send one at the same time."""
    block = b"\x3e\x3f\xe1\x1f" * 1000 + b"\x88"
    answer = bytes(3) + b"\4\0\0\0\0\0" + len(block).to_bytes(3, "big") + b"\1\5\0\0\0\1" + block
    receive, at = H2Connection.receive_data, list[int]()

    async def connected(*_: object, **__: object) -> tuple[asyncio.StreamReader, Any]:
        reader = asyncio.StreamReader()
        reader.feed_data(answer)
        reader.feed_eof()
        return reader, mock.MagicMock(wait_closed=mock.AsyncMock())

    def counted(connection: H2Connection, data: bytes) -> Any:
        at.append(passes.count)
        return receive(connection, data)

    monkeypatch.setattr(asyncio, "open_connection", connected)
    monkeypatch.setattr(H2Connection, "receive_data", counted)
    turns = Turns(itertools.count(0.0).__next__)
    async with counting() as passes:
        await asyncio.gather(*(speaks_http2("127.0.0.1", 80, 60.0, turns) for _ in range(16)))
    assert len(at) == len(set(at)) == 32


@pytest.mark.io
async def test_sources_read_one_answer_in_a_pass_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One name server may answer all questions of all sources at one moment."""
    read, at = name_server._read, list[int]()
    queries: list[tuple[bytes, Any]] = []

    class Holding(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, peer: Any) -> None:
            queries.append((data, peer))

    def noting(wire: bytes, *, by_udp: bool) -> dns.message.Message:
        at.append(passes.count)
        return read(wire, by_udp=by_udp)

    monkeypatch.setattr(name_server, "_read", noting)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Holding, local_addr=("127.0.0.1", 0))
    maker, metrics = SourceFactory(), SourceMetrics(CollectorRegistry())
    address = "{}:{}".format(*transport.get_extra_info("sockname"))
    tasks = []
    for number in range(20):
        entry = {"dns": {"name": f"e{number}.test", "port": 80, "nameservers": [address]}}
        settings = DiscoverySettings.model_validate_json(json.dumps(entry))
        tasks.append(asyncio.create_task(maker(PoolSettings(name="p"), settings, metrics).source.run(print)))
    async with counting() as passes:
        await until(lambda: len(queries) >= 40)
        for query, peer in queries:
            transport.sendto(dns.message.make_response(dns.message.from_wire(query)).to_wire(), peer)
        await until(lambda: len(at) >= 40)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    transport.close()
    assert len(set(at)) == len(at)


class Services:
    """A lookup: so many services at one name with so many addresses, which does not come along."""

    def __init__(self, services: int, addresses: int) -> None:
        self._services, self._addresses = services, addresses

    async def ask(self, name: str, kind: dns.rdatatype.RdataType) -> Reply:
        if kind == dns.rdatatype.SRV:
            texts = [f"0 0 {n + 1} t.test." for n in range(self._services)]
            return Reply(
                ReplyStatus.RECORDS, tuple(dns.rrset.from_text_list(name, 1, "IN", "SRV", texts)), 1.0
            )
        if kind == dns.rdatatype.AAAA:
            return Reply(ReplyStatus.NO_RECORDS, ttl=1.0)
        return Reply(
            ReplyStatus.RECORDS, tuple(f"10.0.{n >> 8}.{n & 255}" for n in range(self._addresses)), 1.0
        )


@pytest.mark.parametrize(("services", "addresses", "most"), [(40, 2000, MAX_PLACES), (2000, 4, 8000)])
async def test_services_times_addresses_are_bounded(services: int, addresses: int, most: int) -> None:
    registry, results = CollectorRegistry(), list[tuple[Endpoint, ...]]()
    entry = {"name": "s.test", "kind": "srv"}
    settings = DiscoverySettings.model_validate_json(json.dumps({"dns": entry})).dns
    assert settings is not None
    trouble = TroubleReport("dns", "dns", SourceMetrics(registry))
    lookup: Any = Services(services, addresses)
    source = DnsSource(PoolSettings(name="p"), settings, trouble, lookup)
    task = asyncio.create_task(source.run(results.append))
    await until(lambda: bool(results))
    task.cancel()
    await asyncio.wait([task])
    assert len(results[0]) == most
    failing = registry.get_sample_value("warmroute_endpoint_sources_failing")
    assert failing == (most == MAX_PLACES)
