"""Pools, their endpoints and where these are found; the listeners before them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fleet.settings.address import IpAddress
from fleet.settings.sla import HealthCheckSettings, SlaSettings
from fleet.settings.strict import Name, Seconds, Strict
from fleet.settings.tls import PoolTlsSettings
from fleet.settings.upgrades import Protocol

EngineKind = Literal["auto", "vllm", "sglang", "tensorrt-llm", "triton", "tgi", "llama.cpp"]
"""Whose metric names an endpoint uses; `auto`: found out from its page."""
AnyCaseEngineKind = Annotated[
    EngineKind, BeforeValidator(lambda given: given.lower() if isinstance(given, str) else given)
]
"""As people write it: `vLLM` is `vllm`."""
NodeName = Annotated[str, Field(pattern=r"^[^\s/]*$", max_length=256)]
FilePath = Annotated[str, Field(pattern=r"^/[^\x00]*$", max_length=4096)]
FaultDomain = Annotated[str, Field(min_length=1, max_length=256)]
GpuName = Annotated[str, Field(pattern=r"^(\d{1,4}|(GPU|MIG)-[A-Za-z0-9-]+(/\d{1,4}){0,2})$", max_length=256)]
"""A GPU's index or UUID, or a MIG slice's UUID or `GPU-UUID/INSTANCE`."""


class LocalitySettings(Strict):
    """Where an endpoint stands, in Envoy's terms."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


class KvEventSettings(Strict):
    """Where engines publish their KV-cache events (ZMQ): on their own host, rank n at each port plus n."""

    port: Annotated[int, Field(ge=1, le=65_535)]
    replay_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Where missed events can be asked for; without it, what an engine held before is never learned."""
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
    """One engine replica; what is left out comes from its pool."""

    address: IpAddress
    models: tuple[str, ...] | None = None
    engine: AnyCaseEngineKind | None = None
    metrics_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] | None = None
    """Default: http://ADDRESS/metrics; with `pools.tls` https:."""
    node: NodeName = ""
    """The host whose GPUs the engine uses, as its GPU agent names it; empty: the address' host."""
    gpus: Annotated[tuple[GpuName, ...], Field(max_length=64)] = ()
    """The GPUs, or MIG slices, that the engine uses; empty: all of its node's."""
    gpu_metrics_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] | None = None
    """A DCGM exporter's page, for nodes without a GPU agent."""
    fault_domains: Annotated[tuple[FaultDomain, ...], Field(max_length=16)] = ()
    """What fails as one with it (NVLink island, rack, power feed), beside its node."""
    locality: LocalitySettings = LocalitySettings()
    kv_events: KvEventSettings | None = None

    @model_validator(mode="after")
    def _each_gpu_once(self) -> Self:
        if len(set(self.gpus)) < len(self.gpus):
            raise ValueError("allowed: each of gpus once")
        return self


class FileDiscoverySettings(Strict):
    """A watched file with a list of endpoints, in the fields of `pools.endpoints`."""

    path: Annotated[str, Field(min_length=1, pattern=r"^/[^\x00]*$", max_length=4096)]


class DnsDiscoverySettings(Strict):
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


class DiscoverySettings(Strict):
    """One source of endpoints: exactly one of its fields is given."""

    file: FileDiscoverySettings | None = None
    dns: DnsDiscoverySettings | None = None
    special_addresses: bool = False
    """Whether link-local, metadata, multicast, broadcast and unspecified addresses are taken as well."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.dns is None):
            raise ValueError("allowed: exactly one of file and dns")
        return self


class JoiningSettings(Strict):
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


class PoolSettings(Strict):
    """Engines that serve the same models behind one Envoy cluster."""

    name: Name
    models: tuple[str, ...] = ()
    """Empty: every model is taken as served."""
    engine: AnyCaseEngineKind = "auto"
    endpoints: tuple[EndpointSettings, ...] = ()
    discovery: tuple[DiscoverySettings, ...] = ()
    """Further sources of endpoints; of an address found twice, the one listed first counts."""
    joining: JoiningSettings = JoiningSettings()
    kv_events: KvEventSettings | None = None
    """Where the endpoints publish their KV-cache events; None: they do not."""
    tokenizer: FilePath | None = None
    """The models' `tokenizer.json`; None: only prompts that are token ids are matched against events."""
    chat_template: FilePath | None = None
    """The models' chat template, or the `tokenizer_config.json` that holds it."""
    connect_timeout_seconds: Seconds = 5.0
    """TCP and TLS together. The default is Envoy's own: a shorter one fails requests where all engines take
    connections late, and with `sla` it counts in each attempt."""
    idle_timeout_seconds: Seconds = 4.0
    """Below the engines' own keep-alive (5 s in vLLM), so that no request meets a closing connection."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    retry_on: Annotated[str, Field(pattern=r"^[a-z0-9,-]*$")] = (
        "connect-failure,refused-stream,reset-before-request"
    )
    sla: SlaSettings | None = None
    """What is promised; None: nothing, and retries and limits are those above."""
    health_check: HealthCheckSettings | None = None
    """Envoy's own probes; None: it has none."""
    tls: PoolTlsSettings | None = None
    """None: engines are spoken to in plaintext."""
    protocol: Protocol = "http1"
    """`auto`: HTTP/2 once all engines have shown that they speak it; `grpc`: HTTP/2, never anything else."""

    @model_validator(mode="after")
    def _template_needs_tokenizer(self) -> Self:
        if self.chat_template is not None and self.tokenizer is None:
            raise ValueError("allowed: chat_template only beside a tokenizer")
        return self

    @model_validator(mode="after")
    def _no_pool_name_of_ours(self) -> Self:
        if self.name.startswith("warmroute_"):
            raise ValueError("allowed: pool names that do not begin with warmroute_")
        return self
