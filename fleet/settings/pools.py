"""Pools, their endpoints and the sources of endpoints."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fleet.settings.address import IpAddress
from fleet.settings.pages import MetricNames, PageSettings
from fleet.settings.sla import HealthCheckSettings, SlaSettings
from fleet.settings.strict import LABELS, FilePath, HttpUrl, Name, Port, Seconds, Strict, Unique
from fleet.settings.tls import PoolTlsSettings
from fleet.settings.upgrades import Protocol, RetryStatuses

EngineKind = Literal["auto", "vllm", "sglang", "tensorrt-llm", "triton", "tgi", "tei", "nim", "llama.cpp"]
"""The engine whose metric names an endpoint uses; `auto`: detected by its metrics page."""
AnyCaseEngineKind = Annotated[
    EngineKind, BeforeValidator(lambda name: name.lower() if isinstance(name, str) else name)
]
"""In any case: `vLLM` is `vllm`."""
DnsFamily = Literal["v4_preferred", "v6_preferred", "v4_only", "v6_only", "all"]
"""Which of a name's A and AAAA records count, in the words of Envoy's `dns_lookup_family`."""
AnyCaseDnsFamily = Annotated[
    DnsFamily, BeforeValidator(lambda name: name.lower() if isinstance(name, str) else name)
]
NodeName = Annotated[str, Field(pattern=r"^[^\s/]*$", max_length=256)]
FaultDomain = Annotated[str, Field(min_length=1, max_length=256)]
GpuName = Annotated[str, Field(pattern=r"^(\d{1,4}|(GPU|MIG)-[A-Za-z0-9-]+(/\d{1,4}){0,2})$", max_length=256)]
"""A GPU's index or UUID, or a MIG slice's UUID or `GPU-UUID/INSTANCE`."""


ModelName = Annotated[str, Field(min_length=1, max_length=256)]


class LocalitySettings(Strict):
    """The locality of an endpoint, as Envoy defines it."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


class KvEventSettings(Strict):
    """Where engines publish their KV-cache events (ZMQ): on their own host, rank n at each port plus n."""

    port: Port
    replay_port: Port | None = None
    """Port that replays missed events. Without it, blocks cached before the subscription stay unknown."""
    topic: Annotated[str, Field(max_length=256)] = ""
    """Only messages whose topic begins with this; empty: all."""
    ranks: Annotated[int, Field(ge=1, le=256)] = 1
    """Data-parallel ranks behind one address."""

    @model_validator(mode="after")
    def _ports_exist(self) -> Self:
        if max(self.port, self.replay_port or 0) + self.ranks - 1 > 65_535:
            raise ValueError("allowed: ports that with the ranks added stay at most 65535")
        return self


class EndpointSettings(Strict):
    """One engine replica; its pool supplies the defaults."""

    address: IpAddress
    models: tuple[str, ...] | None = None
    engine: AnyCaseEngineKind | None = None
    metrics_url: HttpUrl | None = None
    """Default: the pool's, otherwise http://ADDRESS/metrics; with `pools.tls` https://."""
    node: NodeName = ""
    """The host whose GPUs the engine uses, as its GPU agent names it; empty: the address' host."""
    gpus: Annotated[tuple[GpuName, ...], Field(max_length=64), Unique] = ()
    """The GPUs, or MIG slices, that the engine uses; empty: all of its node's."""
    gpu_metrics_url: HttpUrl | None = None
    """A DCGM exporter's page, for nodes without a GPU agent."""
    fault_domains: Annotated[tuple[FaultDomain, ...], Field(max_length=16)] = ()
    """Units that fail as a whole (NVLink island, rack, power feed), in addition to its node."""
    locality: LocalitySettings = LocalitySettings()
    kv_events: KvEventSettings | None = None


class FileDiscoverySettings(Strict):
    """A watched file with a list of endpoints, in the fields of `pools.endpoints`."""

    path: FilePath


class DnsDiscoverySettings(Strict):
    """A name that is resolved periodically: A and AAAA with one port, or SRV."""

    name: Annotated[
        str,
        Field(
            pattern=rf"^{LABELS}\.?$",
            max_length=253,
        ),
    ]
    """Absolute, with or without the last dot: no search domain is tried."""
    kind: Literal["a", "srv"] = "a"
    port: Port | None = None
    """Of kind `a`; SRV records carry their own."""
    family: AnyCaseDnsFamily = "v4_preferred"
    """One family a name: an engine usually has an address of each, and would be there twice. `all`: both."""
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


