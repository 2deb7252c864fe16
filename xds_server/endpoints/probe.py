"""Asking endpoints whether their model answers: one task an endpoint, until it is let in or ready again.

An endpoint that names models has to list one of them. One that does not tell (404, 405, 501) has to show the
metrics page of a known engine instead: any server answers 404. One that wants a key (401, 403) is taken for
what its address says.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from fleet.settings import LimitSettings
from xds_server.endpoints.gate import Verdict
from xds_server.http1.client import Client, FetchError
from xds_server.http1.turn import Portions, Turn
from xds_server.signals.scrape.auto import kind_of
from xds_server.signals.scrape.engines import ENGINES
from xds_server.signals.scrape.fetch import at_own_port
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.endpoint import Endpoint
    from fleet.settings import JoiningSettings
    from xds_server.tls.engine_tls import EngineTls

    Heard = Callable[[str, Verdict], bool]
    """Takes address and verdict; returns whether to go on probing."""

logger = logging.getLogger(__name__)

AT_ONCE: Final = 100
"""Probes at the same time; the others wait, and their time-out begins after the wait."""
_MAX_LIST_BYTES: Final = 1_048_576
_JITTER: Final = 0.2
_OK: Final = 200
_GUARDED: Final = frozenset((401, 403))
_SILENT: Final = frozenset((*_GUARDED, 404, 405, 501))
"""The server is up and does not tell: a key is wanted, or there is no such path."""
_NETWORK: Final = "look at the address and the network"
_NO_ENGINE: Final = "mend the address, or set pools.joining.probe for a server of another kind"
_PATHS: Final = {"models": "/v1/models", "health": "/health"}


class _Model(msgspec.Struct, gc=False):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_decoder: Final = msgspec.json.Decoder(_Models)


class Answer(NamedTuple):
    """What a probe came to, and for the log why: what was asked, what was answered, the next step."""

    verdict: Verdict
    text: str
    detail: str = ""
    """What follows the text and is the server's own: another one is no reason to log again."""


