"""What the real Envoy tells of WebSockets that end, in every way there is: none of it blames an engine."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import WSServerHandshakeError
from prometheus_client import CollectorRegistry

from fleet.settings import SignalSettings
from tests.envoy.sockets import HANDSHAKE, PATH, Http2Client, SocketEngines, masked
from tests.envoy.two_tongues import TwoTongues
from xds_server.access_log.service import AccessLogService
from xds_server.signals.passive.retry_blame import retry_blame_of
from xds_server.signals.passive.served import ServedWindows
from xds_server.signals.rows import rows_before

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from xds_server.access_log.finished import Finished

CLOSE = b"\x03\xe8"


class Heard:
    """Envoy before engines with WebSockets, and what its access log has told."""

    def __init__(self) -> None:
        self.requests: list[Finished] = []
        self.service = AccessLogService(self._take, CollectorRegistry(), lambda: 10.0)
        self.world: Any = None
        self.engines: SocketEngines
        self.only_http2: TwoTongues
        self.pools: dict[str, list[str]] = {}
        self.addresses: list[str] = []

    def begin(self) -> None:
        """Forget what was before."""
        self.requests.clear()
        self.addresses = [address for pool in self.pools.values() for address in pool]
        retry_blame = retry_blame_of(self.world.settings)
        self.windows = ServedWindows(SignalSettings(), retry_blame)
        self.windows.remap_rows(self.addresses, rows_before(self.addresses, {}), 10.0)

    def _take(self, finished: Finished, now: float) -> None:
        self.requests.append(finished)
        self.windows.record(finished, now)

    async def ended(self, count: int) -> list[Finished]:
        """Wait for the ends of so many; each has been told once when it opened and once at its end."""

        def over() -> list[Finished]:
            return [request for request in self.requests if not request.established]

        await self.world.eventually(lambda: len(over()) >= count, "told")
        opened = [request.request_id for request in self.requests if request.established]
        switched = [request.request_id for request in over() if request.status == 101]
        assert sorted(opened) == sorted(switched)
        assert len(over()) == count
        return over()

    def counted(self) -> dict[str, tuple[int, int, int]]:
        """Good answers, faults and signs of life of those of whom something is known."""
        seen = self.windows.take()
        rows = zip(
            self.addresses, seen.ok.tolist(), seen.faults.tolist(), seen.answered.tolist(), strict=True
        )
        return {address: counts for address, *numbers in rows if any(counts := tuple(numbers))}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(worlds: Any) -> AsyncIterator[Heard]:
    heard = Heard()
    async with SocketEngines() as engines, TwoTongues() as only_http2, contextlib.AsyncExitStack() as stack:
        only_http2.speaks_http1 = False
        cutting = await asyncio.start_server(cut, "127.0.0.1", 0)
        stack.callback(cutting.close)
        heard.engines, heard.only_http2 = engines, only_http2
        heard.pools = {
            "open": [await engines.add() for _ in range(2)],
            "http2": [only_http2.address],
            "cutting": [f"127.0.0.1:{cutting.sockets[0].getsockname()[1]}"],
        }

        def adapt(settings: dict[str, Any]) -> None:
            old = settings["listeners"][: len(heard.pools)]
            settings["pools"] = [
                {
                    "name": name,
                    "endpoints": [{"address": address} for address in held],
                    "protocol": "h2" if name == "http2" else "http1",
                }
                for name, held in heard.pools.items()
            ]
            settings["listeners"] = [
                {**listener, "name": name, "pool": name}
                for listener, name in zip(old, heard.pools, strict=True)
            ]
            settings["upgrades"] = {}

        async with worlds(register=heard.service.register, adapt=adapt) as world:
            heard.world = world
            yield heard
            assert not world.ads.nacks


async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An engine that dies at each handshake."""
    await reader.read(1)
    writer.transport.abort()


@pytest.fixture
def heard(shared: Heard) -> Heard:
    shared.world.ext_proc.reset()
    shared.engines.refusing.clear()
    shared.begin()
    return shared


async def over_http1(heard: Heard, way: str) -> None:
    async with heard.world.http.ws_connect(heard.world.url("open", PATH)) as ws:
        await ws.send_str("x")
        assert await ws.receive_str() == "x"
        if way == "the client aborts":
            ws._response.connection.transport.abort()
        elif way == "the server closes":
            await ws.send_str("close")
            await ws.receive()
        elif way == "the engine dies":
            await ws.send_str("abort")
            await ws.receive()
            ws._response.close()  # Else it waits for a word of farewell.


