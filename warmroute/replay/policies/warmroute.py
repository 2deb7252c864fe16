"""Our own picks and weights: the code of both services, under the replay's clock.

Engines' pages are read by the real readers, joined, weighed and published to the store that the director
follows. Without a pick, an endpoint is drawn by weights, as Envoy does.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from ext_proc.director.director import Director
from ext_proc.protocol.attributes import HttpRequest
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.names import METADATA_PROMPT, METADATA_REQUEST, METADATA_SERIAL
from fleet.settings.load import parse_settings
from fleet.signals import Source
from fleet.store import FleetStore, FleetView
from warmroute.replay.trace import block_texts
from xds_server.access_log.finished import Finished
from xds_server.signals.board import SignalBoard
from xds_server.signals.forecast.forecaster import forecast_horizon
from xds_server.signals.join import SignalJoiner, Sources
from xds_server.signals.passive.missed import missed_of
from xds_server.signals.passive.retry_blame import BLAME_ALL_RETRIES
from xds_server.signals.scrape.engines import reader_of
from xds_server.weights.weigh import Weigher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ext_proc.director.traffic import Token
    from ext_proc.pick.result import PickResult
    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan
    from warmroute.replay.trace import TraceRequest

_HEADERS: Final = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}

_MOST_TEXTS: Final = 40_000
"""Blocks whose text is remembered: some 80 MB."""


class _Sent(NamedTuple):
    at: float
    address: str
    result: PickResult
    attempts: int = 1
    first_byte_seconds: float | None = None


class Warmroute:
    """One xds_server and some workers."""

    name = "warmroute"

    def __init__(self, engines: Sequence[Engine], plan: Plan) -> None:
        self._engines = engines
        self._plan = plan
        self._draw = Random(plan.seed)
        self.now = 0.0
        self.addresses = [f"10.0.{number >> 8}.{number & 255}:8000" for number in range(len(engines))]
        self._number = {address: number for number, address in enumerate(self.addresses)}
        written: dict[str, Any] = {
            "pools": [
                {
                    "name": "p",
                    "models": ["m"],
                    "engine": "vllm",
                    "endpoints": [{"address": address} for address in self.addresses],
                }
            ],
            "listeners": [{"name": "l", "address": "127.0.0.1:9", "pool": "p"}],
        }
        if plan.scrape_seconds is not None:
            written["signals"] = {"scrape_interval_seconds": plan.scrape_seconds}
        settings = self.settings = parse_settings(json.dumps(written))
        self.membership = Membership(
            (Pool("p", tuple(Endpoint(a, "p", ("m",), "vllm") for a in self.addresses)),)
        )
        registry, signals = CollectorRegistry(), settings.signals
        self._store = FleetStore()
        self._board = SignalBoard()
        self._board.follow(self.membership.addresses)
        self._readers = [reader_of("vllm", address, signals) for address in self.addresses]
        sources = Sources(self._board.table, self._store.traffic, lambda: True)
        self._joiner = SignalJoiner(signals, BLAME_ALL_RETRIES, sources, registry, forecast_horizon(settings))
        self._weigher = Weigher(settings.weights, signals)
        self._stores = [FleetStore() for _ in range(plan.workers)]
        self._directors = [
            Director(store, settings, CollectorRegistry(), lambda: self.now) for store in self._stores
        ]
        self._tokens: dict[int, tuple[Director, Token]] = {}
        self._sent: dict[int, _Sent] = {}
        self._texts: dict[int, str] = {}
        self._pages: deque[tuple[float, str, Mapping[str, float] | None]] = deque()
        """Those whose delay is not over: the time of reading, the endpoint, its signals; None: refused."""
        self._tick(0.0)

    def timers(self) -> Sequence[float]:
        """Return one scrape an engine, spread over the interval, and the tick."""
        each = self.settings.signals.scrape_interval_seconds
        scrapes = [each * (number + 1) / len(self._engines) for number in range(len(self._engines))]
        return [*scrapes, self.settings.xds.tick_seconds]

    def ring(self, number: int, now: float) -> float:
        """Read a page, or tick."""
        self.now = now
        if number == len(self._engines):
            self._tick(now)
            return now + self.settings.xds.tick_seconds
        engine, address = self._engines[number], self.addresses[number]
        if engine.readable:
            page = engine.metrics.page(engine.model, "m", 1.0)
            self._pages.append((now, address, {**self._readers[number].read(page, now), "reachable": 1.0}))
        elif engine.refuses:
            self._pages.append((now, address, None))
        return now + self.settings.signals.scrape_interval_seconds

    def choose(self, number: int, request: TraceRequest, now: float) -> int:
        """Pick, as a worker does."""
        self.now = now
        director = self._directors[self._draw.randrange(len(self._directors))]
        body = HttpRequest(self._body(number, request), complete=True, attributes=_HEADERS)
        decision = director.pick(body, director.reader.read(body))
        director.book(decision)
        result = decision.result
        address = self._first(result.endpoints, ())
        if result.endpoints:
            self._tokens[number] = director, director.started(address)
        self._sent[number] = _Sent(now, address, result)
        return self._number[address]

    def choose_again(self, number: int, tried: Sequence[int], _now: float) -> int:
        """Return the next endpoint of the pick, and behind them one by weights."""
        sent = self._sent[number]
        address = self._first(sent.result.endpoints, [self.addresses[each] for each in tried])
        self._sent[number] = sent._replace(address=address, attempts=len(tried) + 1)
        return self._number[address]

    def _first(self, picked: Sequence[str], tried: Sequence[str]) -> str:
        """Return the first endpoint that was not tried: of the pick, otherwise by weights as Envoy draws."""
        for address in picked:
            if address not in tried:
                return address
        left = [address for address in self.addresses if address not in tried] or self.addresses
        return self._draw.choices(left, [self._weigher.in_use.get(each, 1) for each in left])[0]

    def first_token(self, number: int, now: float) -> None:
        """Note when the answer began, for the access log."""
        sent = self._sent[number]
        self._sent[number] = sent._replace(first_byte_seconds=now - sent.at)

    def finished(self, number: int, now: float) -> None:
        """End the stream, and write Envoy's access log."""
        self._end(number, now)

    def failed(self, number: int, now: float) -> None:
        """End the stream; the access log has Envoy's flag for a connection that failed or broke."""
        self._end(number, now, "UF" if now == self._sent[number].at else "UC")

    def _end(self, number: int, now: float, *flags: str) -> None:
        self.now = now
        director, token = self._tokens.pop(number, (None, None))
        if director is not None and token is not None:
            director.finished(token)
        sent = self._sent.pop(number)
        result = sent.result
        entry = Finished(
            address=sent.address,
            picked=(*result.endpoints, "")[0],
            cluster="p",
            request_id="",
            started_at=sent.at,
            first_byte_seconds=sent.first_byte_seconds,
            duration_seconds=now - sent.at,
            status=503 if flags and sent.first_byte_seconds is None else 200,
            flags=flags,
            attempts=sent.attempts,
            metadata={
                METADATA_PROMPT: f"{result.prompt:x}",
                METADATA_REQUEST: f"{result.request:x}",
                METADATA_SERIAL: f"{result.serial:x}",
            },
        )
        self._joiner.take(entry, now)
        if (missed := missed_of(entry)) is not None:
            for each in self._directors:
                each.missed(missed)

    def _tick(self, now: float) -> None:
        while self._pages and self._pages[0][0] + self._plan.signal_delay_seconds <= now:
            read_at, address, numbers = self._pages.popleft()
            if numbers is None:
                self._board.set(address, "reachable", 0.0, read_at, Source.SCRAPE)
            else:
                self._board.put(address, numbers, read_at, Source.SCRAPE)
        for number, director in enumerate(self._directors):
            self._store.report(str(number), director.traffic.snapshot())
        signals = self._joiner.join(self.membership, now, self._weigher.in_use)
        update = self._weigher.weigh(self.membership, signals, now)
        view = FleetView(self.membership, update.weights, signals)
        for number, store in enumerate(self._stores):
            elsewhere = self._store.in_flight(str(number))
            store.publish(replace(view, in_flight_elsewhere=elsewhere) if elsewhere else view)

    def _body(self, number: int, request: TraceRequest) -> bytes:
        text = request.text
        if text is None:
            parts = list(block_texts(request.blocks, self._plan.config.block_tokens, self._texts))
            size = request.prompt_tokens * 4
            text = "".join(parts)
            if len(text) < size:
                # What fills no block is its own.
                text += (f"{number:07x}-" * ((size - len(text)) // 8 + 1))[: size - len(text)]
            if len(self._texts) > _MOST_TEXTS:
                self._texts.clear()
        return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