class DiscoverySettings(Strict):
    """One source of endpoints: exactly one of `file` and `dns` is set."""

    file: FileDiscoverySettings | None = None
    dns: DnsDiscoverySettings | None = None
    metrics: PageSettings | None = None
    """Place of these endpoints' metrics pages; None: the pool's."""
    special_addresses: bool = False
    """Whether link-local, metadata, multicast, broadcast and unspecified addresses are accepted."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.dns is None):
            raise ValueError("allowed: exactly one of file and dns")
        return self


class JoiningSettings(Strict):
    """How endpoints join a pool and leave it."""

    probe: Literal["models", "health", "none"] = "models"
    """Request that a new endpoint must answer before it is served: GET /v1/models, GET /health, or none."""
    probe_interval_seconds: Seconds = 1.0
    probe_timeout_seconds: Seconds = 1.0
    slow_start_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    """A new endpoint's weight grows to its full value in this time; 0: immediately."""
    slow_start_from: Annotated[float, Field(gt=0, le=1)] = 0.1
    drain_seconds: Annotated[float, Field(ge=0, le=86_400)] = 5.0
    """An endpoint that its source no longer lists stays this long, without new requests."""


class PoolSettings(Strict):
    """Engines with the same models behind one Envoy cluster."""

    name: Name
    models: tuple[str, ...] = ()
    """Empty: the pool is assumed to serve every model."""
    aliases: Annotated[dict[ModelName, ModelName], Field(max_length=1024)] = Field(default_factory=dict)
    """Further names of its models to the models' own names: requests get the own name in their bodies."""
    engine: AnyCaseEngineKind = "auto"
    endpoints: tuple[EndpointSettings, ...] = ()
    discovery: tuple[DiscoverySettings, ...] = ()
    """Further sources of endpoints. If several list an address, the first of them counts."""
    metrics: PageSettings | None = None
    """Place of the metrics pages; None: where the engine's kind usually has it."""
    metric_names: MetricNames | None = None
    """None: those of the engine's kind."""
    api_key_file: FilePath | None = None
    """File with the key that engines require, for xds_server's own requests to them; None: no key."""
    joining: JoiningSettings = JoiningSettings()
    kv_events: KvEventSettings | None = None
    """Where the endpoints publish their KV-cache events; None: nowhere."""
    pick_ranks: Literal["auto", "always", "never"] = "auto"
    """Whether picks choose, and requests name, one of the data-parallel ranks behind an address: `auto` for
    vLLM, `always` for SGLang too."""
    tokenizer: FilePath | None = None
    """The models' `tokenizer.json`; None: only prompts of token ids are matched against events."""
    chat_template: FilePath | None = None
    """The models' chat template, or the `tokenizer_config.json` that contains it."""
    connect_timeout_seconds: Seconds = 5.0
    """TCP and TLS together. The default is Envoy's own: a shorter limit fails requests while all engines
    accept connections late, and with `sla` it counts in each attempt."""
    idle_timeout_seconds: Seconds = 4.0
    """Below the engines' own keep-alive (5 s in vLLM), so that no request meets a closing connection."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    retry_on: Annotated[str, Field(pattern=r"^[a-z0-9,-]*$")] = (
        "connect-failure,refused-stream,reset-before-request"
    )
    retry_statuses: RetryStatuses = (503,)
    """Statuses by which an engine refuses a request before it begins; Envoy tries the next engine."""
    sla: SlaSettings | None = None
    """None: no SLA, and retries and limits are those above."""
    health_check: HealthCheckSettings | None = None
    """Envoy's active health check; None: none."""
    tls: PoolTlsSettings | None = None
    """None: plaintext to engines."""
    protocol: Protocol = "http1"
    """`auto`: HTTP/2 once all engines have shown that they speak it; `grpc`: always HTTP/2."""

    @model_validator(mode="after")
    def _template_needs_tokenizer(self) -> Self:
        if self.chat_template is not None and self.tokenizer is None:
            raise ValueError("allowed: chat_template only with a tokenizer")
        return self

    @model_validator(mode="after")
    def _no_pool_name_of_ours(self) -> Self:
        if self.name.startswith("warmroute_"):
            raise ValueError("allowed: pool names that do not begin with warmroute_")
        return self
