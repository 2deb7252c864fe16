"""The HTTP/1.1 fallback on paths of upgrades, and pools that speak HTTP/2, with the real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from fleet.models import tables
from fleet.names import HTTP1_SUFFIX
from fleet.settings.membership import membership
from tests.envoy.sockets import ACCEPT, HANDSHAKE, PATH, SocketEngines, handshake
from tests.envoy.two_tongues import TwoTongues
from xds_server.envoy.build import of_settings
from xds_server.http2.protocol_choice import ProtocolChoice

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envoy.two_tongues import Manner


class Scene:
    """Envoy before engines of every protocol; a listener has the name of its pool."""

    def __init__(self, world: Any, engines: SocketEngines, tongues: dict[str, list[TwoTongues]]) -> None:
        self.world, self.engines, self.tongues = world, engines, tongues

    def address(self, listener: str) -> str:
        return self.world.url(listener, "").removeprefix("http://")

    async def over(self, listener: str, **options: Any) -> tuple[int, str]:
        """Status, and by which protocol the engine was asked."""
        url = self.world.url(listener, "/v1/chat/completions")
        async with self.world.http.post(url, json={}, **options) as response:
            text = await response.text()
            return response.status, json.loads(text)["over"] if response.status == 200 else text

    def move(self, *pools: str, known: tuple[str, ...] = ("two", "broken")) -> None:
        """Speak HTTP/1.1 to these pools and the first protocol to all others; `known` could speak it."""
        protocols = ProtocolChoice(frozenset(pools), frozenset(known), frozenset(known))
        settings = self.world.settings
        members = membership(settings)
        resources = of_settings(settings, protocols, tables(settings, members))
        self.world.publish(members, {}, resources=resources)


async def _echo(request: bytes, context: Any) -> bytes:
    await context.send_initial_metadata((("seen", dict(context.invocation_metadata()).get("x-y", "")),))
    return b"echo " + request


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(worlds: Any) -> AsyncIterator[Scene]:
    """One Envoy for all tests here."""
    manners: dict[str, list[Manner]] = {"two": ["good", "good"], "broken": ["goaway", "goaway"]}
    async with contextlib.AsyncExitStack() as stack:
        engines = await stack.enter_async_context(SocketEngines())
        tongues = {
            name: [await stack.enter_async_context(TwoTongues(manner)) for manner in held]
            for name, held in manners.items()
        }
        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(_echo)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"m": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        stack.push_async_callback(server.stop, None)
        pools: dict[str, tuple[str, list[str]]] = {
            "one": ("http1", [await engines.add() for _ in range(3)]),
            **{name: ("h2", [engine.address for engine in held]) for name, held in tongues.items()},
            "grpc": ("grpc", [f"127.0.0.1:{port}"]),
        }

        def adapt(settings: dict[str, Any]) -> None:
            old = settings["listeners"][: len(pools)]
            settings["pools"] = [
                {"name": name, "protocol": protocol, "endpoints": [{"address": entry} for entry in held]}
                for name, (protocol, held) in pools.items()
            ]
            settings["listeners"] = [
                {**listener, "name": name, "pool": name} for listener, name in zip(old, pools, strict=True)
            ]

            settings["upgrades"] = {
                "fallback": {"headers": ["authorization", "cookie", "x-request-id", "x-" + "long" * 31]}
            }

        async with worlds(adapt=adapt) as world:
            scene = Scene(world, engines, tongues)
            scene.move()

            async def told() -> bool:
                async with world.http.get(world.url("two", PATH)) as response:
                    return bool((await response.json())["over"] == "HTTP/1.1")

            await world.eventually(told, "the fallback goes by HTTP/1.1")
            yield scene
            assert not world.ads.nacks


@pytest.fixture
def scene(shared: Scene) -> Scene:
    """The shared one, with nothing left over from the test before."""
    shared.world.ext_proc.reset()
    shared.engines.asked.clear()
    return shared


async def test_only_the_headers_that_are_needed_pass(scene: Scene) -> None:
    """Every header of the list and of the body, each as it came; nothing else, whatever it is like."""
    passing = {
        "authorization": "Bearer x",
        "cookie": "a=b",
        "x-request-id": "0b2b7ba0-0000-4000-8000-000000000001",
        "x-session-id": "s",
        "content-type": "application/octet-stream",
        "content-encoding": "identity",
        "accept": "*/*",
        "accept-encoding": "gzip",
        "x-" + "long" * 31: "long",
    }
    staying = ["x-api-key", "authorizatio", "authorizations", "cooki", "x-request-i", "x-request-id2", "xx"]
    staying += [
        "traceparent",
        "sec-websocket-key",
        "a",
        "zzz",
        "content-typ",
        "accept-encodin",
        "origin",
        "_",
    ]
    headers = {**passing, **dict.fromkeys(staying, "no")}
    async with scene.world.http.post(
        scene.world.url("one", PATH), data=b"12345", headers=headers
    ) as response:
        assert (response.status, await response.json()) == (200, {"bytes": 5})
        seen = json.loads(response.headers["x-seen"])
    assert seen.pop("http") == ["1.1"]
    del seen["host"]
    assert seen.pop("content-length", seen.pop("transfer-encoding", None)) in (["5"], ["chunked"])
    assert seen == {name: [value] for name, value in passing.items()}


async def test_a_body_without_length_and_a_token_stream_pass(scene: Scene) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"part"
            await asyncio.sleep(0.01)

    url = scene.world.url("one", PATH)
    async with scene.world.http.post(url, data=parts()) as response:
        assert await response.json() == {"bytes": 12}
        assert json.loads(response.headers["x-seen"])["transfer-encoding"] == ["chunked"]
    async with scene.world.http.get(url, headers={"accept": "text/event-stream"}) as response:
        assert await response.read() == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


async def test_one_connection_serves_many_requests(scene: Scene) -> None:
    host, port = scene.address("one").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for _ in range(3):
            writer.write(f"GET {PATH} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            assert head.startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"\r\n0\r\n\r\n")
    finally:
        writer.close()


async def test_a_session_is_kept_with_and_without_a_pick(scene: Scene) -> None:
    """By its header both ways go to one engine: a WebSocket first, plain requests after it."""
    headers, world = {"x-session-id": "kept"}, scene.world
    url = world.url("one", PATH)

    async def served() -> str:
        async with world.http.get(url, headers=headers) as response:
            return str(response.headers["x-address"])

    async with world.http.ws_connect(url, headers=headers) as ws:
        by_weights = ws._response.headers["x-address"]
    assert {await served() for _ in range(8)} == {by_weights}
    picked = world.ext_proc.pick = next(
        endpoint.address for endpoint in world.settings.pools[0].endpoints if endpoint.address != by_weights
    )
    assert {await served() for _ in range(8)} == {picked}
    assert {message.kind for message in world.ext_proc.messages} == {"request_headers"}


async def test_elsewhere_nothing_falls_back(scene: Scene) -> None:
    url = scene.world.url("one", "/v1/models")
    async with scene.world.http.get(url, headers={"x-api-key": "yes"}) as response:
        seen = json.loads(response.headers["x-seen"])
    assert seen["x-api-key"] == ["yes"]
    assert not [name for name in seen if name.startswith("x-warmroute")]


async def test_pools_speak_http2_and_their_upgrades_http1(scene: Scene) -> None:
    """h2c by prior knowledge; WebSockets and what falls back go by the second cluster."""
    assert await scene.over("two") == (200, "HTTP/2")
    status, headers, _ = await handshake(scene.address("two"), HANDSHAKE)
    assert (status, headers["sec-websocket-accept"]) == (101, ACCEPT.lower())
    async with scene.world.http.get(scene.world.url("two", PATH)) as response:
        assert (await response.json())["over"] == "HTTP/1.1"
    hosts = await scene.world.envoy.clusters()
    assert hosts["two"].keys() == hosts[f"two{HTTP1_SUFFIX}"].keys()


async def test_picks_are_obeyed_in_both_clusters(scene: Scene) -> None:
    for engine in scene.tongues["two"] * 2:
        scene.world.ext_proc.pick = engine.address
        for path in ("/v1/chat/completions", PATH):
            async with scene.world.http.post(scene.world.url("two", path), json={}) as response:
                assert (await response.json())["address"] == engine.address
    named = {message.attributes.get("xds.cluster_name") for message in scene.world.ext_proc.messages}
    assert named == {"two", f"two{HTTP1_SUFFIX}"}


async def test_a_pool_that_moves_fails_no_request(scene: Scene) -> None:
    """There and back under load: what has begun ends as it began, what comes next goes the other way."""
    engine = scene.tongues["two"][0]
    results: list[tuple[int, str]] = []
    ended = asyncio.Event()

    async def ask() -> None:
        while not ended.is_set():
            results.append(await scene.over("two"))

    async def reached(protocol: str) -> None:
        async def held() -> bool:
            return await scene.over("two") == (200, protocol)

        await scene.world.eventually(held, protocol)

    asking = [asyncio.create_task(ask()) for _ in range(8)]
    try:
        engine.slow_seconds = 0.05
        for _ in range(3):
            scene.move("two")
            await reached("HTTP/1.1")
            scene.move()
            await reached("HTTP/2")
    finally:
        engine.slow_seconds = 0.0
        ended.set()
        await asyncio.gather(*asking)
    assert {status for status, _ in results} == {200}
    assert {protocol for _, protocol in results} == {"HTTP/1.1", "HTTP/2"}


async def test_goaway_loop_works_once_its_pool_has_moved(scene: Scene) -> None:
    assert (await scene.over("broken"))[0] == 503
    scene.move("broken")

    async def works() -> bool:
        return await scene.over("broken") == (200, "HTTP/1.1")

    try:
        await scene.world.eventually(works, "HTTP/1.1")
    finally:
        scene.move()


async def test_grpc_engines_are_spoken_to_in_http2(scene: Scene) -> None:
    """Upgrades have no place there; everything else is theirs, the path of upgrades included."""
    async with grpc.aio.insecure_channel(scene.address("grpc")) as channel:
        call = channel.unary_unary("/s/m")(b"hello", metadata=(("x-y", "z"),), timeout=60)
        assert await call == b"echo hello"
        assert dict(await call.initial_metadata())["seen"] == "z"
    status, _, _ = await handshake(scene.address("grpc"), HANDSHAKE)
    assert status == 403
    assert f"grpc{HTTP1_SUFFIX}" not in await scene.world.envoy.clusters()
