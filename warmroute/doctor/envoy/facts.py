"""Facts about an Envoy, frozen: its configuration with defaults filled in, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_BUFFER_BYTES: Final = 1024 * 1024
DEFAULT_BREAKER: Final = 1024
DEFAULT_RETRIES_AT_ONCE: Final = 3
DEFAULT_ROUTE_TIMEOUT_SECONDS: Final = 15.0
DEFAULT_STREAM_IDLE_SECONDS: Final = 300.0
DEFAULT_MESSAGE_TIMEOUT_SECONDS: Final = 0.2
DEFAULT_NO_TRAFFIC_SECONDS: Final = 60.0
DEFAULT_PANIC_PERCENT: Final = 50.0
DEFAULT_UPSTREAM_IDLE_SECONDS: Final = 3600.0
DEFAULT_CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Mode:
    """The processing mode: the parts of a request that ext_proc receives."""

    request_headers: str = "SEND"
    request_body: str = "NONE"
    response_headers: str = "SEND"
    response_body: str = "NONE"


@dataclass(frozen=True, slots=True)
class ExtProc:
    """An external processor, as it is in force somewhere."""

    cluster: str = ""
    """"" when Envoy calls it by other means than a cluster."""
    mode: Mode = Mode()
    failure_mode_allow: bool = False
    message_timeout_seconds: float = DEFAULT_MESSAGE_TIMEOUT_SECONDS
    receives: frozenset[str] = frozenset()
    """Namespaces of dynamic metadata that it may set."""
    observes: bool = False
    """Envoy does not wait for it."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One HTTP filter, as it is in force somewhere."""

    name: str
    kind: str
    """The folder of its extension: `ext_proc`, `buffer`, `local_ratelimit`; "" if unknown."""
    where: str
    ext_proc: ExtProc | None = None
    buffer_bytes: int | None = None
    removes: frozenset[str] = frozenset()
    """Request headers that it removes or overwrites, in small letters."""


@dataclass(frozen=True, slots=True)
class Manager:
    """An HTTP connection manager and what of its listener matters."""

    where: str
    listener: str
    stat_prefix: str = ""
    buffer_bytes: int | None = DEFAULT_BUFFER_BYTES
    """The listener's limit; None: none."""
    buffer_where: str = ""
    stream_idle_seconds: float = DEFAULT_STREAM_IDLE_SECONDS
    """0: off, as in every time limit here."""
    request_seconds: float = 0.0
    max_stream_seconds: float = 0.0
    max_concurrent_streams: int | None = None
    removes: frozenset[str] = frozenset()
    """Request headers that are removed or overwritten before any filter and route sees them."""
    log_clusters: frozenset[str] = frozenset()
    """Clusters of the gRPC access logs."""


@dataclass(frozen=True, slots=True)
class HeaderMatch:
    """One condition of a route on a header."""

    name: str
    present: bool = False
    """It matches on presence alone, or on absence when inverted."""
    inverted: bool = False
    exact: str = ""
    end: int | None = None
    """Upper end, exclusive, of a range."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy."""

    where: str
    on: frozenset[str] = frozenset()
    times: int = 1
    status_codes: frozenset[int] = frozenset()
    per_try_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Route:
    """A route that leads to a cluster."""

    where: str
    cluster: str
    cluster_header: str = ""
    every_path: bool = False
    grpc: bool = False
    headers: tuple[HeaderMatch, ...] = ()
    timeout_seconds: float = DEFAULT_ROUTE_TIMEOUT_SECONDS
    timeout_is_set: bool = False
    idle_seconds: float | None = None
    max_stream_seconds: float | None = None
    buffer_bytes: int | None = None
    retry: Retry | None = None
    hash_headers: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()
    """Request headers that the route adds towards the upstream, in small letters."""
    removes: frozenset[str] = frozenset()
    """Those that it removes: after the filters, before a host is chosen."""

    @property
    def retries(self) -> Retry | None:
        """The retry policy, unless it allows no retry."""
        return self.retry if self.retry and self.retry.times else None

    @property
    def longest_body_bytes(self) -> int | None:
        """The longest body whose declared length this route matches; None: any."""
        ends = [match.end for match in self.headers if match.name == "content-length" and match.end]
        return min(ends) - 1 if ends else None


@dataclass(frozen=True, slots=True)
class Passage:
    """One way of requests through this Envoy: a manager, the filters in force, a route."""

    manager: Manager
    route: Route
    filters: tuple[Filter, ...]
    """In order, without those that are disabled on this way."""
    upgrade: bool = False
    """A way of WebSocket handshakes; otherwise of ordinary requests with bodies."""

    def first(self, kind: str) -> Filter | None:
        """The first filter of a kind."""
        return next((entry for entry in self.filters if entry.kind == kind), None)

    @property
    def processors(self) -> tuple[tuple[int, Filter, ExtProc], ...]:
        """The external processors that Envoy waits for, with their positions."""
        return tuple(
            (position, entry, entry.ext_proc)
            for position, entry in enumerate(self.filters)
            if entry.ext_proc is not None and not entry.ext_proc.observes
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """How a cluster balances: the policy in force and those behind it."""

    name: str
    """`round_robin`, `least_request`, `override_host`, ..."""
    metadata_sources: tuple[str, ...] = ()
    header_sources: tuple[str, ...] = ()
    fallback: str = ""
    slow_start: bool = False

    @property
    def by_weights(self) -> str:
        """The policy that goes by weights."""
        return self.fallback or self.name


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """An active health check."""

    where: str
    grpc: bool
    timeout_seconds: float
    interval_seconds: float
    no_traffic_seconds: float
    unhealthy_threshold: int
    one_answer_is_enough: bool
    """A single answer with another status than is expected takes a host out, whatever the threshold."""


@dataclass(frozen=True, slots=True)
class Breakers:
    """Circuit breakers of the default priority; None where Envoy's default holds."""

    max_connections: int | None = None
    max_pending: int | None = None
    max_requests: int | None = None
    max_retries: int | None = None
    retry_budget: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """One upstream cluster."""

    name: str
    where: str
    discovery: str = "STATIC"
    http2: bool = False
    http1: bool = True
    """Whether it may speak HTTP/1.1."""
    tls: bool = False
    connect_seconds: float = DEFAULT_CONNECT_SECONDS
    """For TCP and TLS together."""
    keepalive_seconds: float | None = None
    """Between HTTP/2 pings; None: no pings."""
    max_concurrent_streams: int | None = None
    idle_seconds: float = DEFAULT_UPSTREAM_IDLE_SECONDS
    max_stream_seconds: float = 0.0
    breakers: Breakers = Breakers()
    health_checks: tuple[HealthCheck, ...] = ()
    panic_percent: float = DEFAULT_PANIC_PERCENT
    policy: Policy = Policy("round_robin")
    outlier: bool = False
    destination_header: str = ""
    """Of an original-destination cluster that believes a header."""
    weights: tuple[int, ...] | None = None
    """Of its endpoints, those without one as 1; None: its endpoints are unknown."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters and gauges by name, and P99 of histograms in their own unit."""

    values: Mapping[str, float] = field(default_factory=dict)
    p99s: Mapping[str, float] = field(default_factory=dict)

    def of(self, name: str) -> float:
        """A counter or gauge; 0 when there is none of that name."""
        return self.values.get(name, 0.0)


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that rules may ask about."""

    passages: tuple[Passage, ...]
    clusters: Mapping[str, Cluster]
    managers: tuple[Manager, ...] = ()
    grpc_users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Cluster to where gRPC services are that go through it."""
    ads_cluster: str = ""
    stats: Stats = Stats()
