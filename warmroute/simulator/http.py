"""The engine as an HTTP server that speaks as vLLM does, over the engine model in real time.

    POST /v1/chat/completions   POST /v1/completions   GET /v1/models   GET /health   GET /metrics
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
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from fleet.names import HEADER_ENDPOINT
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
from warmroute.simulator.model import EngineConfig, Request
from warmroute.simulator.protocol import (
    BadRequestError,
    Call,
    Writer,
    check_length,
    models_json,
    read_call,
    usage_json,
)
from warmroute.simulator.realtime import converse, open_socket, say
from warmroute.simulator.tokens import BYTES_PER_TOKEN, Speaker, block_chain, count_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    _Answer = Callable[[web.BaseRequest, str, RequestCounts], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What the server adds to the engine."""

    engine: EngineConfig
    model: str = "warm-model"
    admin: bool = False
    """Whether admin routes answer peers that are not on loopback."""


@dataclass(frozen=True, slots=True)
class _Work:
    call: Call
    stream: Stream
    answer: str
    prompt_tokens: int
    writer: Writer

    def usage(self) -> str:
        handle = self.stream.handle
        return usage_json(self.prompt_tokens, handle.emitted, handle.cached_tokens)


class EngineServer:
    """Answers requests. `handle` is the aiohttp handler; `close` stops the engine's timer."""

    def __init__(self, config: ServerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.driver = EngineDriver(config.engine, loop, time.time)
        self.counts = RequestCounts()
        self.fault = NO_FAULT
        self._stale_page = b""
        self._speaker = Speaker(config.engine.seed)
        self._ids = count(1)
        self._transports: set[asyncio.Transport] = set()
        self._routes: dict[tuple[str, str], Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {
            ("POST", "/v1/chat/completions"): partial(self._serve, partial(self._infer, chat=True)),
            ("POST", "/v1/completions"): partial(self._serve, partial(self._infer, chat=False)),
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

    def close(self) -> None:
        """Stop."""
        self.driver.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path = request.path
        route = self._routes.get((request.method, path))
        address = own_address(request)
        if route is None or (path.startswith("/admin/") and not self._admits(request)):
            return error_response(404, "NotFoundError", f"no route {request.method} {path}", address)
        try:
            return await route(request)
        except BadRequestError as error:
            return error_response(error.status, error.kind, error.message, address)

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
        self, request: web.BaseRequest, address: str, counts: RequestCounts, *, chat: bool
    ) -> web.StreamResponse:
        body = await request.read()
        call = self._read(body, chat=chat)
        await self.driver.thawed()
        return await self._answer(request, self._start(call, request), address, counts)

    async def _converse(
        self, request: web.BaseRequest, address: str, counts: RequestCounts
    ) -> web.StreamResponse:
        self._refuse_on_demand()
        await self.driver.thawed()
        socket = await open_socket(request, address)
        await converse(socket, partial(say, self.driver, self._speaker, self.config.engine.block_tokens))
        counts.finished += 1
        return socket

    def _refuse_on_demand(self) -> None:
        if self.fault.kind == "status":
            raise BadRequestError("fault on demand", self.fault.code, "FaultOnDemand")

    def _read(self, body: bytes, *, chat: bool) -> Call:
        self._refuse_on_demand()
        call = read_call(body, chat=chat)
        if call.model is not None and call.model != self.config.model:
            raise BadRequestError(f"The model `{call.model}` does not exist.", 404, "NotFoundError")
        return call

    def _start(self, call: Call, request: web.BaseRequest) -> _Work:
        engine = self.config.engine
        prompt_tokens = count_tokens(call.prompt)
        check_length(prompt_tokens, call.max_tokens, engine.limit_tokens)
        answer = self._speaker.answer(call.prompt, call.max_tokens)
        chain = block_chain(call.prompt + answer.encode(), engine.block_tokens)
        stream = self.driver.submit(Request(prompt_tokens, call.max_tokens, chain))
        request_id = request.headers.get("x-request-id") or f"{next(self._ids):08x}"
        writer = Writer(call, request_id, self.config.model, int(time.time()))
        return _Work(call, stream, answer, prompt_tokens, writer)

    async def _answer(
        self, request: web.BaseRequest, work: _Work, address: str, counts: RequestCounts
    ) -> web.StreamResponse:
        try:
            if work.call.stream:
                response = await self._stream(request, work, address)
            else:
                while not work.stream.done:
                    await work.stream.more()
                body = work.writer.full(work.answer, work.usage())
                response = json_response(body, address)
        finally:
            if self.driver.release(work.stream):
                counts.aborted += 1
        counts.finished += 1
        counts.prompt_tokens += work.prompt_tokens
        counts.cached_tokens += work.stream.handle.cached_tokens
        return response

    async def _stream(self, request: web.BaseRequest, work: _Work, address: str) -> web.StreamResponse:
        headers = {"content-type": "text/event-stream; charset=utf-8", HEADER_ENGINE: address}
        response = web.StreamResponse(headers=headers)
        # As vLLM does, the status goes out before there is a token.
        await response.prepare(request)
        stream, writer, answer = work.stream, work.writer, work.answer
        opening = writer.first()
        sent = 0
        while True:
            end = sent + BYTES_PER_TOKEN * await stream.more()
            text = opening + writer.piece(answer[sent:end]) if end > sent else opening
            sent, opening = end, ""
            if stream.done:
                usage = work.usage() if work.call.include_usage else None
                await response.write_eof((text + writer.last(usage)).encode())
                return response
            await response.write(text.encode())

    async def _models(self, request: web.BaseRequest) -> web.StreamResponse:
        card = models_json(self.config.model, int(self.driver.started_at), self.config.engine.limit_tokens)
        return json_response(card, own_address(request))

    async def _health(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(headers={HEADER_ENGINE: own_address(request)})

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        page = self._stale_page if self.driver.frozen else self.driver.page(self.config.model)
        headers = {"content-type": METRICS_TYPE, HEADER_ENGINE: own_address(request)}
        return web.Response(body=page, headers=headers)

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
            self._stale_page = self.driver.page(self.config.model)
        apply_fault(self.driver, fault)
        self.fault = fault
        if fault.kind == "reset":
            for transport in tuple(self._transports):
                reset(transport)
        logger.info("fault: %s", fault.kind)

    async def _admin_restart(self, request: web.BaseRequest) -> web.StreamResponse:
        self.set_fault(NO_FAULT)
        self.counts = RequestCounts()
        self.driver.restart()
        return await self._admin_counts(request)

    async def _admin_reset_cache(self, request: web.BaseRequest) -> web.StreamResponse:
        self.driver.reset_cache()
        return await self._admin_counts(request)


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
