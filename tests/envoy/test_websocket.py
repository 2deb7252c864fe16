"""WebSockets through the real Envoy: negotiation, frames, refusals, limits, and who is picked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import WSMsgType, WSServerHandshakeError

from tests.envoy.sockets import ACCEPT, KEY, PATH, Http2Client, SocketEngines, handshake, masked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GOOD = ["connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", f"sec-websocket-key: {KEY}"]


class Sockets:
    """Envoy before engines with WebSockets."""

    def __init__(self, world: Any, engines: SocketEngines, pools: dict[str, list[str]]) -> None:
        self.world, self.engines, self.pools = world, engines, pools
        self.http: aiohttp.ClientSession = world.http

    def address(self, listener: str = "open") -> str:
        return self.world.url(listener, "").removeprefix("http://")

    def connect(self, listener: str = "open", path: str = PATH, **options: Any) -> Any:
        """A WebSocket client of aiohttp's."""
        return self.http.ws_connect(self.world.url(listener, path), **options)


HANDSHAKE_SECONDS = 0.7
IDLE_SECONDS = 2.0
"""Longer than this process stalls between two messages."""


@contextlib.asynccontextmanager
async def started(worlds: Any, **limits: float) -> AsyncIterator[Sockets]:
    async with SocketEngines() as engines:
        pools = {"open": [await engines.add() for _ in range(2)]}

        def adapt(settings: dict[str, Any]) -> None:
            old = settings["listeners"][: len(pools)]
            settings["pools"] = [
                {"name": name, "endpoints": [{"address": address} for address in held]}
                for name, held in pools.items()
            ]
            settings["listeners"] = [
                {**listener, "name": name, "pool": name} for listener, name in zip(old, pools, strict=True)
            ]
            settings["upgrades"] = limits

        async with worlds(adapt=adapt) as world:
            yield Sockets(world, engines, pools)
            assert not world.ads.nacks


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(worlds: Any) -> AsyncIterator[Sockets]:
    """One Envoy for all tests here but those of short limits; a listener has the name of its pool."""
    async with started(worlds) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def brief(worlds: Any) -> AsyncIterator[Sockets]:
    """One with limits that are soon over."""
    async with started(worlds, handshake_seconds=HANDSHAKE_SECONDS, idle_seconds=IDLE_SECONDS) as made:
        yield made


@pytest.fixture
def sockets(shared: Sockets) -> Sockets:
    """The shared one, with nothing left over from the test before."""
    shared.world.ext_proc.reset()
    shared.engines.refusing.clear()
    shared.engines.hanging.clear()
    shared.engines.asked.clear()
    return shared


async def test_negotiation_passes_complete(sockets: Sockets) -> None:
    """Everything that both sides say of the WebSocket arrives, in HTTP/1.1; nothing of ours does."""
    sent = {"origin": "https://app", "authorization": "Bearer x", "openai-beta": "realtime=v1"}
    async with sockets.connect(protocols=("other", "realtime"), headers=sent, compress=15) as ws:
        seen = json.loads(ws._response.headers["x-seen"])
        assert ws.protocol == "realtime"
        assert ws.compress == 15
    assert seen["http"] == ["1.1"]
    assert seen["connection"][0].lower() == "upgrade"
    assert seen["upgrade"] == ["websocket"]
    assert seen["sec-websocket-version"] == ["13"]
    assert seen["sec-websocket-protocol"] == ["other,realtime"]
    assert "permessage-deflate" in seen["sec-websocket-extensions"][0]
    assert len(seen["sec-websocket-key"]) == 1
    assert {name: seen[name] for name in sent} == {name: [value] for name, value in sent.items()}
    assert not [name for name in seen if name.startswith(("x-warmroute", "x-gateway"))]


async def test_the_answer_to_the_key_is_the_engines(sockets: Sockets) -> None:
    status, headers, _ = await handshake(sockets.address(), GOOD)
    assert (status, headers["sec-websocket-accept"]) == (101, ACCEPT.lower())
    assert headers["upgrade"] == "websocket"


