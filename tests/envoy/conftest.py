"""One real Envoy for all tests here, fed by the product's own snapshot over ADS, with engines that echo.

The discovery server and ext_proc are small stand-ins, so that these tests show what the configuration
does whatever the services do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import shutil
import socket
import tempfile
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import aiohttp
import grpc
import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from multidict import CIMultiDict

from ext_proc.protocol import leading
from ext_proc.server import LEADING_SERVICE
from fleet.endpoint import Membership, Pool
from fleet.envoy_api.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as ext_proc_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from fleet.names import DESTINATION_KEY, DESTINATION_NAMESPACE, EXT_PROC_CLUSTER, METADATA_NAMESPACE
from fleet.service.serving import server_options
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from tests.envoy.processors import Nursery
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import free_port
from xds_server.envoy import clusters
from xds_server.envoy.bootstrap import bootstrap
from xds_server.envoy.build import build_snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fleet.settings import Settings
    from xds_server.snapshot.snapshot import Snapshot

_LIMIT_SECONDS = 300.0
"""Reached by nothing that works: it ends a test that would wait for ever."""

PATIENCE_SECONDS = 10.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here shares one Envoy, so it shares one loop."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("asyncio"):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


async def eventually(condition: Any, what: str) -> Any:
    """Poll until `condition()` (or what it awaits) is true, and return that."""
    async with asyncio.timeout(_LIMIT_SECONDS):
        while True:
            held = condition()
            if asyncio.iscoroutine(held):
                held = await held
            if held:
                return held
            await asyncio.sleep(0.02)
    raise AssertionError(what)


class Engines:
    """HTTP servers on loopback, all of one application: they echo what they saw and who they are."""

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._sockets: list[socket.socket] = []
        self.served: Counter[str] = Counter()
        self.statuses: dict[str, int] = {}
        """Address to the status that it answers with instead of 200."""
        self.failures = 0
        """The number of next requests that get a 503, at any address."""
        self.resets: set[str] = set()
        """Addresses that cut the connection in the middle of a request."""
        self.delays: dict[str, float] = {}
        """Address to the seconds that it takes to answer."""
        self.release = asyncio.Event()
        """Before this is set, what asks with `?held` gets no more than the beginning of its answer."""
        self.held: set[str] = set()
        """Addresses that answer nothing before it is set."""
        self.answers: list[tuple[str, str]] = []
        """Headers that answers have beside the usual ones."""
        self.newest: deque[tuple[str, CIMultiDict[str]]] = deque(maxlen=32)
        """Who was asked, and with which headers, the newest last: also what was answered with an error."""

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/stream", self._stream)
        app.router.add_route("*", "/duplex", self._duplex)
        app.router.add_post("/early", self._early)
        app.router.add_get("/ws", self._websocket)
        app.router.add_get("/v1/realtime", self._websocket)
        app.router.add_route("*", "/{tail:.*}", self._echo)
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=30, shutdown_timeout=0.1)
        await self._runner.setup()

    async def add(self) -> str:
        """Start one more engine and return its address."""
        assert self._runner is not None
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        await web.SockSite(self._runner, bound).start()
        return f"127.0.0.1:{bound.getsockname()[1]}"

    def dead(self) -> str:
        """Return an address that refuses connections and that nobody else can take."""
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        self._sockets.append(bound)
        return f"127.0.0.1:{bound.getsockname()[1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        for held in self._sockets:
            held.close()

    @staticmethod
    def _address(request: web.Request) -> str:
        assert request.transport is not None
        return f"127.0.0.1:{request.transport.get_extra_info('sockname')[1]}"

    async def _echo(self, request: web.Request) -> web.Response:
        body = await request.read()
        address = self._address(request)
        self.served[address] += 1
        self.newest.append((address, CIMultiDict(request.headers)))
        await asyncio.sleep(self.delays.get(address, 0))
        if address in self.held:
            await self.release.wait()
        if address in self.resets:
            assert request.transport is not None
            request.transport.abort()
        failed, self.failures = self.failures > 0, max(0, self.failures - 1)
        return web.json_response(
            {
                "address": address,
                "method": request.method,
                "path": request.path_qs,
                "headers": [[name.lower(), value] for name, value in request.headers.items()],
                "bytes": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
            },
            status=503 if failed else self.statuses.get(address, 200),
            headers=CIMultiDict(self.answers),
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Two events, `?silence=` seconds apart (`?held=1`: until released), the first after `?prefill=`.

        `?cut=1`: only one.
        """
        address = self._address(request)
        self.served[address] += 1
        await asyncio.sleep(self.delays.get(address, 0))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(float(request.query.get("prefill", "0")))
        await response.write(b"data: first\n\n")
        await asyncio.sleep(float(request.query.get("silence", "0")))
        if "held" in request.query:
            await self.release.wait()
        if "cut" in request.query:
            assert request.transport is not None
            request.transport.abort()
        await response.write(b"data: last\n\n")
        await response.write_eof()
        return response

    async def _duplex(self, request: web.Request) -> web.StreamResponse:
        """Answer the first part of the body before reading the rest, then say how long it was."""
        response = web.StreamResponse()
        size = len(await request.content.readany())
        await response.prepare(request)
        await response.write(b"first\n")
        size += len(await request.content.read())
        await response.write(str(size).encode())
        return response

    async def _early(self, request: web.Request) -> web.Response:
        """Refuse a body without reading it."""
        return web.Response(status=403, text="early")

    async def _websocket(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(protocols=("chat",))
        ws.headers["x-seen"] = json.dumps(sorted(name.lower() for name in request.headers))
        await ws.prepare(request)
        async for message in ws:
            await ws.send_str(f"echo {message.data}")
        return ws


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """A state-of-the-world discovery server that sends a type when asked for it and when it changes."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.nacks: list[str] = []
        self._changed = asyncio.Event()

    def set(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._changed.set()
        self._changed = asyncio.Event()

    async def StreamAggregatedResources(self, requests: Any, context: Any) -> Any:  # noqa: N802
        asked: dict[str, list[str]] = {}
        sent: dict[str, tuple[str, tuple[str, ...]]] = {}
        wake = asyncio.Event()

        async def read() -> None:
            async for request in requests:
                if request.HasField("error_detail"):
                    self.nacks.append(f"{request.type_url}: {request.error_detail.message}")
                asked[request.type_url] = list(request.resource_names)
                wake.set()

        reading = asyncio.create_task(read())
        try:
            while True:
                changed = asyncio.create_task(self._changed.wait())
                woken = asyncio.create_task(wake.wait())
                for response in self._due(asked, sent):
                    yield response
                wake.clear()
                await asyncio.wait({changed, woken, reading}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                woken.cancel()
                if reading.done():
                    return
        finally:
            reading.cancel()

    def _due(self, asked: dict[str, list[str]], sent: dict[str, tuple[str, tuple[str, ...]]]) -> list[Any]:
        due = []
        assert self.snapshot is not None
        for type_url, names in asked.items():
            state = (self.snapshot.version(type_url), tuple(sorted(names)))
            if sent.get(type_url) == state:
                continue
            sent[type_url] = state
            held = self.snapshot.of_type(type_url)
            chosen = (
                [held[name].body for name in names if name in held]
                if names
                else [r.body for r in held.values()]
            )
            due.append(
                discovery_pb2.DiscoveryResponse(
                    type_url=type_url, version_info=state[0], nonce=state[0], resources=chosen
                )
            )
        return due


@dataclass(frozen=True)
class Message:
    """One message that ext_proc got."""

    kind: str
    bytes: int
    end: bool
    sha256: str
    attributes: dict[str, Any]
    path: str


@dataclass
class ExtProc(ext_proc_grpc.ExternalProcessorServicer, health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """An external processor whose pick is set by the test; it can freeze, die and come back."""

    socket: str
    pick: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    """Header mutations that it tries to make."""
    immediate: bool = False
    """Answer with an immediate response of 418."""
    mute: bool = False
    """End a call with a leading part without an answer."""
    instead: Any = None
    """Answer with this, whatever comes."""
    messages: list[Message] = field(default_factory=list)
    open_streams: int = 0
    _frozen: asyncio.Event | None = None
    _server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        ext_proc_grpc.add_ExternalProcessorServicer_to_server(self, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self, self._server)
        check = grpc.stream_stream_rpc_method_handler(self.leading)
        handlers = grpc.method_handlers_generic_handler(LEADING_SERVICE, {"Check": check})
        self._server.add_generic_rpc_handlers((handlers,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def kill(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def freeze(self) -> None:
        """Answer nothing any more, as under SIGSTOP."""
        self._frozen = asyncio.Event()

    def thaw(self) -> None:
        if self._frozen is not None:
            self._frozen.set()
            self._frozen = None

    def reset(self) -> None:
        """Forget what a test has set and seen."""
        self.pick, self.immediate, self.instead, self.mute = "", False, None, False
        self.metadata, self.headers, self.messages = {}, {}, []

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self._frozen is not None:
            await self._frozen.wait()
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    async def Process(self, requests: Any, context: Any) -> Any:  # noqa: N802
        self.open_streams += 1
        try:
            async for request in requests:
                self.messages.append(_message(request))
                if self._frozen is not None:
                    await self._frozen.wait()
                yield self._answer(request.WhichOneof("request"))
        finally:
            self.open_streams -= 1

    async def leading(self, messages: Any, _context: Any) -> Any:
        """Answer a leading part as the product does, which also ends without an answer."""
        async for data in messages:
            headers, body = leading.decode(data, 1 << 24)
            self.messages.append(replace(_message(body), kind="leading"))
            if self._frozen is not None:
                await self._frozen.wait()
            replies = [self._answer(message.WhichOneof("request")) for message in (headers, body)]
            if not self.mute:
                yield leading.encode([reply.SerializeToString() for reply in replies], may_refuse=False)

    def _answer(self, kind: str) -> Any:
        if self.instead is not None:
            return self.instead
        response = ext_proc_pb2.ProcessingResponse()
        if self.immediate:
            response.immediate_response.status.code = 418  # type: ignore[assignment]
            return response
        common = getattr(response, kind).response
        common.SetInParent()
        for name, value in self.headers.items():
            option = common.header_mutation.set_headers.add()
            option.header.key = name
            option.header.raw_value = value.encode()
        if kind in ("request_headers", "request_body"):
            if self.pick:
                response.dynamic_metadata.get_or_create_struct(DESTINATION_NAMESPACE)[DESTINATION_KEY] = (
                    self.pick
                )
            for key, text in self.metadata.items():
                response.dynamic_metadata.get_or_create_struct(METADATA_NAMESPACE)[key] = text
        return response


def _message(request: Any) -> Message:
    kind = request.WhichOneof("request")
    body = request.request_body.body if kind == "request_body" else b""
    end = getattr(request, kind).end_of_stream
    attributes: dict[str, Any] = {}
    for struct in request.attributes.values():
        attributes |= json_format.MessageToDict(struct)
    path = attributes.get("request.path", "")
    return Message(kind, len(body), end, hashlib.sha256(body).hexdigest(), attributes, path)


@dataclass
class World:
    """Envoy with everything around it."""

    settings: Settings
    ads: Ads
    ext_proc: ExtProc
    engines: Engines
    envoy: EnvoyProcess
    http: aiohttp.ClientSession
    pools: dict[str, list[str]]
    xds_server: grpc.aio.Server
    patient: bool = True

    @staticmethod
    async def eventually(condition: Any, what: str) -> Any:
        """Poll until `condition()` is true."""
        return await eventually(condition, what)

    def url(self, listener: str = "main", path: str = "/v1/chat/completions") -> str:
        address = next(entry.address for entry in self.settings.listeners if entry.name == listener)
        return f"http://{address}{path}"

    def set_weights(self, weights: dict[str, int], unhealthy: frozenset[str] = frozenset()) -> None:
        self.publish(membership(self.settings), weights, unhealthy)

    def publish(
        self,
        served: Membership,
        weights: dict[str, int],
        unhealthy: frozenset[str] = frozenset(),
        **more: Any,
    ) -> None:
        """Build what the product would and give it to Envoy."""
        self.ads.set(built(self.settings, served, weights, unhealthy, patient=self.patient, **more))

    def set_membership(self, pools: dict[str, list[str]], weights: dict[str, int] | None = None) -> None:
        """Serve other endpoints than the settings have, for these pools."""
        changed = Membership(
            tuple(
                Pool(
                    pool.name,
                    tuple(e for e in pool.endpoints if e.address in pools.get(pool.name, [e.address])),
                )
                for pool in membership(self.settings).pools
            )
        )
        self.publish(changed, weights or {})

    async def weights_taken(self, pool: str, weights: dict[str, int]) -> None:
        """Push weights and wait until Envoy has them."""
        self.set_weights(weights)

        async def taken() -> bool:
            hosts = (await self.envoy.clusters())[pool]
            return {address: host.get("weight") for address, host in hosts.items()} == weights

        await eventually(taken, f"weights {weights}")

    async def eds_health(self, pool: str, address: str, *, healthy: bool) -> None:
        """Wait until Envoy holds an endpoint for healthy by EDS, or not."""
        wanted = "HEALTHY" if healthy else "UNHEALTHY"

        async def reached() -> bool:
            hosts = (await self.envoy.clusters())[pool]
            return address in hosts and hosts[address]["health_status"]["eds_health_status"] == wanted

        await eventually(reached, f"{address} {wanted}")

    async def eds_absent(self, pool: str, address: str) -> None:
        """Wait until Envoy knows an endpoint no more."""

        async def gone() -> bool:
            return address not in (await self.envoy.clusters())[pool]

        await eventually(gone, f"{address} gone")

    async def post(self, body: Any = None, listener: str = "main", **kwargs: Any) -> Answer:
        """Send JSON (or what `data=` holds) and return what client and engine saw."""
        if "data" not in kwargs:
            kwargs["data"] = json.dumps(body if body is not None else {"prompt": "hello"}).encode()
            kwargs["headers"] = CIMultiDict(kwargs.get("headers", {}))
            kwargs["headers"].setdefault("content-type", "application/json")
        if isinstance(kwargs["data"], bytes):
            kwargs["data"] = io.BytesIO(kwargs["data"])
        return await self.request("POST", listener, **kwargs)

    async def request(
        self, method: str, listener: str = "main", path: str = "/v1/x", **kwargs: Any
    ) -> Answer:
        async with self.http.request(method, self.url(listener, path), **kwargs) as response:
            text = await response.text()
            if text and response.content_type == "application/json":
                return Answer(response.status, dict(response.headers), json.loads(text))
            return Answer(response.status, dict(response.headers), {"text": text})

    async def picks_resume(self, picked: str) -> None:
        """Wait until Envoy's workers, which hear of health a moment after its main thread, ask again."""
        self.ext_proc.pick = picked

        async def resumed() -> bool:
            answer = await self.post()
            assert answer.status == 200
            return "request_body" in {message.kind for message in self.ext_proc.messages}

        self.ext_proc.messages.clear()
        await eventually(resumed, "picks resume")
        assert (await self.post()).engine == picked

    async def ext_proc_health(self, *, healthy: bool) -> None:
        """Wait until Envoy holds ext_proc for healthy, or not."""

        async def reached() -> bool:
            stats = await self.envoy.stats(f"cluster.{EXT_PROC_CLUSTER}.membership_healthy")
            return bool(stats) and next(iter(stats.values())) == int(healthy)

        await eventually(reached, f"ext_proc healthy: {healthy}")


@dataclass(frozen=True)
class Answer:
    """A response, and the request as the engine saw it."""

    status: int
    headers: dict[str, str]
    seen: dict[str, Any]

    @property
    def engine(self) -> str:
        return str(self.seen.get("address", ""))

    def upstream(self, name: str) -> list[str]:
        """Values of a request header as the engine saw them."""
        return [value for held, value in self.seen["headers"] if held == name]


def free_address() -> str:
    """Return a loopback address that was free a moment ago, and that nobody here was given before."""
    return f"127.0.0.1:{free_port()}"


def patience() -> contextlib.AbstractContextManager[Any]:
    """Let Envoy wait long for an answer to its health checks of ext_proc, and see soon who dies or comes."""
    changed: dict[str, Any] = {"_HEALTH_TIMEOUT_SECONDS": PATIENCE_SECONDS, "_HEALTH_INTERVAL_SECONDS": 0.05}
    return mock.patch.multiple(clusters, **changed)


def built(settings: Settings, *told: Any, patient: bool, **more: Any) -> Snapshot:
    """Build a snapshot; a patient one never takes the stand-in for frozen.

    The stand-in shares a process with the test, so what stalls one stalls both.
    """
    with patience() if patient else contextlib.nullcontext():
        return build_snapshot(settings, *told, **more)


@contextlib.asynccontextmanager
async def make_world(
    delta: bool = False,
    patient: bool = True,
    register: Callable[[grpc.aio.Server], None] = lambda server: None,
    adapt: Callable[[dict[str, Any]], None] = lambda settings: None,
) -> AsyncIterator[World]:
    """Start engines, discovery (with what else `register` adds to its server), ext_proc and Envoy.

    `adapt` may change the settings, as they are read from YAML, before they are checked. A world that
    is not `patient` has the product's own time limits for ext_proc.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-test-"))
    engines = Engines()
    await engines.start()
    pools = {
        "live": [await engines.add() for _ in range(3)],
        "mixed": [engines.dead(), await engines.add(), await engines.add()],
        "ejecting": [engines.dead(), await engines.add(), await engines.add()],
        "weighted": [await engines.add() for _ in range(4)],
        "retrying": [await engines.add() for _ in range(3)],
        "marked": [await engines.add() for _ in range(3)],
    }
    written = _settings(directory, pools)
    if patient:
        written["ext_proc"]["message_timeout_seconds"] = PATIENCE_SECONDS
    adapt(written)
    settings = parse_settings(yaml.safe_dump(written))
    ads = Ads()
    ads.set(built(settings, membership(settings), {}, frozenset(), patient=patient))
    server = grpc.aio.server(options=server_options())
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(ads, server)
    register(server)
    server.add_insecure_port(settings.xds.address)
    await server.start()
    ext_proc = ExtProc(settings.ext_proc.address.removeprefix("unix:"))
    await ext_proc.start()
    boot = bootstrap(ads_address=settings.xds.address, node_id="test", node_cluster="tests", delta=delta)
    timeout = aiohttp.ClientTimeout(total=_LIMIT_SECONDS)
    try:
        async with EnvoyProcess(boot) as envoy, aiohttp.ClientSession(timeout=timeout) as http:
            world = World(settings, ads, ext_proc, engines, envoy, http, pools, server, patient)
            await envoy.wait_ready(listeners=len(settings.listeners))
            await world.ext_proc_health(healthy=True)
            yield world
    finally:
        await ext_proc.kill()
        await server.stop(None)
        await engines.stop()
        shutil.rmtree(directory)


def _settings(directory: Path, pools: dict[str, list[str]]) -> dict[str, Any]:
    def endpoint(pool: str, index: int, address: str) -> dict[str, Any]:
        # Two localities of unequal size: shares must follow the endpoints' weights all the same.
        zone = "b" if pool == "weighted" and index else "a"
        return {"address": address, "locality": {"region": "r", "zone": zone}}

    listener = {"main": "live", "quiet": "live", "roomy": "live"} | {
        name: name for name in pools if name != "live"
    }
    return {
        "pools": [
            {
                "name": name,
                "endpoints": [endpoint(name, i, address) for i, address in enumerate(held)],
                **({"retry_on": "5xx"} if name == "retrying" else {}),
            }
            for name, held in pools.items()
        ],
        "listeners": [
            {
                "name": name,
                "address": free_address().replace("127.0.0.1", "0.0.0.0" if name == "quiet" else "127.0.0.1"),
                "pool": pool,
                "open_paths": {"quiet": ["*"], "roomy": ["/metrics"]}.get(name, []),
                "large_body_bytes": 4 * 1024 * 1024 if name == "roomy" else 1_048_576,
            }
            for name, pool in listener.items()
        ],
        "xds": {"address": f"unix:{directory}/xds.sock"},
        "ext_proc": {"address": f"unix:{directory}/ext_proc.sock"},
    }


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nursery() -> AsyncIterator[Nursery]:
    """Starts processors that can be killed."""
    async with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def worlds() -> Any:
    """Makes worlds of a test's own."""
    return make_world


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_world() -> AsyncIterator[World]:
    """The one Envoy of these tests."""
    async with make_world() as world:
        yield world
        assert not world.ads.nacks


@pytest_asyncio.fixture(loop_scope="session")
async def world(shared_world: World) -> AsyncIterator[World]:
    """The shared Envoy, with nothing left over from the test before."""
    shared_world.ext_proc.reset()
    shared_world.engines.statuses.clear()
    shared_world.engines.resets.clear()
    shared_world.engines.delays.clear()
    shared_world.engines.served.clear()
    shared_world.engines.answers.clear()
    yield shared_world
