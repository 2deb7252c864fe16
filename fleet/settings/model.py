"""Every setting, with its unit, default and range. Unknown fields and wrong types are refused.

`docs/settings.md` lists the same fields; a test compares the two.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fleet.settings.address import IpAddress, ServerAddress, TcpAddress, is_local
from fleet.settings.strict import Name, NotNegative, Positive, Seconds, Share
from fleet.settings.strict import Strict as _Strict
from fleet.settings.topology import TopologySettings


class LocalitySettings(_Strict):
    """Where an endpoint stands, in Envoy's terms."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


class EndpointSettings(_Strict):
    """One engine replica; what is left out comes from its pool."""

    address: IpAddress
    models: tuple[str, ...] | None = None
    engine: Literal["vllm"] | None = None
    metrics_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] | None = None
    """Default: http://ADDRESS/metrics."""
    locality: LocalitySettings = LocalitySettings()


class FileDiscoverySettings(_Strict):
    """A watched file with a list of endpoints, in the fields of `pools.endpoints`."""

    path: Annotated[str, Field(min_length=1, pattern=r"^/[^\x00]*$", max_length=4096)]


class DnsDiscoverySettings(_Strict):
    """A name that is resolved again and again: A and AAAA with one port, or SRV."""

    name: Annotated[
        str,
        Field(
            pattern=r"^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$",
            max_length=253,
        ),
    ]
    """Absolute, with or without the last dot: no search domain is tried."""
    kind: Literal["a", "srv"] = "a"
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Of kind `a`; SRV records carry their own."""
    min_ttl_seconds: Seconds = 5.0
    max_ttl_seconds: Seconds = 60.0
    nameservers: tuple[IpAddress, ...] = ()
    """Empty: those of the system."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.kind == "a") != (self.port is not None):
            raise ValueError("allowed: a port with kind a, none with kind srv")
        if self.min_ttl_seconds > self.max_ttl_seconds:
            raise ValueError("allowed: min_ttl_seconds of at most max_ttl_seconds")
        return self


class DiscoverySettings(_Strict):
    """One source of endpoints: exactly one of its fields is given."""

    file: FileDiscoverySettings | None = None
    dns: DnsDiscoverySettings | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.dns is None):
            raise ValueError("allowed: exactly one of file and dns")
        return self


class JoiningSettings(_Strict):
    """How endpoints come into a pool and leave it."""

    probe: Literal["models", "health", "none"] = "models"
    """What must answer before a new endpoint is served: GET /v1/models, GET /health, or nothing."""
    probe_interval_seconds: Seconds = 1.0
    probe_timeout_seconds: Seconds = 1.0
    slow_start_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    """A new endpoint's weight grows to its full value in this time; 0: at once."""
    slow_start_from: Annotated[float, Field(gt=0, le=1)] = 0.1
    drain_seconds: Annotated[float, Field(ge=0, le=86_400)] = 5.0
    """An endpoint that is no longer found stays this long, without new requests."""


class PoolSettings(_Strict):
    """Engines that serve the same models behind one Envoy cluster."""

    name: Name
    models: tuple[str, ...] = ()
    """Empty: every model is taken as served."""
    engine: Literal["vllm"] = "vllm"
    endpoints: tuple[EndpointSettings, ...] = ()
    discovery: tuple[DiscoverySettings, ...] = ()
    """Further sources of endpoints; of an address found twice, the one listed first counts."""
    joining: JoiningSettings = JoiningSettings()
    connect_timeout_seconds: Seconds = 1.0
    idle_timeout_seconds: Seconds = 4.0
    """Below the engines' own keep-alive (5 s in vLLM), so that no request meets a closing connection."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    retry_on: Annotated[str, Field(pattern=r"^[a-z0-9,-]*$")] = (
        "connect-failure,refused-stream,reset-before-request"
    )

    @model_validator(mode="after")
    def _no_pool_name_of_ours(self) -> Self:
        if self.name.startswith("warmroute_"):
            raise ValueError("allowed: pool names that do not begin with warmroute_")
        return self


class ListenerSettings(_Strict):
    """One Envoy listener that sends to one pool."""

    name: Name
    address: IpAddress
    pool: Name
    show_decision: bool = True
    """Response headers that tell the client the chosen endpoint, matched share and reason."""
    session_header: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")] = "x-session-id"
    """The fallback's Maglev hashes it, so that sessions stay put when ext_proc is away."""
    large_body_bytes: Annotated[int, Field(ge=1024, le=16_777_216)] = 262_144
    """From this content-length on only the leading part of a body goes to ext_proc."""
    stream_idle_timeout_seconds: Seconds = 3600.0
    """A token stream may be silent this long (a long prefill is silence too)."""


class XdsSettings(_Strict):
    """Where the discovery service listens and how often it computes."""

    address: ServerAddress = "unix:/run/warmroute/xds.sock"
    tick_seconds: Seconds = 0.25
    state_path: Annotated[str, Field(pattern=r"^(/[^\x00]*)?$", max_length=4096)] | None = None
    """File of the last good state; empty: none. By default beside the Unix socket of `address`."""


class SignalSettings(_Strict):
    """Reading the engines' metrics pages."""

    scrape_interval_seconds: Seconds = 1.0
    scrape_timeout_seconds: Seconds = 0.8
    stale_after_seconds: Seconds = 10.0
    latency_window_seconds: Seconds = 30.0