async def test_frames_of_every_kind_pass(sockets: Sockets) -> None:
    async with sockets.connect(autoping=False, max_msg_size=1 << 26) as ws:
        await ws.send_str("text \N{SNOWMAN}")
        assert await ws.receive_str() == "text \N{SNOWMAN}"
        large = bytes(range(256)) * 8192
        await ws.send_bytes(large)
        assert await ws.receive_bytes() == large
        await ws.ping(b"from the client")
        pong = await ws.receive()
        assert (pong.type, pong.data) == (WSMsgType.PONG, b"from the client")
        await ws.send_str("ping")
        ping = await ws.receive()
        assert (ping.type, ping.data) == (WSMsgType.PING, b"from the engine")


async def test_close_codes_pass_in_both_directions(sockets: Sockets) -> None:
    async with sockets.connect() as ws:
        await ws.send_str("close")
        closed = await ws.receive()
        assert (closed.type, closed.data, closed.extra) == (WSMsgType.CLOSE, 4001, "as asked")
    sockets.engines.closed_with.clear()
    async with sockets.connect() as ws:
        await ws.close(code=4002)
    await sockets.world.eventually(lambda: 4002 in sockets.engines.closed_with, "the client's code")


async def test_ten_thousand_messages_come_in_order(sockets: Sockets) -> None:
    count = 10_000
    async with sockets.connect() as ws:

        async def send() -> None:
            for number in range(count):
                await ws.send_str(str(number))

        sending = asyncio.create_task(send())
        async with asyncio.timeout(60):
            received = [await ws.receive_str() for _ in range(count)]
            await sending
    assert received == [str(number) for number in range(count)]
    assert [message.kind for message in sockets.world.ext_proc.messages] == ["request_headers"]


async def test_abrupt_ends_are_told_to_the_other_side(sockets: Sockets) -> None:
    async with sockets.connect() as ws:
        await ws.send_str("abort")
        ended = await asyncio.wait_for(ws.receive(), 60)
        assert ended.type in (WSMsgType.CLOSED, WSMsgType.CLOSE, WSMsgType.ERROR)
    host, port = sockets.address().split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join([f"GET {PATH} HTTP/1.1", "host: engine", *GOOD, "", ""]).encode())
    await reader.readuntil(b"\r\n\r\n")
    await sockets.world.eventually(lambda: sockets.engines.open == 1, "open")
    writer.transport.abort()
    await sockets.world.eventually(lambda: sockets.engines.open == 0, "the engine hears of it")


def _without(name: str, instead: str = "") -> list[str]:
    kept = [line for line in GOOD if not line.startswith(name)]
    return [*kept, instead] if instead else kept


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (_without("sec-websocket-key"), "Key"),
        (_without("sec-websocket-key", "sec-websocket-key: c2hvcnQ="), "Key"),
        (_without("sec-websocket-key", f"sec-websocket-key: {KEY[:-2]}AA=="), "Key"),
        (_without("sec-websocket-key", "sec-websocket-key: ???????????????????????="), "Key"),
        (_without("sec-websocket-key", "x-warmroute-protocol: HTTP/2"), "Key"),
        (_without("sec-websocket-version"), "Version"),
        (_without("sec-websocket-version", "sec-websocket-version: 8"), "Version"),
        (_without("sec-websocket-version", "sec-websocket-version: 113"), "Version"),
        (_without("sec-websocket-version", "sec-websocket-version: 13, 8"), "Version"),
        ([*GOOD, "sec-websocket-version: 8"], "Version"),
        (["sec-websocket-version: 8", *GOOD], "Version"),
        ([*GOOD, "sec-websocket-version: 1"], "Version"),
        ([*GOOD, "sec-websocket-version: 133"], "Version"),
        ([*GOOD, "sec-websocket-key: bad"], "Key"),
        (["sec-websocket-key: bad", *GOOD], "Key"),
        ([*GOOD, f"sec-websocket-key: {KEY}A"], "Key"),
        ([*GOOD, f"sec-websocket-key: {KEY[1:]}"], "Key"),
        ([*GOOD, f"sec-websocket-key: ?{KEY[1:]}"], "Key"),
        ([*GOOD, f"sec-websocket-key: {KEY[:-3]}==="], "Key"),
        ([*GOOD, f"sec-websocket-key: {KEY[:-2]}A="], "Key"),
        ([*GOOD, f"sec-websocket-key: {KEY[:5]}={KEY[6:]}"], "Key"),
    ],
)
async def test_malformed_handshakes_get_400_before_any_engine(
    sockets: Sockets, lines: list[str], says: str
) -> None:
    """Whether ext_proc is there or not: routes decide it."""
    status, headers, body = await handshake(sockets.address(), lines, f"{PATH}?model=m")
    assert status == 400
    assert says.encode() in body
    assert headers.get("sec-websocket-version") == ("13" if says == "Version" else None)
    assert not sockets.engines.asked
    assert not sockets.world.ext_proc.messages


