"""Probes against real HTTP servers: only a model that answers is ready."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import ssl
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from fleet.endpoint import Endpoint
from fleet.settings import JoiningSettings
from tests.envoy.fickle import Deaf
from xds_server.endpoints.engine_client import EngineClient
from xds_server.endpoints.gate import ProbeResult
from xds_server.endpoints.model_list import models_of
from xds_server.endpoints.probe import Prober, own_names
from xds_server.http1.client import FetchError
from xds_server.signals.scrape.fetch import PageFetcher
from xds_server.tls.engine_tls import Dial

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

JOINING = JoiningSettings(probe_interval_seconds=0.01, probe_timeout_seconds=60.0)
GOOD = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}, {"id": "lora"}]}).encode()


class Engine:
    """An engine whose answer a test sets."""

    def __init__(self) -> None:
        self.status, self.body, self.silent = 200, GOOD, False
        self.page: bytes | None = None
        self.statuses: dict[str, int] = {}
        """By path, where it is another one."""
        self.paths: list[str] = []
        self.address = ""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.paths.append(request.path)
        if self.silent:
            await asyncio.sleep(60)
        if self.page is not None and request.path == "/metrics":
            return web.Response(body=self.page)
        status = self.statuses.get(request.path, self.status)
        return web.Response(status=status, body=self.body, headers={"Location": "/v1/models"})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine()
    runner = web.ServerRunner(web.Server(engine.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engine.address = "{}:{}".format(*runner.addresses[0])
    yield engine
    await runner.cleanup()


class Probing:
    """A prober and its results; it goes on until ready."""

    def __init__(self) -> None:
        self.results: list[ProbeResult] = []
        self.enough = ProbeResult.READY
        self.prober = Prober(self._take, EngineClient())

    def _take(self, address: str, result: ProbeResult) -> bool:
        self.results.append(result)
        return result is not self.enough

    def probe(
        self,
        address: str,
        models: tuple[str, ...] = ("m",),
        joining: JoiningSettings = JOINING,
        page: str = "",
    ) -> None:
        endpoint = Endpoint(address, "p", models, metrics_url=f"http://{page or address}/metrics")
        self.prober.update({address: (endpoint, joining)})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)

    async def first(self) -> ProbeResult:
        await self.until(lambda: bool(self.results))
        return self.results[0]


@pytest.fixture
async def probing() -> AsyncIterator[Probing]:
    probing = Probing()
    yield probing
    await probing.prober.close()


async def test_loading_model_is_not_ready(engine: Engine, probing: Probing) -> None:
    engine.status = 503
    probing.probe(engine.address)
    await probing.until(lambda: len(probing.results) >= 3)
    assert set(probing.results) == {ProbeResult.NOT_READY}
    engine.status = 200
    await probing.until(lambda: ProbeResult.READY in probing.results)
    requests = len(engine.paths)
    await asyncio.sleep(0.05)
    assert len(engine.paths) == requests, "a ready endpoint is not probed again"
    assert set(engine.paths) == {"/v1/models", "/health"}


async def test_engine_with_model_list_and_503_at_health_waits(engine: Engine, probing: Probing) -> None:
    """SGLang lists its model before it serves."""
    engine.statuses["/health"] = 503
    probing.probe(engine.address)
    await probing.until(lambda: len(probing.results) >= 3)
    assert set(probing.results) == {ProbeResult.NOT_READY}
    engine.statuses["/health"] = 404
    await probing.until(lambda: ProbeResult.READY in probing.results)


async def test_why_an_engine_is_not_ready_is_kept_and_logged_once(
    engine: Engine, probing: Probing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine.status = 503
    probing.probe(engine.address)
    await probing.until(lambda: len(probing.results) >= 3)
    requests = f"GET http://{engine.address}/v1/models"
    assert probing.prober.refusals[engine.address].startswith(f"{requests} was answered 503; ")
    assert caplog.text.count("is not ready") == 1
    engine.status, engine.body = 200, b'{"data": [{"id": "other"}]}'
    await probing.until(lambda: "lists" in probing.prober.refusals[engine.address])
    assert f" is not ready: {requests} was answered 200, and lists no model of 'm'; " in caplog.text
    assert caplog.records[-1].getMessage().endswith("; it lists 'other'")
    engine.body = GOOD
    await probing.until(lambda: not probing.prober.refusals)
    assert f"{engine.address} is ready" in caplog.text


async def test_refusal_from_the_start_is_logged_with_reason(
    probing: Probing, unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    probing.probe(address)
    await probing.until(lambda: len(probing.results) >= 2)
    why = f"GET http://{address}/v1/models: connection refused; start the engine, or mend its address"
    assert probing.prober.refusals == {address: why}
    assert [record.message for record in caplog.records] == [f"{address} is not ready: {why}"]
    probing.prober.update({})
    assert probing.prober.refusals == {}, "it is no endpoint any more"


@pytest.mark.parametrize(
    ("status", "body", "models", "result"),
    [
        (200, GOOD, ("x", "lora"), ProbeResult.READY),
        (200, GOOD, ("x",), ProbeResult.NOT_READY),
        (200, b'{"data": [{"id": 3}, {"object": "model"}, {"id": "m"}]}', ("m",), ProbeResult.READY),
        (200, b'{"data": []}', ("m",), ProbeResult.NOT_READY),
        (200, b"not JSON", (), ProbeResult.READY),
        (200, b"not JSON", ("m",), ProbeResult.NOT_READY),
        (200, b"[" * 100_000, ("m",), ProbeResult.NOT_READY),
        (200, b'{"data": [' + b" " * 2_000_000 + b'{"id": "m"}]}', ("m",), ProbeResult.NOT_READY),
        (204, b"", (), ProbeResult.NOT_READY),
        (302, b"", ("m",), ProbeResult.NOT_READY),
        (500, GOOD, ("m",), ProbeResult.NOT_READY),
        (401, b"", ("m",), ProbeResult.SILENT),
        (404, b"", ("m",), ProbeResult.NOT_READY),
        (404, b"", (), ProbeResult.SILENT),
    ],
)
async def test_probe_answers_have_results(
    status: int, body: bytes, models: tuple[str, ...], result: ProbeResult, engine: Engine, probing: Probing
) -> None:
    engine.status, engine.body = status, body
    probing.probe(engine.address, models)
    assert await probing.first() is result


async def test_supported_engines_page_replaces_models(engine: Engine, probing: Probing) -> None:
    """Triton has no list of models, and no other server has its page."""
    engine.status, engine.body, engine.page = 404, b"", b'# HELP x\nnv_inference_count{model="m"} 3\n'
    probing.probe(engine.address)
    assert await probing.first() is ProbeResult.SILENT
    assert engine.paths[:2] == ["/v1/models", "/metrics"]


async def test_each_reason_and_the_end_are_logged_once(
    engine: Engine, probing: Probing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for engine.status, answer in (
        (404, "answered 404, and its metrics page was answered 404"),
        (503, "answered 503"),
    ):
        before = len(probing.results)
        probing.probe(engine.address)
        await probing.until(lambda before=before: len(probing.results) > before + 3)
        texts = [record.getMessage() for record in caplog.records]
        assert sum(f"http://{engine.address}/v1/models was {answer}" in text for text in texts) == 1
    engine.status = 200
    await probing.until(lambda: f"{engine.address} is ready" in caplog.text.splitlines()[-1])


@pytest.mark.parametrize("where", ["beside", "own"])
async def test_unavailable_page_proves_nothing(
    where: str, engine: Engine, probing: Probing, unused_tcp_port: int
) -> None:
    """As of Triton, whose page has a port of its own: the exporter is down, or the page fails."""
    engine.status, engine.page = 404, None
    beside = f"127.0.0.1:{unused_tcp_port}"
    engine.statuses = {"/metrics": 500}
    probing.probe(engine.address, page=beside if where == "beside" else engine.address)
    assert await probing.first() is ProbeResult.UNKNOWN


async def test_model_names_are_quoted_cut_and_logged_once(
    engine: Engine, probing: Probing, caplog: pytest.LogCaptureFixture
) -> None:
    probing.probe(engine.address)
    for number in range(5):
        name = f"{number}\x1b[31m\n{'x' * 300}"
        engine.body = json.dumps({"data": [{"id": name}]}).encode()
        before = len(probing.results)
        await probing.until(lambda before=before: len(probing.results) > before + 1)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.isprintable()
    assert len(message) < 400
    assert "'4" in probing.prober.refusals[engine.address]


async def test_slow_handshake_is_a_connection(probing: Probing) -> None:
    """The port accepts, and says nothing."""

    async def mute(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    dial = Dial(ssl.create_default_context(), "engine", ssl.create_default_context())
    prober = Prober(probing._take, EngineClient(lambda _: dial))
    try:
        joining = JOINING.model_copy(update={"probe_timeout_seconds": 0.2})
        prober.update({address: (Endpoint(address, "p"), joining)})
        assert await probing.first() is ProbeResult.UNKNOWN
        async with PageFetcher(1_000) as fetcher:
            with pytest.raises(FetchError) as raised:
                await fetcher.fetch(f"https://{address}/metrics", 0.2, dial)
        assert not raised.value.unconnected
    finally:
        await prober.close()
        server.close()


async def test_late_time_out_is_our_own(probing: Probing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stood still, and had no connection when it went on."""
    with contextlib.closing(Deaf().fill()) as deaf:
        monkeypatch.setattr("xds_server.http1.client._LATE_FACTOR", 0.0)
        probing.probe(deaf.address, joining=JOINING.model_copy(update={"probe_timeout_seconds": 0.2}))
        assert await probing.first() is ProbeResult.UNKNOWN


