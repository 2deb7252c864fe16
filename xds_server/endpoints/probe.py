"""Probes that test whether endpoints serve their model: one task per endpoint, until it is admitted or ready.

An endpoint that names models has to list one of them. If its server does not have such a list (404, 405,
501), it has to show the metrics page of a supported engine instead, since any server answers 404. A server
that wants a key (401, 403) passes.

SGLang lists its model before it serves, and answers 503 at `/health` until then. So a server that lists its
model has to give no 5xx answer there either; it may have no such path.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fleet.service.turns import Turns
from fleet.settings import LimitSettings
from xds_server.endpoints.gate import ProbeResult
from xds_server.endpoints.model_list import MOST_LIST_BYTES, PATH, models_of
from xds_server.http1.client import FetchError
from xds_server.signals.scrape.engines import tables_of
from xds_server.signals.scrape.places import at_own_port, usual_places

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from fleet.endpoint import Endpoint
    from fleet.settings import JoiningSettings
    from xds_server.endpoints.engine_client import EngineClient
    from xds_server.endpoints.model_list import ListedModel

    OnProbe = Callable[[str, ProbeResult], bool]
    """Takes address and result; returns whether to go on probing."""

logger = logging.getLogger(__name__)

AT_ONCE: Final = 100
"""Probes in flight; the others wait, and their time-out begins after the wait."""
_STARTS: Final = 16
"""Tasks that one pass of the loop starts."""
_JITTER: Final = 0.2
_OK: Final = 200
_SERVER_ERROR: Final = 500
_LOADING: Final = "its model may still be loading: see its log"
_GUARDED: Final = frozenset((401, 403))
_SILENT: Final = frozenset((*_GUARDED, 404, 405, 501))
"""The server is up and shows nothing about its models: it wants a key, or has no such path."""
_NETWORK: Final = "look at the address and the network"
_NO_ENGINE: Final = "mend the address, or set pools.joining.probe for a server of another kind"
_PATHS: Final = {"models": PATH, "health": "/health"}


class ProbeAnswer(NamedTuple):
    """A probe's result, and the reason for the log: request, answer and next step."""

    result: ProbeResult
    text: str
    detail: str = ""
    """The server's own words after the text: a change of these alone is not logged again."""


