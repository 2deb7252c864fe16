"""The gRPC access log service: Envoys stream the outcome of each request.

An Envoy thread ends its stream, and only Envoy sends on it. The stream outlives every fault: an unreadable
entry is counted and left out without loss of other entries, so our faults never reach an Envoy, and its log
never piles up there. All streams take turns with small batches of entries; between batches the event loop
serves other tasks.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
from prometheus_client import Counter, Gauge

from fleet.names import ACCESS_LOG_NAME, UNSEEN_ROUTES
from fleet.service.serving import add_methods
from fleet.service.turns import Turns
from xds_server.access_log.batches import batches_of, log_name
from xds_server.access_log.entry import finished_of
from xds_server.access_log.finished import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from xds_server.access_log.finished import Finished

_log = logging.getLogger(__name__)

MAX_STREAMS: Final = 20_000
"""Each thread of each Envoy holds one."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Of messages of all streams that are being read: half a minute of the entries that one loop can read."""
_OTHER: Final = "other"
"""Label of clusters that are none of the pools."""
_CODES: Final = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")


class AccessLogMetrics:
    """Counters of the access log."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"warmroute_{name}", text, labels, registry=registry)

        self.streams = Gauge(
            "warmroute_access_log_streams", "Threads of Envoys that send access logs", registry=registry
        )
        self.malformed = counter(
            "access_log_malformed",
            "Access log messages and entries that could not be read, or for which there was no room",
        )
        self.mended = counter(
            "access_log_mended", "Access log entries with text that is no UTF-8, read without it"
        )
        self.faults = counter("access_log_faults", "Access log entries lost by a fault of ours")
        self.requests = counter(
            "served_requests",
            "Requests that Envoys finished, by pool and class of status; none: the client left before",
            "pool",
            "code_class",
        )
        self.retries = counter("served_retries", "Attempts beyond the first, by pool", "pool")
        picks = counter(
            "served_picks",
            "Finished requests by what became of ext_proc's pick: honoured, elsewhere (after a retry, or the "
            "endpoint had left) or none",
            "outcome",
        )
        unseen = counter(
            "unseen_requests",
            "Finished requests on which ext_proc has not decided, by cause: not POST (method), another "
            "content type, an upgrade, or no answer (unanswered)",
            "cause",
        )
        self.unseen = {cause: unseen.labels(cause) for cause in (*UNSEEN_ROUTES.values(), UNANSWERED)}
        self.honoured, self.elsewhere, self.unpicked = map(picks.labels, ("honoured", "elsewhere", "none"))


class _PoolCounts:
    """Label children of one pool, bound once: they are looked up for each request."""

    __slots__ = ("by_class", "retries")

    def __init__(self, metrics: AccessLogMetrics, pool: str) -> None:
        self.by_class = [metrics.requests.labels(pool, name) for name in _CODES]
        self.retries = metrics.retries.labels(pool)


class AccessLogService:
    """Serves `envoy.service.accesslog.v3.AccessLogService`.

    `take` gets each finished request and each WebSocket that has opened, `observers` get the former. They
    must not raise; an exception is counted and logged once.
    """

    def __init__(
        self,
        take: Callable[[Finished, float], None],
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
        observers: Sequence[Callable[[Finished], None]] = (),
    ) -> None:
        self._take = take
        self._observers = tuple(observers)
        self._clock = clock
        self._metrics = AccessLogMetrics(registry)
        self._pools: dict[str, _PoolCounts] = {_OTHER: _PoolCounts(self._metrics, _OTHER)}
        self._turns = Turns()
        self._streams = self._bytes = 0
        self._failing = self._full = False

    @property
    def listening(self) -> bool:
        """Whether any Envoy sends its access log now: otherwise silence has no meaning."""
        return self._streams > 0

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server that has not started."""
        method = grpc.stream_unary_rpc_method_handler(
            self._serve, request_deserializer=None, response_serializer=None
        )
        handlers = {"StreamAccessLogs": method}
        name = "envoy.service.accesslog.v3.AccessLogService"
        add_methods(server, name, handlers)

    def follow(self, pools: Iterable[str]) -> None:
        """Label requests by these pools; all others count as `other`."""
        for pool in pools:
            if pool not in self._pools:
                self._pools[pool] = _PoolCounts(self._metrics, pool)

    async def _serve(self, messages: Any, context: Any) -> bytes:
        if self._streams >= MAX_STREAMS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"at most {MAX_STREAMS} streams")
        self._streams += 1
        self._metrics.streams.set(self._streams)
        try:
            async for message in messages:
                await self.read(message)
                del message  # It may be large, and the next one may be long in coming.
        finally:
            self._streams -= 1
            self._metrics.streams.set(self._streams)
        return b""  # An empty StreamAccessLogsResponse.

    async def read(self, message: bytes) -> None:
        """Take in one message, batch by batch; it never raises for its content.

        A message beyond `MAX_BYTES` is counted and left out.
        """
        if self._bytes + len(message) > MAX_BYTES:
            self._metrics.malformed.inc()
            if not self._full:
                text = "%d bytes of access logs wait to be read (allowed: %d): a message is left out"
                _log.warning(text, self._bytes, MAX_BYTES)
            self._full = True
            return
        self._bytes += len(message)
        try:
            await self._read(message)
        finally:
            self._bytes -= len(message)
        self._full = self._full and self._bytes > 0

    async def _read(self, message: bytes) -> None:
        if (name := log_name(message)) not in ("", ACCESS_LOG_NAME):
            _log.warning("an Envoy sends an access log of another name, %.40r", name)
        batches = batches_of(message, self._metrics.mended.inc)
        await self._turns.run_all(map(self._take_batch, batches))

    def _take_batch(self, entries: list[Any]) -> None:
        now = self._clock()
        for entry in entries:
            if entry is None:
                self._metrics.malformed.inc()
                continue
            try:
                finished = finished_of(entry)
            except (ValueError, OverflowError):
                self._metrics.malformed.inc()
                continue
            if finished is None:
                continue
            try:
                self._take(finished, now)
                if finished.established:
                    continue  # Its end counts and has the span.
                self._count(finished)
                for observer in self._observers:
                    observer(finished)
            except Exception:  # noqa: BLE001 - the one edge: a fault of ours must end no stream of an Envoy
                self._metrics.faults.inc()
                if not self._failing:
                    _log.exception("an access log entry was lost")
                self._failing = True

    def _count(self, finished: Finished) -> None:
        counts = self._pools.get(finished.cluster) or self._pools[_OTHER]
        counts.by_class[min(max(finished.status // 100, 0), 5)].inc()
        if finished.attempts > 1:
            counts.retries.inc(finished.attempts - 1)
        if finished.unseen:
            self._metrics.unseen[finished.unseen].inc()
        if not finished.picked:
            self._metrics.unpicked.inc()
        elif finished.picked == finished.address:
            self._metrics.honoured.inc()
        else:
            self._metrics.elsewhere.inc()
