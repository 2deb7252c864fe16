"""Engines that answer only for what they have, behind the site, and a client in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from tests.envoy.conftest import eventually
from tests.envoy.site import site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.envoy.site import Site

PAGE: Final = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.1\n"


class Storing:
    """Engines that answer only for what they have made themselves."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.made: dict[str, str] = {}
        """Name to the engine that has made it."""
        self.models: dict[str, dict[str, str]] = {"m": {}}
        """What they list: name to further members."""
        self.images: dict[str, set[str]] = {}
        """Image to the engines that have it."""
        self.release = asyncio.Event()
        self._runner = web.AppRunner(self._app(), access_log=None)

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/metrics", self._page)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/messages", self._chat)
        app.router.add_route("*", "/v1/{kind}", self._make)
        app.router.add_route("*", "/v1/{kind}/{name}{tail:.*}", self._show)
        return app

    async def start(self, count: int) -> None:
        await self._runner.setup()
        for _ in range(count):
            bound = socket.socket()
            bound.bind(("127.0.0.1", 0))
            await web.SockSite(self._runner, bound).start()
            self.addresses.append(f"127.0.0.1:{bound.getsockname()[1]}")

    async def stop(self) -> None:
        self.release.set()
        await self._runner.cleanup()

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE)

    def _here(self, request: web.Request) -> str:
        assert request.transport is not None
        return f"127.0.0.1:{request.transport.get_extra_info('sockname')[1]}"

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name, **more} for name, more in self.models.items()]})

    async def _chat(self, request: web.Request) -> web.Response:
        """Take images, and refuse the name of one that this engine has not."""
        here, body = self._here(request), await request.json()
        for message in body["messages"]:
            for part in message["content"] if isinstance(message["content"], list) else ():
                if part["type"] != "image_url":
                    continue
                if part["image_url"] is None and here not in self.images.get(part["uuid"], ()):
                    return web.json_response({"error": "no such image here"}, status=400)
                self.images.setdefault(part["uuid"], set()).add(here)
        return web.json_response({"served": here})

    async def _make(self, request: web.Request) -> web.StreamResponse:
        here, text = self._here(request), await request.text()
        body = json.loads(text) if request.content_type == "application/json" else {}
        named = [body.get("previous_response_id"), body.get("conversation"), body.get("input_file_id")]
        named += [part["file_id"] for part in body.get("parts", ())]
        if any(self.made.get(name) != here for name in named if name):
            return web.json_response({"error": "not here"}, status=404)
        name = f"{request.match_info['kind'][:4]}_{len(self.made)}"
        self.made[name] = here
        if not body.get("stream"):
            return web.json_response({"id": name, "object": "x", "served": here})
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        begun = {"response": {"id": name, "output": []}, "type": "response.created", "sequence_number": 0}
        await answer.write(f"event: response.created\ndata: {json.dumps(begun)}\n\n".encode())
        await self.release.wait()
        for number in range(200):
            await answer.write(f"data: {number} {'x' * 4000}\n\n".encode())
        await answer.write_eof()
        return answer

    async def _show(self, request: web.Request) -> web.Response:
        here, name = self._here(request), request.match_info["name"]
        return web.json_response({"id": name}, status=200 if self.made.get(name) == here else 404)


class Door:
    """The site with its engines, as a client sees it."""

    def __init__(self, site: Site, engines: Storing) -> None:
        self.site, self.engines = site, engines
        self.url = f"http://{site.addresses['chat']}"

    async def call(self, method: str, path: str, body: object = None, **more: Any) -> tuple[int, Any]:
        options = more if body is None else {"json": body, **more}
        async with self.site.client.request(method, self.url + path, **options) as response:
            text = await response.text()
            headers = response.headers
            self.reason, self.served = headers.get("x-warmroute-reason", ""), headers["x-warmroute-served"]
            self.matched = float(headers.get("x-warmroute-matched") or 0)
            return response.status, json.loads(text) if response.content_type == "application/json" else text

    async def makes(self, path: str, body: object = None, **more: Any) -> str:
        status, made = await self.call("POST", path, body, **more)
        assert status == 200
        name = str(made["id"])
        await self.knows()
        return name

    async def knows(self) -> None:
        """Wait until all answers so far have been looked at."""
        await eventually(lambda: len(self.places) == len(self.engines.made), "names are known")

    @property
    def places(self) -> Any:
        return self.site.ext_proc._director.places


@contextlib.asynccontextmanager
async def behind(
    directory: Path, engines: Storing, ext_proc: dict[str, Any] | None = None, **of_pools: Any
) -> AsyncIterator[Door]:
    """Start engines and site, and wait until picks are made."""
    await engines.start(4)
    try:
        pools = {"chat": ("http1", engines.addresses)}
        async with site(directory, pools, ext_proc=ext_proc, **of_pools) as made:
            await eventually(lambda: made.ext_proc.ready, "ready")
            yield Door(made, engines)
    finally:
        await engines.stop()
