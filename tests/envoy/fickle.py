"""Engines whose state a test sets: well, loading, failing, without any page, or not to be connected to."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from typing import TYPE_CHECKING, Literal, Self

from aiohttp import web

if TYPE_CHECKING:
    from types import TracebackType

State = Literal["well", "loading", "failing", "stranger"]
"""`loading` answers 503 to everything, `failing` to clients; `stranger` answers 404 to all but clients."""


class Fickle:
    """One engine of vLLM's kind that serves the model `m`."""

    def __init__(self, state: State = "well") -> None:
        self.state: State = state
        self.clients: Counter[int] = Counter()
        """Answers to clients, by status."""
        self.address = ""
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = "{}:{}".format(*self._runner.addresses[0])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def vanish(self) -> Deaf:
        """Stop, and leave a port behind that gives no connection."""
        await self._runner.cleanup()
        return Deaf(int(self.address.rpartition(":")[2]))

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        await request.read()
        if request.method == "POST":
            status = 503 if self.state in {"loading", "failing"} else 200
            self.clients[status] += 1
            return web.json_response({}, status=status)
        if self.state == "loading":
            return web.Response(status=503)
        if self.state == "stranger":
            return web.Response(status=404)
        if request.path == "/metrics":
            running, waiting = "vllm:num_requests_running 0", "vllm:num_requests_waiting 0"
            return web.Response(text=f"{running}\n{waiting}\nvllm:kv_cache_usage_perc 0.1\n")
        return web.json_response({"data": [{"id": "m"}]})


class Deaf:
    """A port on which connections are asked for and never made, as of an address that drops packets.

    Its queue of connections is full and nobody takes them, so the kernel drops whoever else asks.
    """

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(0)
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._waiting: list[socket.socket] = []

    def fill(self) -> Self:
        """Ask for more connections than its queue takes; the kernel makes those at once that fit."""
        for _ in range(4):
            asking = socket.socket()
            asking.setblocking(False)
            self._waiting.append(asking)
            asking.connect_ex(self._listener.getsockname())
        return self

    def close(self) -> None:
        for held in (*self._waiting, self._listener):
            with contextlib.suppress(OSError):
                held.close()
