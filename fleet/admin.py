"""The admin HTTP server: health, readiness, /metrics and each service's status as JSON."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)


class AdminServer:
    """Serves read-only status on one TCP address; the empty address serves nothing."""

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        ready: Callable[[], bool],
        views: Mapping[str, Callable[[], Any]],
    ) -> None:
        self._address = address
        self._registry = registry
        self._ready = ready
        self._runner = web.AppRunner(
            self._application(views), access_log=None, handle_signals=False, shutdown_timeout=1.0
        )

    def _application(self, views: Mapping[str, Callable[[], Any]]) -> web.Application:
        application = web.Application()
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        for path, view in views.items():
            application.router.add_get(path, _json_handler(view))
        paths = "\n".join(["/healthz", "/readyz", "/metrics", *sorted(views), ""])
        application.router.add_get("/", _text_handler(paths))
        return application

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            OSError: the address cannot be bound.
        """
        if not self._address:
            return
        host, port = split_host_port(self._address)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        logger.info("admin listens on %s", self._address)

    async def stop(self) -> None:
        """Close the listener and its connections."""
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        ready = self._ready()
        return web.Response(text="ready\n" if ready else "not ready\n", status=200 if ready else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST}
        )


def _text_handler(text: str) -> Callable[[web.Request], Any]:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(text=text)

    return handle


def _json_handler(view: Callable[[], Any]) -> Callable[[web.Request], Any]:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(view()), content_type="application/json")

    return handle
