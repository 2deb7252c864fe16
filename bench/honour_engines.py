"""Engines that only count: which cluster sent them how many requests."""

from __future__ import annotations

from collections import Counter

from aiohttp import web

from bench.honour_envoy import HEADER


class Engines:
    """Some engines that count what arrives, by cluster."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.addresses: list[str] = []
        self.served_by_cluster: dict[str, Counter[str]] = {}
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        """Listen on ports of the system's choice."""
        for _ in range(self._count):
            app = web.Application()
            app.router.add_get("/{path:.*}", self._answer)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            self._runners.append(runner)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.addresses.append(f"{host}:{port}")

    async def stop(self) -> None:
        """Stop listening."""
        for runner in self._runners:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        host, port = request.transport.get_extra_info("sockname")[:2]
        self.served_by_cluster.setdefault(request.headers[HEADER], Counter())[f"{host}:{port}"] += 1
        return web.Response(text="ok")