@pytest.mark.parametrize(
    ("number", "result"),
    [
        (errno.EHOSTUNREACH, ProbeResult.NO_CONNECTION),
        (errno.ENETUNREACH, ProbeResult.UNKNOWN),
        (errno.ENETDOWN, ProbeResult.UNKNOWN),
    ],
)
async def test_own_network_fault_proves_nothing(
    number: int, result: ProbeResult, probing: Probing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise OSError(number, "no network")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    probing.probe("192.0.2.1:80")
    assert await probing.first() is result
    async with PageFetcher(1_000) as fetcher:
        with pytest.raises(FetchError) as raised:
            await fetcher.fetch("http://192.0.2.1/metrics", 60.0)
    assert raised.value.no_route is (result is ProbeResult.NO_CONNECTION)


async def test_admission_without_models_is_logged(
    engine: Engine, probing: Probing, caplog: pytest.LogCaptureFixture
) -> None:
    engine.status, probing.enough = 404, ProbeResult.SILENT
    probing.probe(engine.address, ())
    await probing.until(lambda: "passes its probe without showing a model" in caplog.text)
    assert "/v1/models was answered 404" in caplog.text


async def test_dropped_packets_are_no_connection(probing: Probing) -> None:
    with contextlib.closing(Deaf().fill()) as deaf:
        probing.probe(deaf.address, joining=JOINING.model_copy(update={"probe_timeout_seconds": 0.2}))
        assert await probing.first() is ProbeResult.NO_CONNECTION


async def test_health_wants_200_and_nothing_else(engine: Engine, probing: Probing) -> None:
    engine.body = b""
    probing.probe(engine.address, joining=JOINING.model_copy(update={"probe": "health"}))
    assert await probing.first() is ProbeResult.READY
    assert engine.paths == ["/health"]


async def test_refused_connection_is_not_ready(probing: Probing) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take the port
        probing.probe("{}:{}".format(*bound.getsockname()))
        assert await probing.first() is ProbeResult.NOT_READY


async def test_silence_proves_nothing(engine: Engine, probing: Probing) -> None:
    engine.silent = True
    probing.probe(engine.address, joining=JOINING.model_copy(update={"probe_timeout_seconds": 0.05}))
    assert await probing.first() is ProbeResult.UNKNOWN


async def test_removed_endpoint_is_not_probed(engine: Engine, probing: Probing) -> None:
    engine.status = 503
    probing.probe(engine.address)
    await probing.first()
    probing.prober.update({})
    requests = len(engine.paths)
    await asyncio.sleep(0.05)
    assert len(engine.paths) <= requests + 1


@pytest.mark.parametrize(
    ("listed", "own"),
    [
        ([{"id": "m"}, {"id": "alias"}], ("m", "alias")),
        ([{"id": "alias", "root": "/w"}, {"id": "m", "root": "/w"}], ("m", "alias")),
        ([{"id": "m"}, {"id": "alias", "parent": "m"}], ("m",)),
        ([{"id": "m", "root": "/a"}, {"id": "alias", "root": "/b"}], ("m",)),
        ([{"id": "other"}, {"id": "alias", "parent": None}], ("alias",)),
        ([], ()),
    ],
    ids=str,
)
def test_names_of_one_model_have_one_root_and_no_parent(
    listed: list[dict[str, str]], own: tuple[str, ...]
) -> None:
    models = models_of(json.dumps({"data": listed}).encode())
    assert models is not None
    assert own_names(models, ("m", "alias")) == own
    assert own_names(models, ("m",)) == own_names((), ("m", "alias")) == ()


@pytest.mark.parametrize(
    ("models", "lengths", "expected"),
    [
        (("m",), {"m": 8192, "other": 99999}, 8192),
        ((), {"m": 8192, "other": 4096}, 8192),
        (("m", "lora"), {"m": 8192, "lora": None}, 8192),
        (("m",), {"m": "8192"}, None),
        (("m",), {"m": True}, None),
        (("m",), {"m": 0}, None),
    ],
)
async def test_list_of_models_shows_the_context(
    engine: Engine,
    probing: Probing,
    models: tuple[str, ...],
    lengths: dict[str, object],
    expected: int | None,
) -> None:
    """A length of another type is unknown, and the engine is ready all the same."""
    data = [{"id": model, "max_model_len": length} for model, length in lengths.items()]
    engine.body = json.dumps({"data": data}).encode()
    probing.probe(engine.address, models)
    assert await probing.first() is ProbeResult.READY
    assert probing.prober.context_tokens.get(engine.address) == expected
    probing.prober.keep(())
    assert not probing.prober.context_tokens
