"""Streams readings to xds_server: the newest one after each response. A broken stream is opened again."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

import grpc

from fleet.gpu.codec import encode_report
from fleet.service.credentials import Dialler
from fleet.service.stream_errors import describe, explain
from fleet.wire import gpu_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmroute.gpu_agent.metrics import AgentMetrics
    from warmroute.gpu_agent.sampler import Sampler

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS: Final = 0.2
MAX_BACKOFF_SECONDS: Final = 5.0
_TLS: Final = {
    "options": "--control-ca, --control-certificate and --control-key",
    "authority": "--control-ca",
    "name": "--control-name",
}
FAILURES_BEFORE_LOG: Final = 5
"""Failed streams in a row, some seconds, until the log reports it."""
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
        self._address = address
        self._dialler = dialler or Dialler(address)
        self._node = node
        self._sampler = sampler
        self._metrics = metrics
        self._clock = clock
        self._failures = 0
        """Streams in a row without an accepted report."""
        self._answer_seconds = answer_seconds

    async def run(self) -> None:
        """Report until cancelled."""
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            async with self._dialler.open() as channel:
                stub = gpu_pb2_grpc.GpuReportsStub(channel)
                while not self._dialler.stale:
                    accepted = await self._stream(stub)
                    self._metrics.connected.set(0)
                    self._metrics.breaks.inc()
                    backoff = FIRST_BACKOFF_SECONDS if accepted else min(2 * backoff, MAX_BACKOFF_SECONDS)
                    await asyncio.sleep(backoff * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret

    async def _stream(self, stub: gpu_pb2_grpc.GpuReportsStub) -> bool:
        """Report on one stream until its end; return whether any report was accepted."""
        accepted, newest = False, None
        call = stub.Report()
        try:
            while True:
                newest = await self._sampler.newer(newest)
                async with asyncio.timeout(self._answer_seconds):
                    await call.write(encode_report(self._node, newest, self._clock()))
                    if await call.read() is grpc.aio.EOF:
                        return accepted
                if not accepted:
                    logger.info("xds_server at %s takes reports of %s", self._address, self._node)
                    self._metrics.connected.set(1)
                accepted = True
                self._metrics.reports.inc()
        except grpc.aio.AioRpcError as error:
            self._broken(error, accepted=accepted)
        except (asyncio.InvalidStateError, TimeoutError) as error:
            # InvalidStateError: the call ended between two of its operations.
            self._broken(error, accepted=accepted)
        finally:
            call.cancel()
        return accepted

    def _broken(self, error: BaseException, *, accepted: bool) -> None:
        """Log the end of a stream; of failed ones, only the `FAILURES_BEFORE_LOG`th in a row."""
        self._failures = 0 if accepted else self._failures + 1
        if accepted:
            logger.warning("reports to xds_server at %s broke (%s)", self._address, describe(error))
        elif self._failures == FAILURES_BEFORE_LOG:
            at = f"--control {self._address}"
            logger.warning("%s", explain(error, at, tls=self._dialler.speaks_tls, **_TLS))
