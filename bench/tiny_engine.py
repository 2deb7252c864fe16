"""An engine with only a metrics page, which changes at a chosen moment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_BUCKETS: Final = (("0.1", 0.5), ("0.5", 0.9), ("1.0", 0.995), ("+Inf", 1.0))
"""Bound of a time to first token, and the share of requests up to it."""


class TinyEngine:
    """vLLM's page with a gauge that can be set; its counters run on at a constant rate, 0 for a still page.

    An async context manager; it listens on a loopback port of the system's choice.
    """

    def __init__(
        self,
        memory_used_ratio: float,
        requests_per_second: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memory_used_ratio = memory_used_ratio
        self._requests_per_second = requests_per_second
        self.address = ""
        self._clock = clock
        self._started = clock()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        """Listen."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        assert self._runner is not None
        await self._runner.cleanup()

    def page(self) -> str:
        """Return the page of this moment."""
        requests = int((self._clock() - self._started) * self._requests_per_second)
        lines = [
            f"vllm:kv_cache_usage_perc {self.memory_used_ratio:.6f}",
            "vllm:num_requests_waiting 2",
            "vllm:num_requests_running 4",
            *(
                f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} {int(requests * share)}'
                for bound, share in _BUCKETS
            ),
        ]
        return "\n".join(lines) + "\n"

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self.page())
