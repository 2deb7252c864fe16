"""Several pools behind one listener, on the real Envoy with the real services: the model chooses the pool."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from yarl import URL

from ext_proc.app import ExtProcServer
from fleet.settings import parse_settings
from fleet.store import FleetStore
from testing.raw_http import Reply, Upload, over_http1, over_http2
from tests.envoy.conftest import PATIENCE_SECONDS, eventually, free_address, patience
from warmroute.demo.envoy import EnvoyProcess
from xds_server.app import XdsServer
from xds_server.envoy.bootstrap import bootstrap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.asyncio, pytest.mark.io]
LARGE_BODY_BYTES = 600_000
B = ["b1", "b2"]
WAYS: dict[str, tuple[Any, bool]] = {
    "length": (over_http1, True),
    "chunked": (over_http1, False),
    "http2": (over_http2, False),
}
"""Of a long body: how it is sent, and whether with a content-length."""


class Engine:
    """An engine that echoes what it got, and lists its models."""

    def __init__(self, name: str, *models: str) -> None:
        self.name, self.models, self.status = name, list(models), 200
        self.body, self.headers = b"", {}

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/metrics", self._page)
        app.router.add_get("/v1/realtime", self._socket)
        app.router.add_route("*", "/{tail:.*}", self._echo)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        self.address = free_address()
        host, port = self.address.split(":")
        await web.TCPSite(self._runner, host, int(port)).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": model} for model in self.models]})

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(self.name[0])
        await socket.close()
        return socket

    async def _page(self, _: web.Request) -> web.Response:
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return web.Response(text="".join(f"vllm:{name} 0\n" for name in names))

    async def _echo(self, request: web.Request) -> web.Response:
        self.body, self.headers = await request.read(), dict(request.headers)
        return web.json_response({"engine": self.name, "id": f"resp_1{self.name}"}, status=self.status)


class Door:
    """Envoy, the services and the engines `a1`, `b1`, `b2`."""

    def __init__(self, address: str, client: aiohttp.ClientSession, engines: dict[str, Engine]) -> None:
        self.address, self.client, self.engines = address, client, engines
        self.ext_proc: Any = None
        self.strict = ""

    async def ask(
        self, model: str | None = None, path: str = "/v1/chat/completions", listener: str = "", **options: Any
    ) -> tuple[int, str, aiohttp.ClientResponse]:
        """Post a chat; return the status, the engine and the response."""
        if model is not None:
            options["json"] = {"messages": [{"role": "user", "content": "Hi"}], "model": model}
        method = options.pop("method", "POST")
        url = f"http://{listener or self.address}{path}"
        async with self.client.request(method, url, **options) as response:
            document = json.loads(await response.read())
            return response.status, document.get("engine", ""), response


@contextlib.asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Door]:
    async with contextlib.AsyncExitStack() as stack:
        made = [Engine("a1", "alpha"), Engine("b1", "beta/7b", "tuned"), Engine("b2", "beta/7b")]
        engines = {engine.name: await stack.enter_async_context(engine) for engine in made}
        address, strict = free_address(), free_address()
        pools: list[dict[str, Any]] = [
            {
                "name": "a",
                "models": ["alpha"],
                "retries": 0,
                "endpoints": [{"address": engines["a1"].address}],
            },
            {
                "name": "b",
                "models": ["beta/7b"],
                "aliases": {"gpt-4": "beta/7b"},
                "endpoints": [{"address": engines[name].address} for name in ("b1", "b2")],
            },
        ]
        common = {"pools": ["a", "b"], "large_body_bytes": LARGE_BODY_BYTES}
        written = {
            "pools": [{**pool, "joining": {"probe": "none"}} for pool in pools],
            "listeners": [
                {"name": "all", "address": address, **common},
                {"name": "strict", "address": strict, "unknown_models": "refuse", **common},
            ],
            "xds": {"address": f"unix:{directory}/xds.sock", "state_path": "", "tick_seconds": 0.05},
            "ext_proc": {
                "address": f"unix:{directory}/ext_proc.sock",
                "message_timeout_seconds": PATIENCE_SECONDS,
            },
            "control": {"address": f"unix:{directory}/control.sock"},
            "admin": {"address": "", "ext_proc_address": ""},
            "limits": {"drain_seconds": 0.1},
        }
        settings = parse_settings(json.dumps(written))
        store = FleetStore()
        server = XdsServer(settings, store, CollectorRegistry(), TracerProvider(), control=False)
        ext_proc = ExtProcServer(settings, store, CollectorRegistry(), TracerProvider(), follow=False)
        boot = bootstrap(ads_address=settings.xds.address, node_id="test", node_cluster="tests")
        stack.enter_context(patience())
        await ext_proc.start()
        stack.push_async_callback(ext_proc.stop)
        await server.start()
        stack.push_async_callback(server.stop)
        envoy = await stack.enter_async_context(EnvoyProcess(boot))
        client = await stack.enter_async_context(aiohttp.ClientSession())
        await envoy.wait_ready(listeners=2)
        door = Door(address, client, engines)
        door.ext_proc, door.strict = ext_proc, strict
        await eventually(lambda: _lists(door, "tuned"), "the adapter is listed")
        yield door


async def _lists(door: Door, name: str) -> bool:
    async with door.client.get(f"http://{door.address}/v1/models") as response:
        return name in {entry["id"] for entry in json.loads(await response.read()).get("data", [])}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    async with opened(tmp_path_factory.mktemp("models")) as made:
        yield made


async def test_body_chooses_the_pool(door: Door) -> None:
    assert (await door.ask("alpha"))[:2] == (200, "a1")
    status, engine, response = await door.ask("beta/7b")
    assert (status, engine[0]) == (200, "b")
    assert response.headers["x-warmroute-endpoint"] == response.headers["x-warmroute-served"]
    assert (await door.ask("beta/7b"))[2].headers["x-warmroute-reason"] in ("warm", "cold")


async def test_unknown_models_go_to_the_default_pool(door: Door) -> None:
    for body in ({"model": "nobody", "prompt": "x"}, {"prompt": "x"}, {"model": 3, "prompt": "x"}, []):
        assert (await door.ask(json=body))[:2] == (200, "a1")


async def test_settings_refuse_unknown_models(door: Door) -> None:
    url = f"http://{door.strict}/v1/chat/completions"
    async with door.client.post(url, json={"model": "nobody", "prompt": "x"}) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "model_not_found"
    assert (await door.ask("tuned", listener=door.strict))[:2] == (200, "b1")
    assert (await door.ask(listener=door.strict, json={"prompt": "x"}))[:2] == (200, "a1")


async def test_adapters_go_to_the_engines_that_list_them(door: Door) -> None:
    for _ in range(6):
        assert (await door.ask("tuned"))[1] == "b1"


@pytest.mark.parametrize("size", [10, 100_000, LARGE_BODY_BYTES - 300])
async def test_alias_is_replaced_and_nothing_else(door: Door, size: int) -> None:
    """Numbers, order and spaces stay, the length is right, and a model behind a long prompt is read."""
    text = "x" * size
    body = '{"n": 1.00, "messages": [{"role":"user","content":"%s gpt-4"}],  "model" : "%s","t":1e2 }\n'
    sent = (body % (text, "gpt-4")).encode()
    status, engine, _ = await door.ask(data=sent, headers={"content-type": "application/json"})
    assert (status, engine[0]) == (200, "b")
    served = door.engines[engine]
    assert served.body == (body % (text, "beta/7b")).encode()
    assert served.headers["Content-Length"] == str(len(served.body))


async def test_retries_send_the_replaced_body_within_the_pool(door: Door) -> None:
    for refusing in ("b1", "b2"):
        door.engines[refusing].status = 503
        status, engine, _ = await door.ask("gpt-4")
        door.engines[refusing].status = 200
        assert (status, engine) == (200, {"b1": "b2", "b2": "b1"}[refusing])
        assert json.loads(door.engines[engine].body)["model"] == "beta/7b"
    for refusing in ("b1", "b2"):
        door.engines[refusing].status = 503
    status, engine, _ = await door.ask("beta/7b")
    for refusing in ("b1", "b2"):
        door.engines[refusing].status = 200
    assert (status, engine[0]) == (503, "b"), "no failure leads to another model"


FORGED = {"x-warmroute-pool": "b", "x-gateway-destination-endpoint": "b", "x-warmroute-endpoint": "b"}
BY_HEADERS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("/v1/models/alpha", {}, "a"),
    ("/v1/models/beta%2F7b", {}, "b"),
    ("/v1/models/beta/7b", {}, "b"),
    ("/v2/models/tuned/infer", {}, "b"),
    ("/v1/models/tuned2", {}, "a"),
    ("/v1/x?model=beta%2F7b&y=1", {}, "b"),
    ("/v1/x?y=1&model=gpt-4", {}, "b"),
    ("/v1/x?xmodel=gpt-4", {}, "a"),
    ("/v1/x", {"x-model": "beta/7b"}, "b"),
    ("/v1/models/alpha", {"x-model": "beta/7b"}, "a"),
    ("/v1/x", {"x-model": "b"}, "a"),
    ("/v1/x?model=beta%2F7b%0A", {}, "a"),
    ("/openai/deployments/gpt-4/chat/completions", {}, "b"),
    ("/v1/models/gpt-4:generateContent", {}, "b"),
    ("/v1/models/gpt-4o", {}, "a"),
    ("/v1/x", FORGED, "a"),
)


@pytest.mark.parametrize(("path", "headers", "pool"), BY_HEADERS)
async def test_path_query_and_header_choose(door: Door, path: str, headers: Any, pool: str) -> None:
    """Of requests that ext_proc does not see, and of bodies without a model."""
    url = f"http://{door.address}{path}"
    ways: tuple[dict[str, Any], ...] = (
        {"method": "GET"},
        {"method": "POST", "data": b"audio"},
        {"method": "POST", "json": {}},
    )
    for way in ways:
        async with door.client.request(url=URL(url, encoded=True), headers=headers, **way) as response:
            assert (await response.json())["engine"][0] == pool


async def test_body_goes_before_the_header(door: Door) -> None:
    assert (await door.ask("alpha", headers={"x-model": "beta/7b"}))[1] == "a1"
    assert (await door.ask("beta/7b", headers={"x-model": "alpha"}))[1][0] == "b"


async def test_model_list_has_all_names(door: Door) -> None:
    async with door.client.get(f"http://{door.address}/v1/models?x=1") as response:
        assert response.content_type == "application/json"
        document = await response.json()
    assert [entry["id"] for entry in document["data"]] == ["alpha", "beta/7b", "gpt-4", "tuned"]
    assert {entry["object"] for entry in document["data"]} == {"model"}


async def test_handshakes_choose_by_their_query(door: Door) -> None:
    """An upgrade's route is chosen by headers alone, and its pick is in that route's pool."""
    for model, pool in (("alpha", "a"), ("beta%2F7b", "b"), ("nobody", "a")):
        url = URL(f"http://{door.address}/v1/realtime?model={model}", encoded=True)
        async with door.client.ws_connect(url) as socket:
            assert await socket.receive_str() == pool
            assert socket._response.headers["x-warmroute-served"] in {
                engine.address for engine in door.engines.values() if engine.name[0] == pool
            }


def long_chat(model: str, *, behind: bool = False) -> bytes:
    """Return 2 MB; the model stands in front of the messages, or `behind` them."""
    members = [f'"model":"{model}"', '"messages":[{"role":"user","content":"%s"}]' % ("word " * 400_000)]
    return f"{{{','.join(members[::-1] if behind else members)}}}".encode()


async def upload(
    door: Door, way: str, body: bytes, headers: Any = None, listener: str = "", **more: Any
) -> tuple[int, str, Reply]:
    """Post JSON; return the status, the engine, which has read exactly the body, and the reply."""
    send, length = WAYS[way]
    pieces = [body[start : start + 100_000] for start in range(0, len(body), 100_000)]
    sent = Upload(
        pieces, headers={"content-type": "application/json", **(headers or {})}, length=length, **more
    )
    reply = await send(listener or door.address, sent)
    document = json.loads(reply.body)
    if engine := document.get("engine", ""):
        assert door.engines[engine].body == body
    return reply.status, engine, reply


@pytest.mark.parametrize("way", WAYS)
async def test_leading_part_chooses_the_pool(door: Door, way: str) -> None:
    """And with it the pick, also against the header; an alias chooses, and stays as it is."""
    for model, engines in (("alpha", ["a1"]), ("beta/7b", B), ("gpt-4", B), ("tuned", ["b1"])):
        for header in ({}, {"x-model": "beta/7b"}, {"x-model": "alpha"}):
            status, engine, reply = await upload(door, way, long_chat(model), header)
            assert (status, engine in engines) == (200, True)
            served = door.engines[engine].address
            assert reply.headers["x-warmroute-endpoint"] == reply.headers["x-warmroute-served"] == served
            assert reply.headers["x-warmroute-reason"] in ("warm", "cold")


@pytest.mark.parametrize("way", WAYS)
async def test_leading_part_without_the_model(door: Door, way: str) -> None:
    """Header or default pool decide, as they do for models of no pool."""
    for body in (long_chat("beta/7b", behind=True), long_chat("nobody"), b"[" + b"1," * 500_000 + b"1]"):
        assert (await upload(door, way, body))[:2] == (200, "a1")
        status, engine, _ = await upload(door, way, body, {"x-model": "beta/7b"})
        assert (status, engine in B) == (200, True)
    for _ in range(4):
        status, engine, reply = await upload(door, way, long_chat("tuned", behind=True), {"x-model": "tuned"})
        assert (status, engine) == (200, "b1"), "the header's adapter"
        assert reply.headers["x-warmroute-reason"] in ("warm", "cold")


async def test_refusal_of_a_leading_part(door: Door) -> None:
    for way in WAYS:
        status, _, reply = await upload(door, way, long_chat("nobody"), listener=door.strict)
        assert (status, json.loads(reply.body)["error"]["code"]) == (404, "model_not_found")
        assert (await upload(door, way, long_chat("tuned"), listener=door.strict))[:2] == (200, "b1")


@pytest.mark.parametrize("way", WAYS)
async def test_retries_of_long_bodies_stay_in_the_pool(door: Door, way: str) -> None:
    """With the retries of that pool, because the default pool has none."""
    body = long_chat("beta/7b")[:900_000]
    for refusing in B:
        door.engines[refusing].status = 503
        status, engine, _ = await upload(door, way, body)
        door.engines[refusing].status = 200
        assert (status, engine) == (200, {"b1": "b2", "b2": "b1"}[refusing])


async def test_no_header_chooses_the_pool_of_a_long_body(door: Door) -> None:
    forged = {**FORGED, "x-envoy-auth-partial-body": "true", "envoy.filters.http.ext_authz": "warmroute.pool"}
    assert (await upload(door, "length", long_chat("nobody"), forged))[:2] == (200, "a1")


async def test_stored_names_choose_the_pool(door: Door) -> None:
    """Of requests whose headers alone decide: they name no model."""
    ordinary: dict[str, Any] = {"json": {"model": "alpha", "input": "Hi"}}
    for way, engines in (("", ["a1"]), ("length", B), ("chunked", ["b1"])):
        if way:
            model = "tuned" if way == "chunked" else "beta/7b"
            _, made, _ = await upload(door, way, long_chat(model), path="/v1/responses")
        else:
            _, made, _ = await door.ask(path="/v1/responses", **ordinary)
        assert made in engines

        async def reached(engine: str = made) -> bool:
            _, served, response = await door.ask(method="GET", path=f"/v1/responses/resp_1{engine}")
            return served == engine and response.headers["x-warmroute-reason"] == "stored"

        await eventually(reached, "the name is known")
        for method, end in (("DELETE", ""), ("POST", "/cancel"), ("GET", "?stream=true")):
            for header in ({}, {"x-model": "alpha"}, {"x-model": "beta/7b"}):
                path = f"/v1/responses/resp_1{made}{end}"
                status, served, response = await door.ask(method=method, path=path, headers=header)
                assert (status, served, response.headers["x-warmroute-reason"]) == (200, made, "stored")


async def test_without_ext_proc_headers_still_choose(door: Door) -> None:
    """Last, because ext_proc goes: what only the body names goes to the default pool."""
    await door.ext_proc.stop()

    async def by_default() -> bool:
        return (await door.ask("beta/7b"))[:2] == (200, "a1")

    await eventually(by_default, "the default pool gets it")
    assert (await door.ask("beta/7b", headers={"x-model": "beta/7b"}))[1][0] == "b"
    assert (await door.ask(method="GET", path="/v1/models/tuned"))[1][0] == "b"
    assert (await door.ask("nobody", listener=door.strict))[:2] == (200, "a1")
    for way in WAYS:
        assert (await upload(door, way, long_chat("beta/7b")))[:2] == (200, "a1")
        _, engine, reply = await upload(door, way, long_chat("alpha"), {"x-model": "beta/7b"})
        assert (engine in B, reply.headers.get("x-warmroute-endpoint")) == (True, None)
