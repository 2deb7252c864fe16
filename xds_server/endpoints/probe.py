"""Asking new endpoints whether their model answers: one task an endpoint, only until it is let in."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from xds_server.endpoints.gate import Verdict
from xds_server.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.endpoint import Endpoint
    from fleet.settings import JoiningSettings
    from xds_server.engine_tls import EngineTls

    Heard = Callable[[str, Verdict], bool]
    """Takes address and verdict; returns whether to go on probing."""

logger = logging.getLogger(__name__)

AT_ONCE: Final = 100
"""Probes at the same time; the others wait, and their time-out begins after the wait."""
_MAX_BYTES: Final = 1_048_576
_JITTER: Final = 0.2
_OK: Final = 200
_SILENT: Final = frozenset((401, 403, 404, 405, 501))
"""The server is up and does not tell: a key is wanted, or there is no such path."""
_PATHS: Final = {"models": "/v1/models", "health": "/health"}


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_decoder: Final = msgspec.json.Decoder(_Models)


class Prober:
    """Probes those endpoints that `update` names."""

    def __init__(
        self,
        heard: Heard,
        jitter: Callable[[], float] = random.random,
        engine_tls: EngineTls = plaintext,
    ) -> None:
        self._heard = heard
        self._engine_tls = engine_tls
        self._jitter = jitter
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, tuple[Endpoint, JoiningSettings, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    def update(self, wanted: Mapping[str, tuple[Endpoint, JoiningSettings]]) -> None:
        """Start and stop tasks; an endpoint or settings that differ start anew."""
        for address, (endpoint, joining, task) in list(self._tasks.items()):
            if wanted.get(address) != (endpoint, joining):
                del self._tasks[address]
                self._end(task)
        for address, (endpoint, joining) in wanted.items():
            if address not in self._tasks:
                task = asyncio.create_task(self._follow(endpoint, joining), name=f"probe {address}")
                self._tasks[address] = (endpoint, joining, task)

    async def close(self) -> None:
        """Stop every task and close every connection."""
        self.update({})
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _end(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    async def _follow(self, endpoint: Endpoint, joining: JoiningSettings) -> None:
        while True:
            async with self._at_once:
                verdict = await self._probe(endpoint, joining)
            if not self._heard(endpoint.address, verdict):
                self._tasks.pop(endpoint.address, None)
                return
            await asyncio.sleep(joining.probe_interval_seconds * (1.0 - _JITTER * self._jitter()))

    async def _probe(self, endpoint: Endpoint, joining: JoiningSettings) -> Verdict:
        if self._session is None:
            # Connections are not kept: an engine that comes up may still change its process.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=AT_ONCE, force_close=True),
                headers={"Accept-Encoding": "identity"},
            )
        dial = self._engine_tls(endpoint.pool)
        scheme = "http" if dial is None else "https"
        try:
            async with (
                asyncio.timeout(joining.probe_timeout_seconds),
                self._session.get(
                    f"{scheme}://{endpoint.address}{_PATHS[joining.probe]}",
                    allow_redirects=False,
                    ssl=True if dial is None else dial.context,
                    server_hostname=None if dial is None else dial.server_name,
                ) as response,
            ):
                if response.status in _SILENT:
                    return Verdict.SILENT
                if response.status != _OK:
                    return Verdict.NOT_READY
                if joining.probe == "health" or not endpoint.models:
                    return Verdict.READY
                return _lists(await _read(response), endpoint)
        except aiohttp.ClientConnectorError as error:
            refused = isinstance(error.os_error, ConnectionRefusedError)
            return Verdict.NOT_READY if refused else Verdict.UNKNOWN
        except (TimeoutError, aiohttp.ClientError, OSError):
            return Verdict.UNKNOWN


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """At most the bound: what is longer is cut and then no list of models."""
    body = b""
    async for piece in response.content.iter_chunked(65_536):
        body += piece
        if len(body) > _MAX_BYTES:
            break
    return body


def _lists(body: bytes, endpoint: Endpoint) -> Verdict:
    try:
        listed = {model.id for model in _decoder.decode(body).data}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Verdict.NOT_READY
    if listed.isdisjoint(endpoint.models):
        logger.debug("%s lists none of its models", endpoint.address)
        return Verdict.NOT_READY
    return Verdict.READY