async def test_spellings_that_are_allowed_pass(sockets: Sockets) -> None:
    """Letters' case, a list in `connection`, and bits of a key that no byte uses."""
    lines = [
        "Connection: keep-alive, Upgrade",
        "Upgrade: WebSocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {KEY.replace('Q==', 'R==')}",
    ]
    status, _, _ = await handshake(sockets.address(), lines)
    assert status == 101


async def test_a_pick_at_the_headers_is_obeyed(sockets: Sockets) -> None:
    """ext_proc gets the headers and names an endpoint; frames are none of its business."""
    world = sockets.world
    for picked in sockets.pools["open"] * 2:
        world.ext_proc.pick = picked
        async with sockets.connect(path=f"{PATH}?model=m", headers={"x-session-id": "s"}) as ws:
            assert ws._response.headers["x-address"] == picked
            await ws.send_str("x")
            assert await ws.receive_str() == "x"
    assert {message.kind for message in world.ext_proc.messages} == {"request_headers"}
    assert all(message.path == f"{PATH}?model=m" for message in world.ext_proc.messages)


async def test_without_a_pick_sessions_stay_and_others_spread(sockets: Sockets) -> None:
    async def served(**headers: str) -> str:
        async with sockets.connect(headers=headers) as ws:
            return str(ws._response.headers["x-address"])

    assert len({await served(**{"x-session-id": "s"}) for _ in range(8)}) == 1
    assert len({await served() for _ in range(24)}) == 2


async def test_an_engine_that_refuses_is_not_the_last_word(sockets: Sockets) -> None:
    """Another one of the pool may have WebSockets; where none has, the refusal passes whole."""
    first, second = sockets.pools["open"]
    sockets.engines.refusing[first] = 404
    sockets.world.ext_proc.pick = f"{first},{second}"
    async with sockets.connect() as ws:
        assert ws._response.headers["x-address"] == second
    sockets.engines.refusing[second] = 426
    status, headers, body = await handshake(sockets.address(), GOOD)
    assert status in (404, 426)
    assert json.loads(body)["refused_by"] in (first, second)
    assert headers["content-type"].startswith("application/json")


async def test_a_refusal_by_right_is_told_at_once(sockets: Sockets) -> None:
    """401 and 403 are about the client: nobody else is asked."""
    for address in sockets.pools["open"]:
        sockets.engines.refusing[address] = 403
    with pytest.raises(WSServerHandshakeError) as refused:
        async with sockets.connect():
            pass
    assert refused.value.status == 403
    assert sockets.engines.asked.total() == 1


async def test_an_engine_that_never_answers_ends_the_handshake(brief: Sockets) -> None:
    brief.engines.hanging.update(brief.pools["open"])
    try:
        status, _, _ = await handshake(brief.address(), GOOD)
    finally:
        brief.engines.hanging.clear()
    assert status == 504


async def test_limits_of_handshakes_and_of_silence_differ(brief: Sockets) -> None:
    """A WebSocket outlives the handshake's limit, and ends after the silence that is allowed."""
    loop = asyncio.get_running_loop()

    async def connected() -> Any:
        with contextlib.suppress(WSServerHandshakeError):  # This process was stalled for so long.
            return await brief.connect()
        return None

    async with await brief.world.eventually(connected, "connected") as ws:
        begun = loop.time()
        while loop.time() < begun + HANDSHAKE_SECONDS:
            await asyncio.sleep(0.2)
            silent_from = loop.time()
            await ws.send_str("still there")
            assert await ws.receive_str() == "still there"
        ended = await asyncio.wait_for(ws.receive(), 60)
        assert ended.type in (WSMsgType.CLOSED, WSMsgType.CLOSE, WSMsgType.ERROR)
        assert loop.time() - silent_from >= 0.9 * IDLE_SECONDS


