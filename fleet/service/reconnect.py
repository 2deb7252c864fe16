"""Keeps a stream to xds_server open: back-off with jitter, and a log of its ends. Shared by its clients."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc

from fleet.errors import PeerError
from fleet.service.stream_errors import describe, explain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prometheus_client import Counter, Gauge

    from fleet.service.credentials import Dialler

logger = logging.getLogger(__name__)

FAILURES_BEFORE_LOG: Final = 5
"""Failed streams in a row, some seconds, until the log reports it: an xds_server that starts with this
process is there by then."""


class Options(NamedTuple):
    """The settings or options of a client, as its operator knows them."""

    address: str
    tls: str
    authority: str
    server_name: str


class Reconnector:
    """Opens a stream again whenever it ends."""

    def __init__(
        self,
        dialler: Dialler,
        options: Options,
        backoff_seconds: tuple[float, float],
        connected: Gauge,
        breaks: Counter,
    ) -> None:
        """`backoff_seconds` are the first and the longest pause. `connected` is 1 while a stream works."""
        self.dialler = dialler
        self._options = options
        self._first_seconds, self._most_seconds = backoff_seconds
        self._connected = connected
        self._breaks = breaks
        self._works = False
        self._failures = 0
        """Streams in a row that did not work."""

    async def run(self, stream: Callable[[grpc.aio.Channel], Awaitable[None]]) -> None:
        """Run `stream` until cancelled. It calls `works` once the server has answered."""
        pause = self._first_seconds
        while True:
            async with self.dialler.open() as channel:
                while not self.dialler.stale:
                    self._works = False
                    await self._run_once(stream, channel)
                    self._connected.set(0)
                    self._breaks.inc()
                    pause = self._first_seconds if self._works else min(2 * pause, self._most_seconds)
                    await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret

    def works(self) -> None:
        """Note that the stream works: the next pause is short, and the next failure is logged."""
        if not self._works:
            logger.info("%s: xds_server at %s answers", self._options.address, self.dialler.address)
            self._connected.set(1)
        self._works, self._failures = True, 0

    async def _run_once(
        self, stream: Callable[[grpc.aio.Channel], Awaitable[None]], channel: grpc.aio.Channel
    ) -> None:
        try:
            await stream(channel)
        except PeerError as error:
            logger.warning("xds_server at %s: %s", self.dialler.address, error)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError) as error:
            # InvalidStateError: the call ended between two of its operations.
            self._log(error)

    def _log(self, error: Exception) -> None:
        """Log the end of a stream; of failed ones, only the `FAILURES_BEFORE_LOG`th in a row."""
        if self._works:
            logger.warning(
                "stream to xds_server at %s broke (%s), and is opened again",
                self.dialler.address,
                describe(error),
            )
            return
        self._failures += 1
        if self._failures == FAILURES_BEFORE_LOG:
            at = f"{self._options.address} {self.dialler.address}"
            _, options, authority, name = self._options
            tls = self.dialler.speaks_tls
            logger.warning("%s", explain(error, at, tls=tls, options=options, authority=authority, name=name))
