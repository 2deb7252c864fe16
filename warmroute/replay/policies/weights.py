"""Our weights alone: without a pick, an endpoint is drawn by weights, as Envoy does.

Engines' pages are read by the real readers, joined, weighed and published to the store that picks follow.
"""

from __future__ import annotations

import json
from collections import deque
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from fleet.settings.load import parse_settings
from fleet.settings.membership import membership
from fleet.signals import Source
from warmroute.replay.signal_path import SignalPath
from xds_server.access_log.finished import Finished
from xds_server.signals.scrape.vllm import VLLM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan
    from warmroute.replay.trace import TraceRequest

HISTOGRAMS: Final = frozenset(name.removeprefix("vllm:").rpartition("_")[0] for name in VLLM.names)
"""Of an engine's page: the others, which no reader looks at, would take most of a replay's time."""


class Picked(NamedTuple):
    """What ext_proc told Envoy of a request; nothing: Envoy draws by weights."""

    endpoints: Sequence[str] = ()
    """Best first; Envoy tries the next one after a refused connection."""
    metadata: Mapping[str, str] = MappingProxyType({})
    """For the access log."""


class _Sent(NamedTuple):
    at: float
    address: str
    picked: Picked
    attempts: int = 1
    first_byte_seconds: float | None = None


class Weights:
    """One xds_server."""

    def __init__(self, engines: Sequence[Engine], plan: Plan, strategy: str = "headroom") -> None:
        self.name = strategy
        self._engines = engines
        self.plan = plan
        self.draw = Random(plan.seed)
        self.now = 0.0
        self.addresses = [f"10.0.{number >> 8}.{number & 255}:8000" for number in range(len(engines))]
        self._number = {address: number for number, address in enumerate(self.addresses)}
        pool = {"name": "p", "models": ["m"], "engine": "vllm"}
        written: dict[str, Any] = {
            "pools": [{**pool, "endpoints": [{"address": address} for address in self.addresses]}],
            "listeners": [{"name": "l", "address": "127.0.0.1:9", "pool": "p"}],
            "weights": {"strategy": strategy},
        }
        if plan.scrape_seconds is not None:
            written["signals"] = {"scrape_interval_seconds": plan.scrape_seconds}
        self.settings = parse_settings(json.dumps(written))
        self.path = SignalPath(self.settings, membership(self.settings), CollectorRegistry())
        self._sent: dict[int, _Sent] = {}
        self._pages: deque[tuple[float, str, Mapping[str, float] | None]] = deque()
        """Those whose delay is not over: the time of reading, the endpoint, its signals; None: refused."""
        self.tick(0.0)

    def timers(self) -> Sequence[float]:
        """Return one scrape an engine, spread over the interval, and the tick."""
        each = self.settings.signals.scrape_interval_seconds
        scrapes = [each * (number + 1) / len(self._engines) for number in range(len(self._engines))]
        return [*scrapes, self.settings.xds.tick_seconds]

    def ring(self, number: int, now: float) -> float:
        """Read a page, or tick."""
        self.now = now
        if number == len(self._engines):
            self._put_pages(now)
            self.tick(now)
            return now + self.settings.xds.tick_seconds
        engine, address = self._engines[number], self.addresses[number]
        if engine.readable:
            page = engine.metrics.page(engine.model, "m", 1.0, histograms=HISTOGRAMS)
            self._pages.append((now, address, {**self.path.read(address, page, now), "reachable": 1.0}))
        elif engine.refuses:
            self._pages.append((now, address, None))
        return now + self.settings.signals.scrape_interval_seconds

    def _put_pages(self, now: float) -> None:
        while self._pages and self._pages[0][0] + self.plan.signal_delay_seconds <= now:
            read_at, address, signals = self._pages.popleft()
            if signals is None:
                self.path.board.set(address, "reachable", 0.0, read_at, Source.SCRAPE)
            else:
                self.path.put(address, signals, read_at)

    def choose(self, number: int, request: TraceRequest, now: float) -> int:
        """Send a request."""
        self.now = now
        picked = self.pick(number, request)
        address = self._first(picked.endpoints, ())
        self._sent[number] = _Sent(now, address, picked)
        return self._number[address]

    def choose_again(self, number: int, tried: Sequence[int], _now: float) -> int:
        """Return the next endpoint of the pick, and behind them one by weights."""
        sent = self._sent[number]
        address = self._first(sent.picked.endpoints, [self.addresses[each] for each in tried])
        self._sent[number] = sent._replace(address=address, attempts=len(tried) + 1)
        return self._number[address]

    def pick(self, _number: int, _request: TraceRequest) -> Picked:
        """Return what a worker of ext_proc picks."""
        return Picked()

    def _first(self, endpoints: Sequence[str], tried: Sequence[str]) -> str:
        """Return the first endpoint that was not tried: of the pick, otherwise by weights as Envoy draws."""
        for address in endpoints:
            if address not in tried:
                return address
        left = [address for address in self.addresses if address not in tried] or self.addresses
        return self.draw.choices(left, [self.path.weights.get(each, 1) for each in left])[0]

    def first_token(self, number: int, now: float) -> None:
        """Note when the answer began, for the access log."""
        sent = self._sent[number]
        self._sent[number] = sent._replace(first_byte_seconds=now - sent.at)

    def finished(self, number: int, now: float) -> None:
        """Write Envoy's access log."""
        self.log(number, now)

    def failed(self, number: int, now: float) -> None:
        """Write Envoy's access log with its flag for a connection that failed or broke."""
        self.log(number, now, "UF" if now == self._sent[number].at else "UC")

    def cancelled(self, number: int, now: float) -> None:
        """Write Envoy's access log with its flag for a client that left."""
        self.log(number, now, "DC")

    def log(self, number: int, now: float, *flags: str) -> Finished:
        """Take the request's entry of the access log, and return it."""
        self.now = now
        sent = self._sent.pop(number)
        entry = Finished(
            address=sent.address,
            picked=(*sent.picked.endpoints, "")[0],
            cluster="p",
            request_id="",
            started_at=sent.at,
            first_byte_seconds=sent.first_byte_seconds,
            duration_seconds=now - sent.at,
            status=503 if {"UF", "UC"}.intersection(flags) and sent.first_byte_seconds is None else 200,
            flags=flags,
            attempts=sent.attempts,
            metadata=sent.picked.metadata,
        )
        self.path.take(entry, now)
        return entry

    def tick(self, now: float) -> None:
        """Compute and publish."""
        self.path.tick(now)