async def test_extended_connect_is_a_handshake_like_any_other(sockets: Sockets) -> None:
    """It has no key, so the engine is shown one; the check of version holds there too."""
    picked = sockets.world.ext_proc.pick = sockets.pools["open"][1]
    asks = [("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat"), ("origin", "https://app")]
    async with Http2Client(sockets.address()) as client:
        headers = await client.open(PATH, asks)
        assert headers[":status"] == "200"
        assert headers["x-address"] == picked
        assert headers["sec-websocket-protocol"] == "chat"
        seen = json.loads(headers["x-seen"])
        assert (seen["http"], seen["origin"]) == (["1.1"], ["https://app"])
        assert len(seen["sec-websocket-key"]) == 1
        await client.send(masked(b"over two"))
        await client.until(lambda: len(client.data) >= 10)
        assert client.data == b"\x81\x08over two"
    async with Http2Client(sockets.address()) as client:
        assert (await client.open(PATH, [("sec-websocket-version", "8")]))[":status"] == "400"


async def test_preflight_of_another_origin_does_not_fall_back(sockets: Sockets) -> None:
    """OPTIONS asks for headers by name (CORS): the fallback would keep them from the engine."""
    asks = {"origin": "https://app", "access-control-request-method": "POST"}
    async with sockets.http.options(sockets.world.url("open", PATH), headers=asks) as response:
        assert response.status == 405, "as the engine says"
        seen = json.loads(response.headers["x-seen"])
    assert {name: seen[name] for name in asks} == {name: [value] for name, value in asks.items()}


async def test_upgrades_unknown_to_envoy_are_refused_everywhere(sockets: Sockets) -> None:
    for path in (PATH, "/elsewhere"):
        status, _, _ = await handshake(sockets.address(), ["connection: Upgrade", "upgrade: foo"], path)
        assert status == 403


@pytest.mark.parametrize(
    "lines",
    [
        ["connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__"],
        ["connection: keep-alive"],
    ],
)
async def test_other_upgrades_are_plain_requests(sockets: Sockets, lines: list[str]) -> None:
    """Envoy takes none of them up; the fallback serves what is left."""
    status, headers, _ = await handshake(sockets.address(), lines)
    assert status == 200
    assert headers["content-type"] == "text/event-stream"


async def test_a_handshake_that_announces_a_body_does_not_hang(brief: Sockets) -> None:
    """Here the engine waits for it in vain: the limit of handshakes ends that."""
    status, _, _ = await handshake(
        brief.address(), [*GOOD, "content-length: 9", "content-type: application/json"], method="POST"
    )
    assert status == 504


async def test_elsewhere_upgrades_pass_unseen(sockets: Sockets) -> None:
    """As ever: by weights, and nobody checks them."""
    async with sockets.connect(path="/elsewhere") as ws:
        await ws.send_str("x")
        assert await ws.receive_str() == "x"
    status, _, _ = await handshake(sockets.address(), _without("sec-websocket-version"), "/elsewhere")
    assert status == 400
    assert sockets.engines.asked.total() == 2
    assert not sockets.world.ext_proc.messages


async def test_open_sockets_survive_what_changes_around_them(sockets: Sockets) -> None:
    """Weights, an endpoint that leaves, a dead ext_proc: none of them touches a WebSocket."""
    world, pool = sockets.world, sockets.pools["open"]
    world.ext_proc.pick = pool[0]
    async with sockets.connect() as ws, contextlib.AsyncExitStack() as stack:
        await ws.send_str("before")
        assert await ws.receive_str() == "before"
        stack.push_async_callback(world.ext_proc_health, healthy=True)
        stack.push_async_callback(world.ext_proc.start)
        await world.ext_proc.kill()
        await world.weights_taken("open", dict(zip(pool, (10, 9000), strict=True)))
        world.set_membership({"open": pool[1:]})
        await world.eds_absent("open", pool[0])
        stack.callback(world.set_weights, {})
        await ws.send_str("after")
        assert await ws.receive_str() == "after"
        async with sockets.connect() as other:
            assert other._response.headers["x-address"] == pool[1]
