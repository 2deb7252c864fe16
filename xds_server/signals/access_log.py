"""The gRPC access log service: Envoys stream what became of each request.

A stream lasts as long as its Envoy's thread likes, and only Envoy speaks on it. Whatever arrives, the stream
goes on: a message or an entry that cannot be read is counted and left out, so no Envoy is ever told of a
fault of ours, and its log never piles up there. Entries are read in small portions, between which the event
loop serves everybody else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import grpc
from envoy.service.accesslog.v3 import als_pb2
from google.protobuf.message import DecodeError
from prometheus_client import Counter, Gauge

from fleet.names import ACCESS_LOG_NAME, DESTINATION_KEY, DESTINATION_NAMESPACE, METADATA_NAMESPACE
from xds_server.signals.served import Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import CollectorRegistry

_log = logging.getLogger(__name__)

MOST_ATTEMPTS: Final = 100
"""An entry that tells of more is held to tell of so many: Envoy retries far less often, and one such number
would spoil a sum for ever."""
PORTION: Final = 64
"""Entries read in one turn of the event loop: about 2 ms."""
MAX_STREAMS: Final = 20_000
"""Each thread of each Envoy holds one."""
_OTHER: Final = "other"
"""Label of clusters that are none of the pools."""
_CODES: Final = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
_FLAGS: Final = {
    "failed_local_healthcheck": "LH",
    "no_healthy_upstream": "UH",
    "upstream_request_timeout": "UT",
    "local_reset": "LR",
    "upstream_remote_reset": "UR",
    "upstream_connection_failure": "UF",
    "upstream_connection_termination": "UC",
    "upstream_overflow": "UO",
    "no_route_found": "NR",
    "downstream_connection_termination": "DC",
    "downstream_remote_reset": "DR",
    "upstream_retry_limit_exceeded": "URX",
    "stream_idle_timeout": "SI",
    "downstream_protocol_error": "DPE",
    "upstream_protocol_error": "UPE",
    "upstream_max_stream_duration_reached": "UMSDR",
    "duration_timeout": "DT",
    "no_cluster_found": "NC",
    "overload_manager": "OM",
}
"""Envoy's field to its short name; a flag that is not here keeps its field's name."""


@dataclass(frozen=True, slots=True)
class AccessLogMetrics:
    """What the access log counts."""

    streams: Gauge
    malformed: Counter
    faults: Counter
    requests: Counter
    retries: Counter
    picks: Counter

    @classmethod
    def of(cls, registry: CollectorRegistry) -> AccessLogMetrics:
        """Create the metrics in a registry."""
        picks = Counter(
            "warmroute_served_picks",
            "Finished requests by what became of ext_proc's pick: honoured, elsewhere (after a retry, or the "
            "endpoint had left) or none",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("honoured", "elsewhere", "none"):
            picks.labels(outcome)
        return cls(
            Gauge(
                "warmroute_access_log_streams", "Threads of Envoys that tell of requests", registry=registry
            ),
            Counter(
                "warmroute_access_log_malformed",
                "Access log messages and entries that could not be read",
                registry=registry,
            ),
            Counter(
                "warmroute_access_log_faults",
                "Access log entries lost by a fault of ours",
                registry=registry,
            ),
            Counter(
                "warmroute_served_requests",
                "Requests that Envoys finished, by pool and class of status; none: the client left before",
                ["pool", "code_class"],
                registry=registry,
            ),
            Counter(
                "warmroute_served_retries",
                "Attempts beyond the first, by pool",
                ["pool"],
                registry=registry,
            ),
            picks,
        )


class _PoolCounts:
    """Label children of one pool, bound once: they are looked up for each request."""

    __slots__ = ("by_class", "retries")

    def __init__(self, metrics: AccessLogMetrics, pool: str) -> None:
        self.by_class = [metrics.requests.labels(pool, name) for name in _CODES]
        self.retries = metrics.retries.labels(pool)


class AccessLogService:
    """Serves `envoy.service.accesslog.v3.AccessLogService`; hands each finished request to `take`.

    `on_request` hears of each too, for spans of sampled requests; it must not raise, and what it raises is
    counted and logged once.
    """

    def __init__(
        self,
        take: Callable[[Finished, float], None],
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_request: Callable[[Finished], None] | None = None
        self._take = take
        self._clock = clock
        self._metrics = AccessLogMetrics.of(registry)
        self._pools: dict[str, _PoolCounts] = {_OTHER: _PoolCounts(self._metrics, _OTHER)}
        self._picks = [self._metrics.picks.labels(name) for name in ("honoured", "elsewhere", "none")]
        self._streams = 0
        self._failing = False

    @property
    def listening(self) -> bool:
        """Whether any Envoy tells us of its requests now: only then does silence say anything."""
        return self._streams > 0

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server that has not started."""
        method = grpc.stream_unary_rpc_method_handler(
            self._serve, request_deserializer=None, response_serializer=None
        )
        handlers = {"StreamAccessLogs": method}
        name = "envoy.service.accesslog.v3.AccessLogService"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

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
        finally:
            self._streams -= 1
            self._metrics.streams.set(self._streams)
        return b""  # An empty StreamAccessLogsResponse.

    async def read(self, message: bytes) -> None:
        """Take in one message, in portions; it never raises for what the message holds."""
        try:
            parsed = als_pb2.StreamAccessLogsMessage.FromString(message)
        except DecodeError:
            self._metrics.malformed.inc()
            return
        if parsed.HasField("identifier") and parsed.identifier.log_name not in ("", ACCESS_LOG_NAME):
            _log.warning("an Envoy sends an access log of another name, %.40r", parsed.identifier.log_name)
        entries = iter(parsed.http_logs.log_entry)
        while portion := list(islice(entries, PORTION)):
            self._portion(portion)
            if len(portion) == PORTION:
                await asyncio.sleep(0)

    def _portion(self, entries: list[Any]) -> None:
        now = self._clock()
        for entry in entries:
            try:
                finished = finished_of(entry)
            except (ValueError, OverflowError):
                self._metrics.malformed.inc()
                continue
            if finished is None:
                continue
            try:
                self._count(finished)
                self._take(finished, now)
                if self.on_request is not None:
                    self.on_request(finished)
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
        if not finished.picked:
            self._picks[2].inc()
        else:
            self._picks[0 if finished.picked == finished.address else 1].inc()