class HeadroomSettings(_Strict):
    """Constants of `headroom`: 1 / (memory + queue + latency), each normalised to [0, 1]."""

    memory: NotNegative = 0.4
    queue: NotNegative = 0.3
    latency: NotNegative = 0.3
    safe_queue: Positive = 32.0
    reference_latency_seconds: Seconds = 2.0

    @model_validator(mode="after")
    def _something_counts(self) -> Self:
        if self.memory + self.queue + self.latency <= 0:
            raise ValueError("allowed: at least one of memory, queue and latency above 0")
        return self


class StabiliserSettings(_Strict):
    """What keeps weights from following noise."""

    smoothing_seconds: NotNegative = 3.0
    """Time constant of the exponential smoothing; 0 switches it off."""
    dead_band_ratio: Share = 0.1
    """A weight moves only past this relative change."""
    minimum_interval_seconds: NotNegative = 1.0
    """Between two weight updates; membership goes out at once."""
    floor_share: Share = 0.05
    """Every endpoint keeps this share of the equal share, so that it can recover."""
    max_unhealthy_share: Share = 0.5
    """At most this share of a pool is marked unhealthy."""


class WeightSettings(_Strict):
    """How loads become weights."""

    strategy: Literal["headroom"] = "headroom"
    headroom: HeadroomSettings = HeadroomSettings()
    stabiliser: StabiliserSettings = StabiliserSettings()
    topology: TopologySettings = TopologySettings()


class CostSettings(_Strict):
    """Constants of the `cost` pick: queue ahead + cold_price x cold prefill, in seconds."""

    cold_price: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Cold work counts this many times its own time, because it delays those who come later."""
    prefill_tokens_per_second: Positive = 20_000.0
    """Used where the engine's own rate is unknown."""
    bytes_per_token: Positive = 4.0
    in_flight_seconds: NotNegative = 0.01
    """What each request in flight adds to the wait."""
    memory_pressure_from: Share = 0.9
    """KV memory in use above this adds up to `memory_pressure_seconds`."""
    memory_pressure_seconds: NotNegative = 1.0


class PickSettings(_Strict):
    """How an endpoint is chosen for a request."""

    strategy: Literal["cost"] = "cost"
    cost: CostSettings = CostSettings()
    block_bytes: Annotated[int, Field(ge=16, le=65_536)] = 256
    fallbacks: Annotated[int, Field(ge=0, le=16)] = 2
    """Endpoints named after the first, for retries."""
    cold_without_load: Literal["weights", "rendezvous"] = "weights"
    """Who decides when nothing is warm and no load is known."""


class ExtProcSettings(_Strict):
    """Where the external processor listens, where Envoy finds it, and how it picks."""

    address: ServerAddress = "unix:/run/warmroute/ext_proc.sock"
    message_timeout_seconds: Annotated[float, Field(gt=0, le=10)] = 0.25
    pick: PickSettings = PickSettings()


class ControlSettings(_Strict):
    """The stream between xds_server and ext_proc workers that run apart."""

    address: ServerAddress = "unix:/run/warmroute/control.sock"


class AdminSettings(_Strict):
    """The admin HTTP server: status, health and /metrics. Empty address: off."""

    address: TcpAddress | Literal[""] = "127.0.0.1:19000"
    ext_proc_address: TcpAddress | Literal[""] = "127.0.0.1:19001"
    """For `warmroute ext-proc`, which may run on the same host."""


class TelemetrySettings(_Strict):
    """OpenTelemetry traces. OTLP's endpoint is OTEL_EXPORTER_OTLP_ENDPOINT, as everywhere."""

    traces: Literal["none", "console", "otlp"] = "none"
    pick_sample_ratio: Share = 0.01
    service_name: Name = "warmroute"


class LimitSettings(_Strict):
    """Over a limit a request still goes through, unrouted and counted."""

    body_bytes: Annotated[int, Field(ge=1024, le=268_435_456)] = 524_288
    """Leading bytes of a body that are inspected: as much as `prompt_blocks` can use."""
    prompt_blocks: Annotated[int, Field(ge=1, le=65_536)] = 2048
    index_blocks_per_endpoint: Annotated[int, Field(ge=16, le=100_000_000)] = 200_000
    ext_proc_streams: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    xds_streams: Annotated[int, Field(ge=1, le=100_000)] = 2000
    node_groups: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Places of Envoys that get weights by distance; Envoys beyond that get them without."""
    metrics_page_bytes: Annotated[int, Field(ge=1024, le=268_435_456)] = 8_388_608
    endpoints: Annotated[int, Field(ge=1, le=100_000)] = 5000
    drain_seconds: Seconds = 5.0


class Settings(_Strict):
    """The whole of warmroute.yaml."""

    pools: Annotated[tuple[PoolSettings, ...], Field(min_length=1)]
    listeners: Annotated[tuple[ListenerSettings, ...], Field(min_length=1)]
    xds: XdsSettings = XdsSettings()
    signals: SignalSettings = SignalSettings()
    weights: WeightSettings = WeightSettings()
    ext_proc: ExtProcSettings = ExtProcSettings()
    control: ControlSettings = ControlSettings()
    admin: AdminSettings = AdminSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    limits: LimitSettings = LimitSettings()
    allow_plaintext: bool = False
    """Addresses beyond Unix sockets and loopback are refused without it: they carry no TLS yet."""

    def exposed(self) -> list[tuple[str, str]]:
        """Return path and value of each service address that other hosts could reach."""
        addresses = [
            ("xds.address", self.xds.address),
            ("ext_proc.address", self.ext_proc.address),
            ("control.address", self.control.address),
            ("admin.address", self.admin.address),
            ("admin.ext_proc_address", self.admin.ext_proc_address),
        ]
        return [(path, address) for path, address in addresses if address and not is_local(address)]
