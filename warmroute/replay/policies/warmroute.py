"""Our own picks and weights: the code of both services, under the replay's clock."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from ext_proc.director.director import Director
from ext_proc.protocol.attributes import HttpRequest
from fleet.names import METADATA_PROMPT, METADATA_REQUEST, METADATA_SERIAL
from fleet.store import FleetStore
from warmroute.replay.policies.weights import Picked, Weights
from warmroute.replay.trace import BYTES_PER_TOKEN, block_texts
from xds_server.signals.passive.missed import missed_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ext_proc.director.traffic import Token
    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan
    from warmroute.replay.trace import TraceRequest
    from xds_server.access_log.finished import Finished

_HEADERS: Final = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}

_MOST_TEXTS: Final = 40_000
"""Blocks whose text is remembered: some 80 MB."""


class Warmroute(Weights):
    """One xds_server and some workers."""

    def __init__(self, engines: Sequence[Engine], plan: Plan) -> None:
        self._stores = [FleetStore() for _ in range(plan.workers)]
        self._directors: list[Director] = []
        super().__init__(engines, plan)
        self.name = "warmroute"
        self._directors = [
            Director(store, self.settings, CollectorRegistry(), lambda: self.now) for store in self._stores
        ]
        self._tokens: dict[int, tuple[Director, Token]] = {}
        self._texts: dict[int, str] = {}

    def pick(self, number: int, request: TraceRequest) -> Picked:
        """Pick, as a worker does."""
        director = self._directors[self.draw.randrange(len(self._directors))]
        body = HttpRequest(self._body(number, request), complete=True, attributes=_HEADERS)
        decision = director.pick(body, director.reader.read(body))
        director.book(decision)
        result = decision.result
        if result.endpoints:
            self._tokens[number] = director, director.started(result.endpoints[0])
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

    def tick(self, now: float) -> None:
        """Pass the view on to the workers as well."""
        for number, director in enumerate(self._directors):
            self.path.store.report(str(number), director.traffic.snapshot())
        view = self.path.tick(now)
        for number, store in enumerate(self._stores):
            elsewhere = self.path.store.in_flight(str(number))
            store.publish(replace(view, in_flight_elsewhere=elsewhere) if elsewhere else view)

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