def finished_of(entry: Any) -> Finished | None:
    """Read an `HTTPAccessLogEntry`; None for a note of a request that still goes on.

    Raises:
        ValueError: a time that is no time.
    """
    common = entry.common_properties
    if common.intermediate_log_entry:
        return None
    filters = common.metadata.filter_metadata
    first = seconds = None
    if common.HasField("time_to_first_upstream_rx_byte"):
        first = _seconds(common.time_to_first_upstream_rx_byte)
    if common.HasField("time_to_last_downstream_tx_byte"):
        seconds = _seconds(common.time_to_last_downstream_tx_byte)
    elif common.HasField("duration"):
        seconds = _seconds(common.duration)
    flags: tuple[str, ...] = ()
    if common.HasField("response_flags"):
        flags = tuple(_flags(common.response_flags))
    started = common.start_time
    return Finished(
        address=_address(common.upstream_remote_address),
        picked=_picked(filters),
        cluster=common.upstream_cluster,
        request_id=entry.request.request_id,
        started_at=started.seconds + started.nanos * 1e-9,
        first_byte_seconds=first,
        duration_seconds=seconds,
        status=entry.response.response_code.value,
        flags=flags,
        attempts=min(common.upstream_request_attempt_count, MOST_ATTEMPTS),
        metadata=_metadata(filters),
    )


def _seconds(duration: Any) -> float:
    value: float = duration.seconds + duration.nanos * 1e-9
    if value < 0:
        raise ValueError("a negative duration")
    return value


def _address(address: Any) -> str:
    if not address.HasField("socket_address"):
        return ""
    held = address.socket_address
    host: str = held.address
    return f"[{host}]:{held.port_value}" if ":" in host else f"{host}:{held.port_value}"


def _flags(flags: Any) -> Iterator[str]:
    for field, value in flags.ListFields():
        if value is True:
            yield _FLAGS.get(field.name, field.name)


def _picked(filters: Any) -> str:
    if DESTINATION_NAMESPACE not in filters:
        return ""
    fields = filters[DESTINATION_NAMESPACE].fields
    if DESTINATION_KEY not in fields:
        return ""
    picked: str = fields[DESTINATION_KEY].string_value
    return picked.partition(",")[0].strip()


def _metadata(filters: Any) -> dict[str, str]:
    if METADATA_NAMESPACE not in filters:
        return {}
    return {
        key: value.string_value
        for key, value in filters[METADATA_NAMESPACE].fields.items()
        if value.WhichOneof("kind") == "string_value"
    }
