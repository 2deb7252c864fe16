"""The engine as an HTTP server that speaks as vLLM does, over the engine model in real time.

    POST /v1/chat/completions   POST /v1/completions   GET /v1/models   GET /health   GET /metrics
    POST /v1/responses          OpenAI's Responses; stored ones by GET and DELETE /v1/responses/{id} and
                                POST /v1/responses/{id}/cancel (`responses.py`)
    POST /v1/messages           Anthropic's, and /v1/messages/count_tokens (`messages.py`)
    POST /v1/embeddings         of text or token ids (`embeddings.py`)
    POST /generate              SGLang's or TGI's, by the body, and TGI's /generate_stream (`generate.py`)
    GET  /v1/realtime           a WebSocket that answers messages with tokens (`realtime.py`)
    GET  /admin/seen            counts of requests, and of picks that named this engine
    GET  /admin/fault           the fault in force
    POST /admin/fault           {"kind": "slow", "factor": 10} | "frozen" | "status" with "code" | "reset"
                                | "out_of_memory" | "none"; with only the page's gauges being wrong:
                                "memory" with "ratio" | "zeros" | "jitter" with "ratio"
    POST /admin/restart         running requests dropped, cache and counters emptied, fault healed
    POST /admin/reset_cache     warm blocks forgotten

The admin routes answer peers on loopback, and others only when the server is told so: an Envoy on the same
machine is such a peer, so its routes should not lead to them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec
from aiohttp import web

from fleet.names import HEADER_ENDPOINT, HEADER_RANK
from warmroute.simulator.admin import (
    NO_FAULT,
    Fault,
    FaultError,
    RequestCounts,
    apply_fault,
    is_loopback,
    read_fault,
)
from warmroute.simulator.connection import (
    BACKLOG_CONNECTIONS,
    HEADER_ENGINE,
    SHUTDOWN_SECONDS,
    error_response,
    json_response,
    make_server,
    own_address,
    reset,
    until_gone,
)
from warmroute.simulator.driver import DroppedError, EngineDriver, Stream
from warmroute.simulator.embeddings import embeddings_json, read_inputs
from warmroute.simulator.generate import SglangWriter, TgiWriter, read_generate, read_generate_stream
from warmroute.simulator.messages import MessageWriter, messages_error, read_count, read_message
from warmroute.simulator.metrics import page_of_ranks
from warmroute.simulator.model import EngineConfig, Request
from warmroute.simulator.protocol import (
    BadRequestError,
    Call,
    ChoicesWriter,
    Form,
    Usage,
    Writer,
    check_length,
    models_json,
    read_chat,
    read_completion,
)
from warmroute.simulator.realtime import converse, open_socket, say
from warmroute.simulator.responses import Responses, ResponseWriter, Stored, read_response
from warmroute.simulator.tokens import BYTES_PER_TOKEN, Speaker, block_chain, count_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    _Read = Callable[[bytes], Call]
    _Answer = Callable[[web.BaseRequest, str, RequestCounts], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)

_WRITERS: Final[Mapping[Form, Callable[[Call, str, str, int], Writer]]] = {
    "chat": ChoicesWriter,
    "completion": ChoicesWriter,
    "response": ResponseWriter,
    "message": MessageWriter,
    "sglang": SglangWriter,
    "tgi": TgiWriter,
}
_RESPONSE: Final = "/v1/responses/"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What the server adds to the engine."""

    engine: EngineConfig
    model: str = "warm-model"
    admin: bool = False
    """Whether admin routes answer peers that are not on loopback."""
    ranks: int = 1
    """Data-parallel ranks, each with the whole of `engine`."""


@dataclass(frozen=True, slots=True)
class _Work:
    call: Call
    driver: EngineDriver
    streams: list[Stream]
    """One for each choice, and so are the answers."""
    answers: list[str]
    prompt_tokens: int
    writer: Writer

    def usage(self) -> Usage:
        emitted = sum(stream.handle.emitted for stream in self.streams)
        return Usage(self.prompt_tokens, emitted, self.streams[0].handle.cached_tokens)