async def over_http2(heard: Heard, way: str) -> None:
    async with Http2Client(heard.world.url("open", "").removeprefix("http://")) as client:
        answer = await client.open(PATH, [("sec-websocket-version", "13")])
        assert answer[":status"] == "200"
        if way == "the server closes":
            await client.send(masked(b"close"))
            await client.until(lambda: client.data[:1] == b"\x88")
        if way in {"the client closes", "the server closes"}:
            await client.send(masked(CLOSE, 8))
        elif way == "the engine dies":
            await client.send(masked(b"abort"))
        if way != "the client aborts":
            await client.until(lambda: client.ended)


@pytest.mark.parametrize("over", [over_http1, over_http2], ids=["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize(
    "way", ["the client closes", "the server closes", "the client aborts", "the engine dies"]
)
async def test_however_a_websocket_ends_its_engine_has_answered_well(
    heard: Heard, over: Any, way: str
) -> None:
    """Envoy flags most ends, the right ones too, as a broken connection to the engine."""
    picked = heard.world.ext_proc.pick = heard.pools["open"][1]
    await asyncio.gather(*(over(heard, way) for _ in range(20)))
    ends = await heard.ended(20)
    assert {(end.status, end.address, end.handshake) for end in ends} == {(101, picked, True)}
    assert not any(end.faulty for end in ends)
    assert heard.windows.columns(10.0).error_ratio[heard.addresses.index(picked)] == 0
    assert heard.counted() == {picked: (20, 0, 20)}


async def test_a_websocket_counts_as_soon_as_it_has_opened(heard: Heard) -> None:
    """It may last for days."""
    picked = heard.world.ext_proc.pick = heard.pools["open"][0]
    async with heard.world.http.ws_connect(heard.world.url("open", PATH)):
        await heard.world.eventually(lambda: len(heard.requests) == 1, "told")
        assert heard.counted() == {picked: (1, 0, 1)}
    await heard.ended(1)
    assert heard.counted() == {}


async def test_engines_of_http2_alone_are_not_blamed_either(heard: Heard) -> None:
    """Envoy asks them by extended CONNECT, and tells of it as of an upgrade."""
    host, port = heard.world.url("http2", "").removeprefix("http://").split(":")
    for turn in range(3):
        reader, writer = await asyncio.open_connection(host, int(port))
        asked = [f"GET {PATH} HTTP/1.1", "host: engine", *HANDSHAKE, "", ""]
        writer.write("\r\n".join(asked).encode())
        async with asyncio.timeout(60):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            writer.write(masked(b"x"))
            await reader.readexactly(7)
        if turn == 2:
            heard.only_http2.die()
            async with asyncio.timeout(60):
                await reader.read()
        writer.close()
    ends = await heard.ended(3)
    assert {(end.status, end.faulty) for end in ends} == {(101, False)}
    assert heard.counted() == {heard.only_http2.address: (3, 0, 3)}


async def test_an_engine_that_dies_at_the_handshake_is_to_blame(heard: Heard) -> None:
    with pytest.raises(WSServerHandshakeError):
        async with heard.world.http.ws_connect(heard.world.url("cutting", PATH)):
            pass
    (end,) = await heard.ended(1)
    assert (end.status, end.faulty, end.handshake) == (503, True, True)
    assert heard.counted() == {heard.pools["cutting"][0]: (0, 1, 0)}


@pytest.mark.parametrize("status", [404, 405, 426])
async def test_engine_without_websockets_is_passed_over_without_blame(heard: Heard, status: int) -> None:
    """4xx is never a fault, also when the next engine is asked for it."""
    first, second = heard.pools["open"]
    heard.engines.refusing[first] = status
    # Both: past the end of a pick Envoy draws, and one time in thirty draws the same one until it gives up.
    heard.world.ext_proc.pick = f"{first},{second}"
    for _ in range(10):
        await over_http1(heard, "the client closes")
    ends = await heard.ended(10)
    assert {(end.picked, end.address) for end in ends} == {(first, second)}
    assert all(end.retried_away for end in ends)
    assert heard.counted() == {second: (10, 0, 10)}


async def test_upgrades_on_other_paths_count_alike(heard: Heard) -> None:
    async with heard.world.http.ws_connect(heard.world.url("open", "/elsewhere")) as ws:
        await ws.send_str("close")
        await ws.receive()
    (end,) = await heard.ended(1)
    assert (end.status, end.faulty, end.handshake) == (101, False, False)
    assert heard.counted() == {end.address: (1, 0, 1)}
