"""Scraping: one task an endpoint, each on its own timer, so that a slow engine delays no other."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf, nan
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

import xxhash
from prometheus_client import CollectorRegistry, Counter, Gauge

from fleet.service.turns import Turns
from fleet.signals import Source
from xds_server.http1.client import FetchError
from xds_server.http1.keys import KeyFiles
from xds_server.signals.board import SignalBoard
from xds_server.signals.passive.reach import Reach
from xds_server.signals.scrape.aside import Aside, Cost
from xds_server.signals.scrape.engines import reader_of, tables_of
from xds_server.signals.scrape.fetch import PageFetcher
from xds_server.signals.scrape.page import PageError
from xds_server.signals.scrape.places import at_own_port, takes_key, usual_places
from xds_server.signals.scrape.reader import kind_of
from xds_server.tls.engine_tls import plaintext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.endpoint import Endpoint, Membership
    from fleet.settings import LimitSettings, SignalSettings
    from fleet.signals import SignalTable
    from xds_server.signals.scrape.engines import EngineReader
    from xds_server.signals.scrape.ranks import RankPage
    from xds_server.tls.engine_tls import EngineTls

_log = logging.getLogger(__name__)

_FIRST_SPREAD_SECONDS: Final = 0.25
"""First scrapes come within this time however long the interval is: serving starts after them."""
_STARTS: Final = 16
"""Tasks that one pass of the loop starts."""
_RETRY_SECOND_SECONDS: Final = 60.0
"""A second page that the engine refuses (llama.cpp without slots) is fetched again after this time."""
_SEARCH_SECONDS: Final = 60.0
"""A page that is not where it should be is looked for again after this time."""
_NO_PAGE: Final = frozenset((400, 404, 405, 406, 410, 501))
_SERVER_ERROR: Final = 500
_KINDS: Final = ("refused", "connect", "timeout", "http_status", "too_large", "protocol", "internal")
_CONNECTED: Final = frozenset(("timeout", "http_status", "too_large", "protocol"))
"""Kinds of failure that come over a connection."""
_ANSWERED: Final = frozenset(("", "http_status", "too_large", "protocol", "internal"))
"""Kinds of failure, and none, that come after an answer."""


class ScrapeMetrics:
    """What scraping counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the metrics in a registry, with every kind of failure at 0."""
        self.scrapes = Counter(
            "warmroute_scrapes", "Scrapes of engines' metrics pages tried", registry=registry
        )
        self.failures = Counter(
            "warmroute_scrape_failures",
            "Scrapes of engines' metrics pages that failed, by kind",
            ["kind"],
            registry=registry,
        )
        for kind in _KINDS:
            self.failures.labels(kind)
        self.malformed_lines = Counter(
            "warmroute_scrape_malformed_lines",
            "Lines of metrics pages that carry a wanted name and cannot be read",
            registry=registry,
        )
        self.failing_endpoints = Gauge(
            "warmroute_scrape_failing_endpoints", "Endpoints whose newest scrape failed", registry=registry
        )


_SOURCE: Final = ("metrics_url", "screened", "engine", "metric_names", "api_key_file")
"""Fields of an endpoint: where and how its page is read."""


@dataclass(slots=True)
class _Target:
    endpoint: Endpoint
    url: str
    """Where its page is."""
    search_at: float = -inf
    """When its page may be looked for elsewhere, on the scraper's clock."""
    failing: str = ""
    """Kind of the newest scrape's failure; empty when it went well."""
    cost: Cost = field(default_factory=Cost)
    """Of reading its pages."""
    second_after: float = 0.0
    """When the second page may be fetched again, on the scraper's clock."""
    task: asyncio.Task[None] | None = None

    def same_source(self, endpoint: Endpoint) -> bool:
        """Whether the endpoint is still read from the same place in the same way."""
        own = self.endpoint
        return own is endpoint or all(getattr(own, name) == getattr(endpoint, name) for name in _SOURCE)

    @property
    def at_own_port(self) -> bool:
        """Whether its page says something about the engine's port."""
        return at_own_port(self.endpoint, self.url)