class Prober:
    """Probes those endpoints that `update` names."""

    def __init__(
        self,
        heard: Heard,
        jitter: Callable[[], float] = random.random,
        engine_tls: EngineTls = plaintext,
        page_bytes: int = LimitSettings().metrics_page_bytes,
    ) -> None:
        self._heard = heard
        self._page_bytes = page_bytes
        self._engine_tls = engine_tls
        self._jitter = jitter
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._turn = Turn(rest=1.0)
        self._starts = Portions[str](self._start, "probes to begin")
        self._wanted: Mapping[str, tuple[Endpoint, JoiningSettings]] = {}
        self._tasks: dict[str, tuple[Endpoint, JoiningSettings, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        # Connections are not kept: an engine that comes up may still change its process.
        self._client = Client({"Accept-Encoding": "identity", "User-Agent": "warmroute"}, keeps=False)
        self.refusals: dict[str, str] = {}
        """Why each endpoint that is probed is not let in, by its newest answer."""

    def update(self, wanted: Mapping[str, tuple[Endpoint, JoiningSettings]]) -> None:
        """Start and stop tasks; an endpoint or settings that differ start anew."""
        for address, (endpoint, joining, task) in list(self._tasks.items()):
            if wanted.get(address) != (endpoint, joining):
                del self._tasks[address]
                self.refusals.pop(address, None)
                self._end(task)
        self._wanted = wanted
        self._starts.clear()
        for address in wanted:
            if address not in self._tasks:
                self._starts.add(address)

    def _start(self, address: str) -> None:
        endpoint, joining = self._wanted[address]
        task = asyncio.create_task(self._follow(endpoint, joining), name=f"probe {address}")
        self._tasks[address] = (endpoint, joining, task)

    async def close(self) -> None:
        """Stop every task, and with it its connection."""
        self.update({})
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    async def _follow(self, endpoint: Endpoint, joining: JoiningSettings) -> None:
        told: set[str] = set()
        while True:
            async with self._at_once:
                await self._turn.take()
                answer = await self._probe(endpoint, joining)
            held_back = self._heard(endpoint.address, answer.verdict)
            _tell(endpoint.address, answer, told, held_back=held_back)
            if not held_back:
                self.refusals.pop(endpoint.address, None)
                self._tasks.pop(endpoint.address, None)
                return
            self.refusals[endpoint.address] = answer.text + answer.detail
            await asyncio.sleep(joining.probe_interval_seconds * (1.0 - _JITTER * self._jitter()))

    async def _probe(self, endpoint: Endpoint, joining: JoiningSettings) -> Answer:
        dial = self._engine_tls(endpoint.pool)
        scheme = "http" if dial is None else "https"
        url = f"{scheme}://{endpoint.address}{_PATHS[joining.probe]}"
        try:
            got, body = await self._client.get(
                url, joining.probe_timeout_seconds, _MAX_LIST_BYTES, dial, screened=endpoint.screened
            )
        except FetchError as error:
            return _unanswered(url, error)
        status = got.status
        answered = f"GET {url} was answered {status}"
        if status in _SILENT:
            return await self._silent(endpoint, joining, answered, guarded=status in _GUARDED)
        if status != _OK:
            return Answer(Verdict.NOT_READY, f"{answered}; its model may still be loading: see its log")
        if joining.probe == "health" or not endpoint.models:
            return Answer(Verdict.READY, answered)
        return _listed(body, endpoint, answered)

    async def _silent(
        self, endpoint: Endpoint, joining: JoiningSettings, answered: str, *, guarded: bool
    ) -> Answer:
        """Judge a server that does not tell: with a metrics page of a known kind it is an engine."""
        if guarded:
            return Answer(Verdict.SILENT, f"{answered}: it wants a key")
        verdict, page = await self._page(endpoint, joining.probe_timeout_seconds)
        if not page:
            return Answer(verdict, "")
        step = _NETWORK if verdict is Verdict.UNKNOWN else _NO_ENGINE
        return Answer(verdict if endpoint.models else Verdict.SILENT, f"{answered}, and {page}; {step}")

    async def _page(self, endpoint: Endpoint, timeout_seconds: float) -> tuple[Verdict, str]:
        """Judge its metrics page, and return why; empty: it is that of a known engine.

        Only a page that was read and no engine's, or the server's word that it has none, is a no.
        """
        own = at_own_port(endpoint)
        dial = self._engine_tls(endpoint.pool) if own else None
        asked = "its metrics page" if own else "its page at pools.endpoints.metrics_url"
        try:
            got, page = await self._client.get(
                endpoint.metrics_url, timeout_seconds, self._page_bytes, dial, screened=endpoint.screened
            )
        except FetchError as error:
            return Verdict.UNKNOWN, f"{asked} was not to be had ({error.detail})"
        if got.status != _OK:
            none = own and got.status in _SILENT - _GUARDED
            return Verdict.NOT_READY if none else Verdict.UNKNOWN, f"{asked} was answered {got.status}"
        if kind_of(ENGINES, page):
            return Verdict.SILENT, ""
        return Verdict.NOT_READY, f"{asked} is no known engine's"


def _tell(address: str, answer: Answer, told: set[str], *, held_back: bool) -> None:
    """Log each reason once, and the end."""
    if held_back:
        if answer.verdict is not Verdict.SILENT and answer.text not in told:
            # A doubted engine whose probe says nothing is served all the same.
            what = "is not ready" if answer.verdict is Verdict.NOT_READY else "has not answered its probe"
            logger.warning("%s %s: %s%s", address, what, answer.text, answer.detail)
            told.add(answer.text)
    elif answer.verdict is Verdict.SILENT and answer.text:
        logger.warning("%s passes its probe without showing a model: %s", address, answer.text)
    elif told:
        logger.info("%s is ready", address)


def _unanswered(url: str, error: FetchError) -> Answer:
    if error.kind == "refused":
        step = "start the engine, or mend its address"
        return Answer(Verdict.NOT_READY, f"GET {url}: {error.detail}; {step}")
    if error.kind == "too_large":
        return Answer(Verdict.NOT_READY, f"GET {url} was answered with {error.detail}; {_NO_ENGINE}")
    if error.kind == "connect":
        verdict = Verdict.NO_CONNECTION if error.unconnected or error.no_route else Verdict.UNKNOWN
        return Answer(verdict, f"GET {url}: {error.detail}; {_NETWORK}")
    return Answer(Verdict.UNKNOWN, f"GET {url}: no whole answer ({error.detail})")


def _listed(body: bytes, endpoint: Endpoint, answered: str) -> Answer:
    try:
        listed = [model.id for model in _decoder.decode(body).data]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Answer(Verdict.NOT_READY, f"{answered}, and that is no list of models; {_NO_ENGINE}")
    if not set(listed).isdisjoint(endpoint.models):
        return Answer(Verdict.READY, answered)
    ours, theirs = (", ".join(ascii(name[:100]) for name in names[:3]) for names in (endpoint.models, listed))
    text = f"{answered}, and lists no model of {ours}; mend pools.models or the address"
    return Answer(Verdict.NOT_READY, text, f"; it lists {theirs or 'none'}")
