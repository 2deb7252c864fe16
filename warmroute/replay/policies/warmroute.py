"""Our own picks and weights: the code of both services, under the replay's clock."""

from __future__ import annotations

import json
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from ext_proc.director.director import Director
from ext_proc.follower import pause_seconds
from ext_proc.protocol.attributes import HttpRequest
from fleet.names import METADATA_PROMPT, METADATA_REQUEST, METADATA_SERIAL
from fleet.store import FleetStore
from fleet.token_bucket import TokenBucket
from warmroute.replay.policies.weights import Picked, Weights
from warmroute.replay.trace import BYTES_PER_TOKEN, block_texts
from xds_server.control.pulse import apart_seconds
from xds_server.signals.passive.missed import missed_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ext_proc.director.traffic import Token
    from fleet.store import FleetView
    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan
    from warmroute.replay.trace import TraceRequest
    from xds_server.access_log.finished import Finished

_HEADERS: Final = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}

REPORT_SECONDS: Final = 0.005
"""From a worker's report to its effect on the others' picks."""
_MOST_TEXTS: Final = 40_000
"""Blocks whose text is remembered: some 80 MB."""


class Warmroute(Weights):
    """One xds_server and some workers."""

    def __init__(self, engines: Sequence[Engine], plan: Plan) -> None:
        self._stores = [FleetStore() for _ in range(plan.workers)]
        self._directors: list[Director] = []
        self._pause = pause_seconds(len(engines))
        """Between two reports of a worker."""
        self._buckets = [TokenBucket() for _ in range(plan.workers)]
        self._beats, self._apart = TokenBucket(), apart_seconds(len(engines), plan.workers)
        """Of xds_server, which sends what workers report."""
        self._reported_at = [-inf] * plan.workers
        self._reports: list[tuple[float, int]] = []
        """A heap of reports of picks that are on their way: when they arrive, and the worker."""
        super().__init__(engines, plan)
        self.name = "warmroute"
        self._directors = [
            Director(store, self.settings, CollectorRegistry(), lambda: self.now) for store in self._stores
        ]
        self._tokens: dict[int, tuple[Director, Token]] = {}
        self._texts: dict[int, str] = {}

    def pick(self, number: int, request: TraceRequest) -> Picked:
        """Pick, as a worker does."""
        while self._reports and self._reports[0][0] <= self.now:
            self._report(heappop(self._reports)[1])
        worker = self.draw.randrange(len(self._directors))
        director = self._directors[worker]
        body = HttpRequest(self._body(number, request), complete=True, attributes=_HEADERS)
        decision = director.pick(body, director.reader.read(body))
        sent = director.book(decision)
        result = decision.result
        if result.endpoints:
            self._tokens[number] = director, director.started(result.endpoints[0], sent)
            if self.plan.workers > 1 and not any(each == worker for _, each in self._reports):
                at = self._buckets[worker].at(self.now, self._pause)
                self._buckets[worker].take(at, self._pause)
                beat_at = self._beats.at(at, self._apart)
                self._beats.take(beat_at, self._apart)
                heappush(self._reports, (beat_at + REPORT_SECONDS, worker))
        ids = (
            (METADATA_PROMPT, result.prompt),
            (METADATA_REQUEST, result.request),
            (METADATA_SERIAL, result.serial),
        )
        return Picked(result.endpoints, {name: f"{value:x}" for name, value in ids})

    def log(self, number: int, now: float, *flags: str) -> Finished:
        """End the stream as well, and tell the workers of a pick that was not served."""
        self.now = now
        if number in self._tokens:
            director, token = self._tokens.pop(number)
            director.finished(token)
        entry = super().log(number, now, *flags)
        if (missed := missed_of(entry)) is not None:
            for each in self._directors:
                each.missed(missed)
        return entry

    def timers(self) -> Sequence[float]:
        """Add one a worker, spread over the pause between two reports."""
        workers = self.plan.workers if self.plan.workers > 1 else 0
        return [*super().timers(), *(self._pause * (number + 1) / workers for number in range(workers))]

    def ring(self, number: int, now: float) -> float:
        """Let a worker report that has not done so for a pause."""
        worker = number - len(self._engines) - 1
        if worker < 0:
            return super().ring(number, now)
        self.now = now
        if now >= self._reported_at[worker] + self._pause:
            self._report(worker)
        return self._reported_at[worker] + self._pause

    def _report(self, worker: int) -> None:
        """Let a worker report, and the others receive it."""
        self._reported_at[worker] = self.now
        self.path.store.report(str(worker), self._directors[worker].traffic.snapshot())
        for each in range(self.plan.workers):
            if each != worker:
                self._publish(each, self._view)

    def tick(self, now: float) -> None:
        """Pass the view on to the workers as well."""
        if self.plan.workers == 1:
            for director in self._directors:
                self.path.store.report("0", director.traffic.snapshot())
        self._view = self.path.tick(now)
        for worker in range(self.plan.workers):
            self._publish(worker, self._view)

    def _publish(self, worker: int, view: FleetView) -> None:
        store = self.path.store
        elsewhere, prefill = store.in_flight(str(worker)), store.prefill(str(worker))
        self._stores[worker].publish(
            replace(view, in_flight_elsewhere=elsewhere, prefill_elsewhere=prefill)
            if elsewhere or prefill
            else view
        )

    def _body(self, number: int, request: TraceRequest) -> bytes:
        if request.text is not None:
            message = {"role": "user", "content": request.text}
            return json.dumps({"model": "m", "messages": [message]}).encode()
        text = "".join(block_texts(request.blocks, self.plan.config.block_tokens, self._texts))
        # The rest, which fills no block, is its own.
        left = request.prompt_tokens * BYTES_PER_TOKEN - len(text)
        text += (f"{number:07x}-" * (left // 8 + 1))[: max(left, 0)]
        if len(self._texts) > _MOST_TEXTS:
            self._texts.clear()
        # Made text needs no escapes.
        return f'{{"model": "m", "messages": [{{"role": "user", "content": "{text}"}}]}}'.encode()
