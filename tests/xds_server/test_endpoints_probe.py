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
from xds_server.endpoints.gate import Verdict
from xds_server.endpoints.probe import Prober
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
    held = Engine()
    runner = web.ServerRunner(web.Server(held.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    held.address = "{}:{}".format(*runner.addresses[0])
    yield held
    await runner.cleanup()


class Heard:
    """A prober and what it heard; it goes on until ready."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.enough = Verdict.READY
        self.prober = Prober(self._take)

    def _take(self, address: str, verdict: Verdict) -> bool:
        self.verdicts.append(verdict)
        return verdict is not self.enough

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

    async def first(self) -> Verdict:
        await self.until(lambda: bool(self.verdicts))
        return self.verdicts[0]


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    held = Heard()
    yield held
    await held.prober.close()


async def test_a_model_that_loads_is_not_ready_until_it_has(engine: Engine, heard: Heard) -> None:
    engine.status = 503
    heard.probe(engine.address)
    await heard.until(lambda: len(heard.verdicts) >= 3)
    assert set(heard.verdicts) == {Verdict.NOT_READY}
    engine.status = 200
    await heard.until(lambda: Verdict.READY in heard.verdicts)
    asked = len(engine.paths)
    await asyncio.sleep(0.05)
    assert len(engine.paths) == asked, "who is ready is not asked again"
    assert set(engine.paths) == {"/v1/models"}


async def test_why_an_engine_is_not_ready_is_kept_and_logged_once(
    engine: Engine, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine.status = 503
    heard.probe(engine.address)
    await heard.until(lambda: len(heard.verdicts) >= 3)
    asked = f"GET http://{engine.address}/v1/models"
    assert heard.prober.refusals[engine.address].startswith(f"{asked} was answered 503; ")
    assert caplog.text.count("is not ready") == 1
    engine.status, engine.body = 200, b'{"data": [{"id": "other"}]}'
    await heard.until(lambda: "lists" in heard.prober.refusals[engine.address])
    assert f" is not ready: {asked} was answered 200, and lists no model of 'm'; " in caplog.text
    assert caplog.records[-1].getMessage().endswith("; it lists 'other'")
    engine.body = GOOD
    await heard.until(lambda: not heard.prober.refusals)
    assert f"{engine.address} is ready" in caplog.text


async def test_an_engine_that_refuses_from_the_start_is_named_with_the_reason(
    heard: Heard, unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    heard.probe(address)
    await heard.until(lambda: len(heard.verdicts) >= 2)
    why = f"GET http://{address}/v1/models: connection refused; start the engine, or mend its address"
    assert heard.prober.refusals == {address: why}
    assert [record.message for record in caplog.records] == [f"{address} is not ready: {why}"]
    heard.prober.update({})
    assert heard.prober.refusals == {}, "it is no endpoint any more"


@pytest.mark.parametrize(
    ("status", "body", "models", "verdict"),
    [
        (200, GOOD, ("x", "lora"), Verdict.READY),
        (200, GOOD, ("x",), Verdict.NOT_READY),
        (200, b'{"data": []}', ("m",), Verdict.NOT_READY),
        (200, b"not JSON", (), Verdict.READY),
        (200, b"not JSON", ("m",), Verdict.NOT_READY),
        (200, b"[" * 100_000, ("m",), Verdict.NOT_READY),
        (200, b'{"data": [' + b" " * 2_000_000 + b'{"id": "m"}]}', ("m",), Verdict.NOT_READY),
        (204, b"", (), Verdict.NOT_READY),
        (302, b"", ("m",), Verdict.NOT_READY),
        (500, GOOD, ("m",), Verdict.NOT_READY),
        (401, b"", ("m",), Verdict.SILENT),
        (404, b"", ("m",), Verdict.NOT_READY),
        (404, b"", (), Verdict.SILENT),
    ],
)
async def test_what_an_answer_is_worth(
    status: int, body: bytes, models: tuple[str, ...], verdict: Verdict, engine: Engine, heard: Heard
) -> None:
    engine.status, engine.body = status, body
    heard.probe(engine.address, models)
    assert await heard.first() is verdict


async def test_a_known_engines_page_stands_in_for_the_models(engine: Engine, heard: Heard) -> None:
    """Triton has no list of models, and no other server has its page."""
    engine.status, engine.body, engine.page = 404, b"", b'# HELP x\nnv_inference_count{model="m"} 3\n'
    heard.probe(engine.address)
    assert await heard.first() is Verdict.SILENT
    assert engine.paths[:2] == ["/v1/models", "/metrics"]


async def test_the_log_says_once_what_was_asked_and_answered_and_that_it_is_over(
    engine: Engine, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for engine.status, answer in (
        (404, "answered 404, and its metrics page was answered 404"),
        (503, "answered 503"),
    ):
        before = len(heard.verdicts)
        heard.probe(engine.address)
        await heard.until(lambda before=before: len(heard.verdicts) > before + 3)
        texts = [record.getMessage() for record in caplog.records]
        assert sum(f"http://{engine.address}/v1/models was {answer}" in text for text in texts) == 1
    engine.status = 200
    await heard.until(lambda: f"{engine.address} is ready" in caplog.text.splitlines()[-1])


@pytest.mark.parametrize("where", ["beside", "own"])
async def test_a_page_that_is_not_to_be_had_says_nothing_of_the_engine(
    where: str, engine: Engine, heard: Heard, unused_tcp_port: int
) -> None:
    """As of Triton, whose page has a port of its own: the exporter is down, or the page fails."""
    engine.status, engine.page = 404, None
    beside = f"127.0.0.1:{unused_tcp_port}"
    engine.statuses = {"/metrics": 500}
    heard.probe(engine.address, page=beside if where == "beside" else engine.address)
    assert await heard.first() is Verdict.UNKNOWN


async def test_what_a_server_calls_its_models_is_quoted_cut_and_no_reason_to_log_again(
    engine: Engine, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    heard.probe(engine.address)
    for number in range(5):
        name = f"{number}\x1b[31m\n{'x' * 300}"
        engine.body = json.dumps({"data": [{"id": name}]}).encode()
        before = len(heard.verdicts)
        await heard.until(lambda before=before: len(heard.verdicts) > before + 1)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.isprintable()
    assert len(message) < 400
    assert "'4" in heard.prober.refusals[engine.address]


async def test_a_slow_handshake_is_a_connection(heard: Heard) -> None:
    """The port accepts, and says nothing."""

    async def mute(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    dial = Dial(ssl.create_default_context(), "engine", ssl.create_default_context())
    prober = Prober(heard._take, engine_tls=lambda _: dial)
    try:
        joining = JOINING.model_copy(update={"probe_timeout_seconds": 0.2})
        prober.update({address: (Endpoint(address, "p"), joining)})
        assert await heard.first() is Verdict.UNKNOWN
        async with PageFetcher(1_000) as fetcher:
            with pytest.raises(FetchError) as raised:
                await fetcher.fetch(f"https://{address}/metrics", 0.2, dial)
        assert not raised.value.unconnected
    finally:
        await prober.close()
        server.close()


async def test_a_time_out_that_comes_late_is_our_own(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stood still, and found no connection when it went on."""
    with contextlib.closing(await Deaf().fill()) as deaf:
        monkeypatch.setattr("xds_server.http1.client._LATE_FACTOR", 0.0)
        heard.probe(deaf.address, joining=JOINING.model_copy(update={"probe_timeout_seconds": 0.2}))
        assert await heard.first() is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (errno.EHOSTUNREACH, Verdict.NO_CONNECTION),
        (errno.ENETUNREACH, Verdict.UNKNOWN),
        (errno.ENETDOWN, Verdict.UNKNOWN),
    ],
)
async def test_a_host_without_a_network_says_nothing_of_others(
    number: int, verdict: Verdict, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise OSError(number, "told")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
    heard.probe("192.0.2.1:80")
    assert await heard.first() is verdict
    async with PageFetcher(1_000) as fetcher:
        with pytest.raises(FetchError) as raised:
            await fetcher.fetch("http://192.0.2.1/metrics", 60.0)
    assert raised.value.no_route is (verdict is Verdict.NO_CONNECTION)


async def test_a_server_that_is_let_in_without_a_model_to_ask_for_is_warned_of(
    engine: Engine, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    engine.status, heard.enough = 404, Verdict.SILENT
    heard.probe(engine.address, ())
    await heard.until(lambda: "passes its probe without showing a model" in caplog.text)
    assert "/v1/models was answered 404" in caplog.text


async def test_an_address_that_drops_packets_gives_no_connection(heard: Heard) -> None:
    with contextlib.closing(await Deaf().fill()) as deaf:
        heard.probe(deaf.address, joining=JOINING.model_copy(update={"probe_timeout_seconds": 0.2}))
        assert await heard.first() is Verdict.NO_CONNECTION


async def test_health_wants_200_and_nothing_else(engine: Engine, heard: Heard) -> None:
    engine.body = b""
    heard.probe(engine.address, joining=JOINING.model_copy(update={"probe": "health"}))
    assert await heard.first() is Verdict.READY
    assert engine.paths == ["/health"]


async def test_a_refused_connection_is_a_clear_no(heard: Heard) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take the port
        heard.probe("{}:{}".format(*bound.getsockname()))
        assert await heard.first() is Verdict.NOT_READY


async def test_silence_tells_nothing(engine: Engine, heard: Heard) -> None:
    engine.silent = True
    heard.probe(engine.address, joining=JOINING.model_copy(update={"probe_timeout_seconds": 0.05}))
    assert await heard.first() is Verdict.UNKNOWN


async def test_who_is_no_longer_wanted_is_not_asked(engine: Engine, heard: Heard) -> None:
    engine.status = 503
    heard.probe(engine.address)
    await heard.first()
    heard.prober.update({})
    asked = len(engine.paths)
    await asyncio.sleep(0.05)
    assert len(engine.paths) <= asked + 1