class Scraper:
    """Keeps the newest signals of every endpoint. All calls come from one running event loop."""

    def __init__(
        self,
        signals: SignalSettings,
        limits: LimitSettings,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
        make_reader: Callable[..., EngineReader] = reader_of,
        engine_tls: EngineTls = plaintext,
        reach: Reach | None = None,
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called after a scrape that changed a signal."""
        self.on_fault: Callable[[str, bool], None] = lambda _address, _refused: None
        """Called after a scrape that shows a restart or a fault of an endpoint's engine, with its address
        and whether its port refused the connection."""
        self._signals = signals
        self._clock = clock
        self._make_reader = make_reader
        self._engine_tls = engine_tls
        self._reach = Reach() if reach is None else reach
        self._ranks: dict[str, RankPage] = {}
        """By address, until the engine may have become another one."""
        self._several_ranks: set[str] = set()
        self._away: set[str] = set()
        """Endpoints whose signals say that they are unreachable."""
        self._board = SignalBoard()
        self._metrics = ScrapeMetrics(registry or CollectorRegistry())
        self._targets: dict[str, _Target] = {}
        self._fetcher = PageFetcher(limits.metrics_page_bytes)
        self._keys = KeyFiles(clock)
        self._hosts: collections.Counter[str] = collections.Counter()
        """Endpoints by host."""
        self._turns = Turns()
        self._starter: asyncio.Task[None] | None = None
        self._unstarted: dict[str, _Target] = {}
        """Targets without a task, by address."""
        self._aside = Aside()
        self._ending: set[asyncio.Task[Any]] = set()
        self._synced = asyncio.Event()
        # Kept apart from the targets: to look at all of them after each scrape would cost their square.
        self._untried: set[str] = set()
        self._failing: set[str] = set()

    def update(self, membership: Membership) -> None:
        """Start and stop tasks as endpoints come and go; another metrics URL or engine starts again."""
        endpoints = membership.by_address
        for address in list(self._targets):
            if address not in endpoints or not self._targets[address].same_source(endpoints[address]):
                self._stop(self._targets.pop(address).task)
                self._unstarted.pop(address, None)
                self._board.clear(address)
                self._set_ranks(address, None)
                for addresses in (self._untried, self._failing, self._away):
                    addresses.discard(address)
        self._hosts = collections.Counter(endpoint.host for endpoint in endpoints.values())
        self._board.follow(membership.addresses)
        for address, endpoint in endpoints.items():
            if address not in self._targets:
                self._start(endpoint)
        self._note_ports()
        self._note_state()

    def reconfigure(self, signals: SignalSettings) -> None:
        """Take other settings; other ones start every window again, and signals are kept to age out."""
        if signals == self._signals:
            return
        self._signals = signals
        untried = frozenset(self._untried)
        for address, target in list(self._targets.items()):
            self._stop(target.task)
            self._start(target.endpoint)
            self._targets[address].failing = target.failing
            if address not in untried:
                self._untried.discard(address)

    def signals(self) -> SignalTable:
        """Return the newest signals of every endpoint; all unknown before its first page.

        Whether an endpoint is unreachable also depends on access logs and on the others of its pool, so that
        is looked up at each call.
        """
        away = self._reach.away(self._clock())
        for address in self._away | (away.keys() & self._targets.keys()):
            self._set_reachable(address, away.get(address))
        return self._board.table()

    def ranks(self) -> Mapping[str, RankPage]:
        """Return what is known of each endpoint's ranks; empty if none has several."""
        return self._ranks if self._several_ranks else {}

    def answering(self) -> frozenset[str]:
        """Return the endpoints whose newest scrape got an answer of any kind."""
        return frozenset(
            address
            for address, target in self._targets.items()
            if address not in self._untried and target.failing in _ANSWERED
        )

    async def first_sync(self, timeout_seconds: float) -> bool:
        """Wait until every endpoint has been tried once; returns whether that came in time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._synced.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop every task and close every connection."""
        for target in self._targets.values():
            self._stop(target.task)
        self._stop(self._starter)
        self._targets.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._fetcher.close()

    def _start(self, endpoint: Endpoint) -> None:
        self._targets[endpoint.address] = self._unstarted[endpoint.address] = _Target(
            endpoint, endpoint.metrics_url
        )
        self._untried.add(endpoint.address)
        if self._starter is None or self._starter.done():
            self._starter = asyncio.create_task(self._start_some(), name="scrapes to begin")

    async def _start_some(self) -> None:
        """Start the missing tasks, outside the turns: scrapes that run and updates delay no start."""
        while self._unstarted:
            for address in tuple(islice(self._unstarted, _STARTS)):
                target = self._unstarted.pop(address)
                target.task = asyncio.create_task(self._follow(target), name=f"scrape {address}")
            await asyncio.sleep(0)

    def _stop(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _note_ports(self) -> None:
        """Say which engines' ports are tried by scrapes."""
        pools = {address: target.endpoint.pool for address, target in self._targets.items()}
        unscraped = [address for address, target in self._targets.items() if not target.at_own_port]
        self._reach.keep(pools, unscraped)

    def _note_state(self) -> None:
        self._metrics.failing_endpoints.set(len(self._failing))
        if self._untried:
            self._synced.clear()
        else:
            self._synced.set()

    async def _follow(self, target: _Target) -> None:
        endpoint, interval = target.endpoint, self._signals.scrape_interval_seconds
        reader = self._make_reader(endpoint.engine, endpoint.address, self._signals, endpoint.metric_names)
        offset = phase(endpoint.address)
        await asyncio.sleep(offset * min(interval, _FIRST_SPREAD_SECONDS))
        while True:
            await self._turns.step()
            await self._scrape(target, reader)
            pause = target.cost.pause(interval, self._signals.stale_after_seconds)
            # The next moment of this endpoint's own grid: a slow scrape skips moments, it shifts none.
            await asyncio.sleep(pause + interval - (self._clock() + pause - offset * interval) % interval)

    async def _scrape(self, target: _Target, reader: EngineReader) -> None:
        self._metrics.scrapes.inc()
        address = target.endpoint.address
        try:
            began = self._clock()
            seconds = self._signals.scrape_timeout_seconds
            page = await self._page(target, seconds)
            now = self._clock()
            second = None
            if reader.second_page:
                second = await self._fetch_second(target, reader.second_page, now, now - began)
            size = len(page) + len(second or b"")
            numbers = await self._aside.run(target.cost, size, partial(reader.read, page, now, second))
            self._metrics.malformed_lines.inc(reader.malformed_lines)
        except FetchError as error:
            changed = self._failed(target, error)
        except PageError as error:
            changed = self._failed(target, FetchError("too_large", str(error)))
        except Exception:  # noqa: BLE001 - the one edge: a fault of ours must not end an endpoint's scrapes
            changed = self._faulted(target)
        else:
            self._set_ranks(address, reader.ranks)
            changed = self._succeeded(target, numbers, now)
        if changed:
            self.on_change()
        self._untried.discard(address)
        (self._failing.add if target.failing else self._failing.discard)(address)
        self._note_state()

    async def _page(self, target: _Target, seconds: float) -> bytes:
        """Fetch the page, where the kind usually has it if it is not at its place.

        Raises:
            FetchError: it is nowhere.
        """
        endpoint, own = target.endpoint, target.endpoint.metrics_url
        tables = tables_of(endpoint.engine, endpoint.metric_names)
        places = usual_places(endpoint, tables, shares_host=self._hosts[endpoint.host] > 1)
        failure, page = None, b""
        try:
            page = await self._fetch(target, target.url, seconds)
            if not places or kind_of(tables, page):
                return page
        except FetchError as error:
            if not places or (
                error.status not in _NO_PAGE and (error.kind != "refused" or target.url == own)
            ):
                raise
            failure = error
        if target.url != own:
            # Another engine may have begun at this address.
            self._move(target, own)
            target.search_at = -inf
        elif self._clock() >= target.search_at:
            target.search_at = self._clock() + _SEARCH_SECONDS
            for url, table in places:
                with contextlib.suppress(FetchError):
                    elsewhere = await self._fetch(target, url, seconds)
                    if table.is_of(elsewhere):
                        self._move(target, url)
                        _log.info("%s: its metrics page is at %s", endpoint.address, url)
                        return elsewhere
        if failure is not None:
            raise failure
        return page

    def _move(self, target: _Target, url: str) -> None:
        before, target.url = target.at_own_port, url
        if target.at_own_port != before:
            self._note_ports()

    async def _fetch_second(self, target: _Target, path: str, now: float, used: float) -> bytes | None:
        """Fetch the reader's second page in what is left of the time; without it the first is read alone."""
        left = self._signals.scrape_timeout_seconds - used
        if now < target.second_after or left <= 0:
            return None
        try:
            url = urljoin(target.url, path)
            return await self._fetch(target, url, left)
        except FetchError as error:
            if error.kind == "http_status":
                target.second_after = now + _RETRY_SECOND_SECONDS
            return None

    async def _fetch(self, target: _Target, url: str, seconds: float) -> bytes:
        endpoint = target.endpoint
        # As the pool's engines are spoken to; a page elsewhere has a certificate of its own.
        dial = self._engine_tls(endpoint.pool) if at_own_port(endpoint, url) else None
        key = await self._keys.key(endpoint.api_key_file) if takes_key(endpoint, url) else ""
        return await self._fetcher.fetch(url, seconds, dial, screened=endpoint.screened, key=key)

    def _succeeded(self, target: _Target, numbers: Mapping[str, float], now: float) -> bool:
        address, own = target.endpoint.address, target.at_own_port
        if own:
            self._reach.connected(address)
        away_at = self._reach.away_at(address, now)
        if own or away_at is not None:
            numbers = {**numbers, "reachable": 1.0 if away_at is None else 0.0}
        progress = self._board.value(address, "progress_total")
        changed = self._board.put(address, numbers, now, Source.SCRAPE)
        if away_at is None:
            self._away.discard(address)
        else:
            self._set_reachable(address, away_at)
        if target.failing:
            _log.info("%s: metrics are read again", address)
        target.failing = ""
        if numbers.get("progress_total", nan) < progress:  # The engine's counters began again.
            self.on_fault(address, False)
        return changed

    def _failed(self, target: _Target, error: FetchError) -> bool:
        endpoint = target.endpoint
        self._metrics.failures.labels(error.kind).inc()
        if error.kind != "timeout":
            self._set_ranks(endpoint.address, None)
        # Only the engine's own port says something about the engine: a separate exporter does not. What
        # other signals said stays, to age out by itself.
        own = target.at_own_port
        refused = own and error.kind == "refused"
        now = self._clock()
        if refused or (own and (error.unconnected or error.no_route)):
            self._reach.missed(endpoint.address, now, refused=refused)
        elif own and error.kind in _CONNECTED:
            self._reach.connected(endpoint.address)
        elif own:
            self._reach.unclear(endpoint.address)
        changed = self._set_reachable(endpoint.address, self._reach.away_at(endpoint.address, now))
        if target.failing != error.kind:
            # Without the URL: it may carry a password.
            _log.warning("%s: no metrics: %s", endpoint.address, error)
        target.failing = error.kind
        if refused or (own and (error.status or 0) >= _SERVER_ERROR):
            self.on_fault(endpoint.address, refused)
        return changed

    def _set_ranks(self, address: str, ranks: RankPage | None) -> None:
        """Set what is known of an endpoint's ranks; None: nothing."""
        if ranks is None:
            self._ranks.pop(address, None)
        else:
            self._ranks[address] = ranks
        several = ranks is not None and ranks.count > 1
        (self._several_ranks.add if several else self._several_ranks.discard)(address)

    def _set_reachable(self, address: str, away_at: float | None) -> bool:
        """Set when an endpoint was found unreachable; None: that is unknown. Returns whether this is new."""
        (self._away.discard if away_at is None else self._away.add)(address)
        value, at = (nan, nan) if away_at is None else (0.0, away_at)
        return self._board.set(address, "reachable", value, at, Source.SCRAPE)

    def _faulted(self, target: _Target) -> bool:
        self._metrics.failures.labels("internal").inc()
        address = target.endpoint.address
        if target.failing != "internal":
            _log.exception("%s: reading its metrics failed in Warmroute itself", address)
        target.failing = "internal"
        return self._set_reachable(address, self._reach.away_at(address, self._clock()))


def phase(address: str) -> float:
    """Where in the interval an endpoint is scraped, 0 to 1: the same in every run, spread over the fleet."""
    return float(xxhash.xxh3_64_intdigest(address.encode()) / 2**64)
