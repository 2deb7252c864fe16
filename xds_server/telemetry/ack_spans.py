"""One span per client and weight update, from the push to the client's ACK or NACK.

A client has one open span at most: a newer push ends the one before as `superseded`, a stream that ends as
`gone`, a bounded time as `timeout`. So there are never more open spans than clients, and over `max_open` a
push is only counted.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import Counter

from fleet.names import TYPE_ENDPOINT

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer
    from prometheus_client import CollectorRegistry

    from xds_server.discovery.client import Client

Outcome = Literal["ack", "nack", "superseded", "gone", "timeout", "untraced"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("ack", "nack", "superseded", "gone", "timeout", "untraced")
TIMEOUT_SECONDS: Final = 30.0
_Key = tuple[str, str]


class _Open(NamedTuple):
    version: str
    span: Span
    since_ns: int


class _Answer(NamedTuple):
    version: str
    outcome: Outcome
    message: str
    at_ns: int


class AckSpans:
    """The open spans. Times are Unix nanoseconds; all calls come from one event loop."""

    def __init__(
        self,
        tracer: Tracer,
        registry: CollectorRegistry,
        max_open: int,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._tracer = tracer
        self._max_open = max_open
        self._timeout_ns = int(timeout_seconds * 1e9)
        self._open: OrderedDict[_Key, _Open] = OrderedDict()
        """Oldest first."""
        self._early: OrderedDict[_Key, _Answer] = OrderedDict()
        ended = Counter(
            "warmroute_ack_spans",
            "Pushes of traced weight updates, by how the wait for the client's answer ended",
            ["outcome"],
            registry=registry,
        )
        self._ended = {outcome: ended.labels(outcome) for outcome in OUTCOMES}

    def __len__(self) -> int:
        return len(self._open)

    def pushed(self, client: Client, version: str, update: Context, published_ns: int, now_ns: int) -> None:
        """Begin a client's span as a child of `update`, which was published at `published_ns`."""
        key = _key(client)
        early = self._early.pop(key, None)
        pending = self._open.get(key)
        if pending is not None and pending.version == version:
            return  # More of the same version: its ACK ends it.
        self.superseded(client, now_ns)
        if early is not None and early.version == version:
            # The ACK came before the record of its push.
            span = self._start(client, version, update, published_ns)
            self._end(span, early.outcome, early.message, early.at_ns)
        elif len(self._open) >= self._max_open:
            self._ended["untraced"].inc()
        else:
            self._open[key] = _Open(version, self._start(client, version, update, now_ns), now_ns)

    def answered(self, client: Client, version: str, message: str | None, now_ns: int) -> None:
        """End a client's span by its ACK, or by a NACK with its message."""
        key = _key(client)
        outcome: Outcome = "ack" if message is None else "nack"
        pending = self._open.get(key)
        if pending is not None and pending.version == version:
            del self._open[key]
            self._end(pending.span, outcome, message or "", now_ns)
            return
        self._early[key] = _Answer(version, outcome, message or "", now_ns)
        if len(self._early) > self._max_open:
            self._early.popitem(last=False)

    def superseded(self, client: Client, now_ns: int) -> None:
        """End a client's span because a newer version was sent."""
        self._drop(_key(client), "superseded", now_ns)

    def left(self, client: Client, now_ns: int) -> None:
        """End a client's span because its stream has ended."""
        self._early.pop(_key(client), None)
        self._drop(_key(client), "gone", now_ns)

    def expire(self, now_ns: int) -> None:
        """End the spans that have waited too long. Cheap if there are none."""
        while self._open:
            key, pending = next(iter(self._open.items()))
            if now_ns - pending.since_ns < self._timeout_ns:
                return
            self._drop(key, "timeout", now_ns)

    def _drop(self, key: _Key, outcome: Outcome, now_ns: int) -> None:
        pending = self._open.pop(key, None)
        if pending is not None:
            self._end(pending.span, outcome, "", now_ns)

    def _start(self, client: Client, version: str, update: Context, at_ns: int) -> Span:
        return self._tracer.start_span(
            "warmroute.ack",
            update,
            SpanKind.CLIENT,
            attributes={
                "warmroute.node": client.node_id,
                "warmroute.node_cluster": client.cluster,
                "warmroute.type": TYPE_ENDPOINT,
                "warmroute.version": version,
            },
            start_time=at_ns,
        )

    def _end(self, span: Span, outcome: Outcome, message: str, at_ns: int) -> None:
        self._ended[outcome].inc()
        span.set_attribute("warmroute.outcome", outcome)
        if outcome == "ack":
            span.set_status(StatusCode.OK)
        elif outcome == "nack":
            span.set_status(StatusCode.ERROR, message)
        elif outcome == "timeout":
            span.set_status(StatusCode.ERROR, f"no answer in {self._timeout_ns / 1e9:g} s")
        span.end(at_ns)


def _key(client: Client) -> _Key:
    return client.node_id, client.cluster
