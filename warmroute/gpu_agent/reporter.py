"""Streams readings to xds_server: the newest one after each response. A broken stream is opened again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc

from fleet.gpu.codec import encode_report
from fleet.service.credentials import Dialler
from fleet.service.reconnect import Options, Reconnector
from fleet.wire import gpu_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmroute.gpu_agent.metrics import AgentMetrics
    from warmroute.gpu_agent.sampler import Sampler

FIRST_BACKOFF_SECONDS: Final = 0.2
MAX_BACKOFF_SECONDS: Final = 5.0
_OPTIONS: Final = Options(
    address="--control",
    tls="--control-ca, --control-certificate and --control-key",
    authority="--control-ca",
    server_name="--control-name",
)
ANSWER_SECONDS: Final = 10.0
"""Limit for the response to a report."""


class Reporter:
    """Reports to one xds_server. At most one report is in flight."""

    def __init__(
        self,
        address: str,
        node: str,
        sampler: Sampler,
        metrics: AgentMetrics,
        clock: Callable[[], float],
        answer_seconds: float = ANSWER_SECONDS,
        dialler: Dialler | None = None,
    ) -> None:
        self._reconnector = Reconnector(
            dialler or Dialler(address),
            _OPTIONS,
            (FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS),
            metrics.connected,
            metrics.breaks,
        )
        self._node = node
        self._sampler = sampler
        self._metrics = metrics
        self._clock = clock
        self._answer_seconds = answer_seconds

    async def run(self) -> None:
        """Report until cancelled."""
        await self._reconnector.run(self._stream)

    async def _stream(self, channel: grpc.aio.Channel) -> None:
        """Report on one stream until its end."""
        newest = None
        call = gpu_pb2_grpc.GpuReportsStub(channel).Report()
        try:
            while True:
                newest = await self._sampler.newer(newest)
                async with asyncio.timeout(self._answer_seconds):
                    await call.write(encode_report(self._node, newest, self._clock()))
                    if await call.read() is grpc.aio.EOF:
                        return
                self._reconnector.works()
                self._metrics.reports.inc()
        finally:
            call.cancel()