class Prober:
    """Probes the endpoints that `update` names."""

    def __init__(
        self,
        on_probe: OnProbe,
        engines: EngineClient,
        jitter: Callable[[], float] = random.random,
        page_bytes: int = LimitSettings().metrics_page_bytes,
    ) -> None:
        self._on_probe = on_probe
        self._page_bytes = page_bytes
        self._engines = engines
        self._jitter = jitter
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._turns = Turns(rest=1.0)
        self._starter: asyncio.Task[None] | None = None
        self._unstarted: dict[str, tuple[Endpoint, JoiningSettings]] = {}
        """Targets without a task, by address."""
        self._tasks: dict[str, tuple[Endpoint, JoiningSettings, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[Any]] = set()
        self.own_names: dict[str, tuple[str, ...]] = {}
        """Address to the settings' names of the engine's own model, by its newest list."""
        self.context_tokens: dict[str, int] = {}
        """Address to the longest context in its newest list; without a known one, none."""
        self.refusals: dict[str, str] = {}
        """Address to the reason why its newest probe failed."""

    def update(self, targets: Mapping[str, tuple[Endpoint, JoiningSettings]]) -> None:
        """Start and stop tasks; a changed endpoint or changed settings restart the task."""
        for address, (endpoint, joining, task) in list(self._tasks.items()):
            if targets.get(address) != (endpoint, joining):
                del self._tasks[address]
                self.refusals.pop(address, None)
                self._end(task)
        self._unstarted = {
            address: target for address, target in targets.items() if address not in self._tasks
        }
        if self._unstarted and (self._starter is None or self._starter.done()):
            self._starter = asyncio.create_task(self._start_some(), name="probes to begin")

    def keep(self, addresses: Container[str]) -> None:
        """Forget the lists of all other endpoints."""
        self.own_names = {each: names for each, names in self.own_names.items() if each in addresses}
        self.context_tokens = {a: tokens for a, tokens in self.context_tokens.items() if a in addresses}

    async def _start_some(self) -> None:
        """Start the missing tasks, outside the turns: probes that run and updates delay no start."""
        while self._unstarted:
            for address in tuple(islice(self._unstarted, _STARTS)):
                endpoint, joining = self._unstarted.pop(address)
                task = asyncio.create_task(self._follow(endpoint, joining), name=f"probe {address}")
                self._tasks[address] = (endpoint, joining, task)
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop every task, and with it its connection."""
        self.update({})
        if self._starter is not None:
            self._end(self._starter)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    async def _follow(self, endpoint: Endpoint, joining: JoiningSettings) -> None:
        logged: set[str] = set()
        while True:
            async with self._at_once:
                await self._turns.step()
                answer = await self._probe(endpoint, joining)
            go_on = self._on_probe(endpoint.address, answer.result)
            _log_answer(endpoint.address, answer, logged, go_on=go_on)
            if not go_on:
                self.refusals.pop(endpoint.address, None)
                self._tasks.pop(endpoint.address, None)
                return
            self.refusals[endpoint.address] = answer.text + answer.detail
            await asyncio.sleep(joining.probe_interval_seconds * (1.0 - _JITTER * self._jitter()))

    async def _probe(self, endpoint: Endpoint, joining: JoiningSettings) -> ProbeAnswer:
        url = self._engines.url(endpoint, _PATHS[joining.probe])
        try:
            status, body = await self._engines.get(
                endpoint, url, joining.probe_timeout_seconds, MOST_LIST_BYTES
            )
        except FetchError as error:
            return _unanswered(url, error)
        answered = f"GET {url} was answered {status}"
        if status in _SILENT:
            return await self._silent(endpoint, joining, answered, guarded=status in _GUARDED)
        if status != _OK:
            return ProbeAnswer(ProbeResult.NOT_READY, f"{answered}; {_LOADING}")
        if joining.probe == "health":
            return ProbeAnswer(ProbeResult.READY, answered)
        models = models_of(body)
        self._note(endpoint, models or ())
        listed = _listed(models, endpoint, answered)
        if listed.result is not ProbeResult.READY:
            return listed
        url = self._engines.url(endpoint, _PATHS["health"])
        try:
            status, _ = await self._engines.get(endpoint, url, joining.probe_timeout_seconds, MOST_LIST_BYTES)
        except FetchError as error:
            return _unanswered(url, error)
        if status >= _SERVER_ERROR and status not in _SILENT:
            return ProbeAnswer(ProbeResult.NOT_READY, f"GET {url} was answered {status}; {_LOADING}")
        return listed

    def _note(self, endpoint: Endpoint, models: Iterable[ListedModel]) -> None:
        self.own_names[endpoint.address] = own_names(models, endpoint.models)
        served = (model for model in models if not endpoint.models or model.id in endpoint.models)
        lengths = [tokens for model in served if (tokens := model.context_tokens) is not None]
        if lengths:
            self.context_tokens[endpoint.address] = max(lengths)
        else:
            self.context_tokens.pop(endpoint.address, None)

    async def _silent(
        self, endpoint: Endpoint, joining: JoiningSettings, answered: str, *, guarded: bool
    ) -> ProbeAnswer:
        """Judge a server without a list of models: the metrics page of a supported engine passes."""
        if guarded:
            return ProbeAnswer(ProbeResult.SILENT, f"{answered}: it wants a key")
        result, page = await self._page(endpoint, joining.probe_timeout_seconds)
        if not page:
            return ProbeAnswer(result, "")
        step = _NETWORK if result is ProbeResult.UNKNOWN else _NO_ENGINE
        return ProbeAnswer(
            result if endpoint.models else ProbeResult.SILENT, f"{answered}, and {page}; {step}"
        )

    async def _page(self, endpoint: Endpoint, timeout_seconds: float) -> tuple[ProbeResult, str]:
        """Judge its metrics page, and return the reason; empty: the page is a supported engine's.

        Only a page of something else, or an answer that there is no page, fails the probe.
        """
        judged = await self._page_in_place(endpoint, timeout_seconds)
        if judged[0] is ProbeResult.NOT_READY:
            for url, table in usual_places(endpoint, tables_of(endpoint.engine, endpoint.metric_names)):
                with contextlib.suppress(FetchError):
                    _, page = await self._engines.get(endpoint, url, timeout_seconds, self._page_bytes)
                    if table.marks_in(page):
                        return ProbeResult.SILENT, ""
        return judged

    async def _page_in_place(self, endpoint: Endpoint, timeout_seconds: float) -> tuple[ProbeResult, str]:
        own = at_own_port(endpoint, endpoint.metrics_url)
        subject = "its metrics page" if own else "its page at pools.endpoints.metrics_url"
        try:
            status, page = await self._engines.get(
                endpoint, endpoint.metrics_url, timeout_seconds, self._page_bytes
            )
        except FetchError as error:
            return ProbeResult.UNKNOWN, f"{subject} was not to be had ({error.detail})"
        if status != _OK:
            none = own and status in _SILENT - _GUARDED
            return (
                ProbeResult.NOT_READY if none else ProbeResult.UNKNOWN,
                f"{subject} was answered {status}",
            )
        if any(table.marks_in(page) for table in tables_of("auto", endpoint.metric_names).values()):
            return ProbeResult.SILENT, ""
        return ProbeResult.NOT_READY, f"{subject} is no supported engine's"


def _log_answer(address: str, answer: ProbeAnswer, logged: set[str], *, go_on: bool) -> None:
    """Log each reason once, and the end."""
    if go_on:
        if answer.result is not ProbeResult.SILENT and answer.text not in logged:
            # A suspected engine whose probe shows nothing stays served.
            what = "is not ready" if answer.result is ProbeResult.NOT_READY else "has not answered its probe"
            logger.warning("%s %s: %s%s", address, what, answer.text, answer.detail)
            logged.add(answer.text)
    elif answer.result is ProbeResult.SILENT and answer.text:
        logger.warning("%s passes its probe without showing a model: %s", address, answer.text)
    elif logged:
        logger.info("%s is ready", address)


def _unanswered(url: str, error: FetchError) -> ProbeAnswer:
    if error.kind == "refused":
        step = "start the engine, or mend its address"
        return ProbeAnswer(ProbeResult.NOT_READY, f"GET {url}: {error.detail}; {step}")
    if error.kind == "too_large":
        return ProbeAnswer(ProbeResult.NOT_READY, f"GET {url} was answered with {error.detail}; {_NO_ENGINE}")
    if error.kind == "connect":
        result = ProbeResult.NO_CONNECTION if error.unconnected or error.no_route else ProbeResult.UNKNOWN
        return ProbeAnswer(result, f"GET {url}: {error.detail}; {_NETWORK}")
    return ProbeAnswer(ProbeResult.UNKNOWN, f"GET {url}: no whole answer ({error.detail})")


def own_names(listed: Iterable[ListedModel], models: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of one model: what is listed with the first one's root, and with no parent."""
    if len(models) == 1:
        return ()
    roots = {model.id: model.root for model in listed if model.parent is None}
    names = [name for name in models if name in roots]
    return tuple(name for name in names if roots[name] == roots[names[0]])


def _listed(listed: list[ListedModel] | None, endpoint: Endpoint, answered: str) -> ProbeAnswer:
    if not endpoint.models:
        return ProbeAnswer(ProbeResult.READY, answered)
    if listed is None:
        return ProbeAnswer(ProbeResult.NOT_READY, f"{answered}, and that is no list of models; {_NO_ENGINE}")
    names = [model.id for model in listed]
    if not set(names).isdisjoint(endpoint.models):
        return ProbeAnswer(ProbeResult.READY, answered)
    ours, theirs = (", ".join(ascii(name[:100]) for name in some[:3]) for some in (endpoint.models, names))
    text = f"{answered}, and lists no model of {ours}; mend pools.models or the address"
    return ProbeAnswer(ProbeResult.NOT_READY, text, f"; it lists {theirs or 'none'}")