class EngineServer:
    """Answers requests. `handle` is the aiohttp handler; `close` stops the engine's timer."""

    def __init__(self, config: ServerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.drivers = [EngineDriver(config.engine, loop, time.time, rank) for rank in range(config.ranks)]
        """One for each rank."""
        self.counts = RequestCounts()
        self.fault = NO_FAULT
        self.responses = Responses()
        self._stale_page = b""
        self._speaker = Speaker(config.engine.seed)
        self._ids = count(1)
        self._transports: set[asyncio.Transport] = set()
        self._routes: dict[tuple[str, str], Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            ("POST", "/v1/chat/completions"): self._generating(read_chat),
            ("POST", "/v1/completions"): self._generating(read_completion),
            ("POST", "/v1/responses"): self._generating(partial(read_response, responses=self.responses)),
            ("POST", "/v1/messages"): self._generating(read_message),
            ("POST", "/v1/messages/count_tokens"): self._count_tokens,
            ("POST", "/v1/embeddings"): partial(self._serve, self._embed),
            ("POST", "/generate"): self._generating(read_generate),
            ("POST", "/generate_stream"): self._generating(read_generate_stream),
            ("GET", "/v1/realtime"): partial(self._serve, self._converse),
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/admin/seen"): self._admin_counts,
            ("GET", "/admin/fault"): self._admin_fault,
            ("POST", "/admin/fault"): self._admin_set_fault,
            ("POST", "/admin/restart"): self._admin_restart,
            ("POST", "/admin/reset_cache"): self._admin_reset_cache,
        }

    @property
    def driver(self) -> EngineDriver:
        """The first rank, which stands for all of them: what happens to an engine happens to each."""
        return self.drivers[0]

    def close(self) -> None:
        """Stop."""
        self.responses.clear()
        for driver in self.drivers:
            driver.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path = request.path
        route = (
            self._stored_response if path.startswith(_RESPONSE) else self._routes.get((request.method, path))
        )
        address = own_address(request)
        if route is None or (path.startswith("/admin/") and not self._admits(request)):
            return error_response(404, "NotFoundError", f"no route {request.method} {path}", address)
        try:
            return await route(request)
        except BadRequestError as error:
            if path.startswith("/v1/messages"):
                return json_response(messages_error(error.message, error.status), address, error.status)
            return error_response(error.status, error.kind, error.message, address)

    def _generating(self, read: _Read) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        return partial(self._serve, partial(self._infer, read))

    async def _serve(self, answer: _Answer, request: web.BaseRequest) -> web.StreamResponse:
        address = own_address(request)
        counts = self.counts
        counts.arrive(request.headers.get(HEADER_ENDPOINT), address)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        self._transports.add(transport)
        try:
            if self.fault.kind == "reset":
                reset(transport)
                await until_gone()
            return await answer(request, address, counts)
        except BadRequestError:
            counts.refused += 1
            raise
        except DroppedError:
            counts.aborted += 1
            reset(transport)
            await until_gone()
        except ConnectionResetError:
            await until_gone()
        finally:
            self._transports.discard(transport)

    async def _infer(
        self, read: _Read, request: web.BaseRequest, address: str, counts: RequestCounts
    ) -> web.StreamResponse:
        body = await request.read()
        self._refuse_on_demand()
        call = read(body)
        self._check_model(call.model)
        await self.driver.thawed()
        work = self._start(call, request.headers.get("x-request-id"), self._rank(request))
        if call.background:
            return self._in_background(work, address, counts)
        return await self._answer(request, work, address, counts)

    async def _embed(
        self, request: web.BaseRequest, address: str, counts: RequestCounts
    ) -> web.StreamResponse:
        body = await request.read()
        self._refuse_on_demand()
        inputs = read_inputs(body)
        self._check_model(inputs.model)
        await self.driver.thawed()
        # An embedding ends with its prefill, when another request gets its first token.
        works = [
            self._start(Call("completion", None, each, 1, stream=False), None, self._rank())
            for each in inputs.prompts
        ]
        try:
            for work in works:
                await self._whole(work)
                _count(work, counts)
        finally:
            for work in works:
                self._release(work, counts)
        counts.finished += 1
        tokens = sum(work.prompt_tokens for work in works)
        return json_response(embeddings_json(inputs, self.config.model, tokens), address)

    async def _count_tokens(self, request: web.BaseRequest) -> web.StreamResponse:
        return json_response(read_count(await request.read()), own_address(request))

    async def _stored_response(self, request: web.BaseRequest) -> web.StreamResponse:
        response_id, _, verb = request.path.removeprefix(_RESPONSE).partition("/")
        match request.method, verb:
            case "GET", "":
                body = self.responses[response_id].body
            case "DELETE", "":
                body = self.responses.delete(response_id)
            case "POST", "cancel":
                body = self.responses.cancel(response_id)
            case _:
                raise BadRequestError(f"no route {request.method} {request.path}", 404, "NotFoundError")
        return json_response(body, own_address(request))

    async def _converse(
        self, request: web.BaseRequest, address: str, counts: RequestCounts
    ) -> web.StreamResponse:
        self._refuse_on_demand()
        await self.driver.thawed()
        socket = await open_socket(request, address)
        await converse(socket, partial(say, self._rank(), self._speaker, self.config.engine.block_tokens))
        counts.finished += 1
        return socket

    def _refuse_on_demand(self) -> None:
        if self.fault.kind == "status":
            raise BadRequestError("fault on demand", self.fault.code, "FaultOnDemand")

    def _check_model(self, model: str | None) -> None:
        if model is not None and model != self.config.model:
            raise BadRequestError(f"The model `{model}` does not exist.", 404, "NotFoundError")

    def _rank(self, request: web.BaseRequest | None = None) -> EngineDriver:
        """Return the rank that a request names, otherwise the one with the shortest queues, as in vLLM."""
        with suppress(ValueError):
            named = int("" if request is None else request.headers.get(HEADER_RANK, ""))
            if not 0 <= named < len(self.drivers):
                raise BadRequestError(f"data_parallel_rank {named} is out of range [0, {len(self.drivers)}).")
            return self.drivers[named]
        return min(self.drivers, key=lambda driver: 4 * driver.model.waiting + driver.model.running)

    def _start(self, call: Call, request_id: str | None, driver: EngineDriver) -> _Work:
        engine = self.config.engine
        prompt_tokens = count_tokens(call.prompt)
        check_length(prompt_tokens, call.max_tokens, engine.limit_tokens)
        answers = [
            self._speaker.answer(call.prompt + b"\n" * index, call.max_tokens)
            for index in range(call.choices)
        ]
        streams = [
            driver.submit(
                Request(
                    prompt_tokens,
                    call.max_tokens,
                    block_chain(call.prompt + answer.encode(), engine.block_tokens),
                )
            )
            for answer in answers
        ]
        # Unlike other ids, a stored response's has to be its own at every engine.
        own_id = uuid4().hex if call.store else f"{next(self._ids):08x}"
        request_id = own_id if call.store or not request_id else request_id
        writer = _WRITERS[call.form](call, request_id, self.config.model, int(time.time()))
        return _Work(call, driver, streams, answers, prompt_tokens, writer)

    async def _answer(
        self, request: web.BaseRequest, work: _Work, address: str, counts: RequestCounts
    ) -> web.StreamResponse:
        try:
            if work.call.stream:
                response = await self._stream(request, work, address)
            else:
                response = json_response(await self._whole(work), address)
        finally:
            self._release(work, counts)
        counts.finished += 1
        _count(work, counts)
        return response

    async def _whole(self, work: _Work) -> bytes:
        for stream in work.streams:
            while not stream.done:
                await stream.more()
        body = work.writer.full(work.answers, work.usage())
        self._store(work, body)
        return body

    def _in_background(self, work: _Work, address: str, counts: RequestCounts) -> web.StreamResponse:
        assert isinstance(work.writer, ResponseWriter)

        async def run() -> None:
            try:
                await self._whole(work)
                _count(work, counts)
            except DroppedError:
                counts.aborted += 1
            finally:
                self._release(work, counts)

        task = asyncio.create_task(run(), name="response in the background")
        begun = work.writer.begun()
        self.responses.keep(work.writer.id, Stored(begun, work.call.turns, background=True, task=task))
        counts.finished += 1
        return json_response(begun, address)

    def _store(self, work: _Work, body: bytes) -> None:
        if work.call.store:
            turns = (*work.call.turns, ("assistant", work.answers[0]))
            self.responses.keep(work.writer.id, Stored(body, turns, background=work.call.background))

    def _release(self, work: _Work, counts: RequestCounts) -> None:
        # As vLLM does, a request counts once, whatever its number of choices.
        cut_short = [work.driver.release(stream) for stream in work.streams]
        counts.aborted += any(cut_short)

    async def _stream(self, request: web.BaseRequest, work: _Work, address: str) -> web.StreamResponse:
        headers = {"content-type": "text/event-stream; charset=utf-8", HEADER_ENGINE: address}
        response = web.StreamResponse(headers=headers)
        # As vLLM does, the status goes out before there is a token.
        await response.prepare(request)
        if len(work.streams) == 1:
            end = await self._say(response, work, 0)
        else:
            end = "".join(
                await asyncio.gather(*(self._say(response, work, i) for i in range(len(work.streams))))
            )
        if work.call.store:
            # Before the client knows of the end, as it may then name the response.
            self._store(work, work.writer.full(work.answers, work.usage()))
        await response.write_eof((end + work.writer.last(work.usage())).encode())
        return response

    async def _say(self, response: web.StreamResponse, work: _Work, index: int) -> str:
        """Write a choice as its tokens come, and return its end."""
        stream, writer, answer = work.streams[index], work.writer, work.answers[index]
        opening = writer.first(index)
        sent = 0
        while True:
            end = sent + BYTES_PER_TOKEN * await stream.more()
            text = opening + writer.piece(index, answer[sent:end]) if end > sent else opening
            sent, opening = end, ""
            if stream.done:
                return text + writer.finish(index, answer)
            await response.write(text.encode())

    async def _models(self, request: web.BaseRequest) -> web.StreamResponse:
        card = models_json(self.config.model, int(self.driver.started_at), self.config.engine.limit_tokens)
        return json_response(card, own_address(request))

    async def _health(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(headers={HEADER_ENGINE: own_address(request)})

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        page = self._stale_page if self.driver.frozen else self._page()
        headers = {"content-type": METRICS_TYPE, HEADER_ENGINE: own_address(request)}
        return web.Response(body=page, headers=headers)

    def _page(self) -> bytes:
        pages = [driver.page(self.config.model) for driver in self.drivers]
        return pages[0] if len(pages) == 1 else page_of_ranks(pages)

    def _admits(self, request: web.BaseRequest) -> bool:
        return self.config.admin or is_loopback(request.remote)

    async def _admin_counts(self, request: web.BaseRequest) -> web.StreamResponse:
        address = own_address(request)
        return json_response(json.dumps({"address": address, **self.counts.as_dict()}).encode(), address)

    async def _admin_fault(self, request: web.BaseRequest) -> web.StreamResponse:
        return json_response(msgspec.json.encode(self.fault), own_address(request))

    async def _admin_set_fault(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            fault = read_fault(await request.read())
        except FaultError as error:
            raise BadRequestError(str(error)) from error
        self.set_fault(fault)
        return await self._admin_fault(request)

    def set_fault(self, fault: Fault) -> None:
        """Heal the fault in force and put `fault` in its place."""
        if fault.kind == "frozen" and not self.driver.frozen:
            self._stale_page = self._page()
        for driver in self.drivers:
            apply_fault(driver, fault)
        self.fault = fault
        if fault.kind == "reset":
            for transport in tuple(self._transports):
                reset(transport)
        logger.info("fault: %s", fault.kind)

    async def _admin_restart(self, request: web.BaseRequest) -> web.StreamResponse:
        self.set_fault(NO_FAULT)
        self.counts = RequestCounts()
        self.responses.clear()
        for driver in self.drivers:
            driver.restart()
        return await self._admin_counts(request)

    async def _admin_reset_cache(self, request: web.BaseRequest) -> web.StreamResponse:
        for driver in self.drivers:
            driver.reset_cache()
        return await self._admin_counts(request)


def _count(work: _Work, counts: RequestCounts) -> None:
    counts.prompt_tokens += work.prompt_tokens
    counts.cached_tokens += work.streams[0].handle.cached_tokens


@asynccontextmanager
async def listening(config: ServerConfig, host: str, port: int) -> AsyncIterator[tuple[EngineServer, str]]:
    """Listen while the context lasts; yields the server and the bound `host:port` (port 0: a free one)."""
    loop = asyncio.get_running_loop()
    server = EngineServer(config, loop)
    runner = web.ServerRunner(make_server(server.handle, loop), shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=BACKLOG_CONNECTIONS).start()
        bound = runner.addresses[0]
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        yield server, f"{shown}:{bound[1]}"
    finally:
        await runner.cleanup()
        server.close()
