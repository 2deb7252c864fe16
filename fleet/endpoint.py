"""Endpoints, pools and the membership. Frozen: they change only as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Locality:
    """The locality of an endpoint, as Envoy defines it."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


@dataclass(frozen=True, slots=True)
class KvEventSource:
    """Where an engine publishes its KV-cache events; data-parallel rank n uses these ports plus n."""

    port: int
    replay_port: int = 0
    """0: none."""
    topic: str = ""
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One engine replica. `address` is `host:port` (IPv6 in brackets) and is its identity in the fleet."""

    address: str
    pool: str
    models: tuple[str, ...] = ()
    engine: str = "auto"
    metrics_url: str = ""
    locality: Locality = Locality()
    node: str = ""
    """The host whose GPUs the engine uses, as its GPU agent names it; the address' host by default."""
    gpus: tuple[str, ...] = ()
    """UUIDs or indices of its GPUs; empty: all of its node's."""
    gpu_metrics_url: str = ""
    """A DCGM exporter's page; empty: none."""
    fault_domains: tuple[str, ...] = ()
    """Units that fail as a whole, its node included."""
    kv_events: KvEventSource | None = None
    """None: the engine publishes none."""
    metric_names: tuple[tuple[str, str], ...] = ()
    """What is measured, and the sample that tells it, next to those of the engine's kind."""
    api_key_file: str = ""
    """File with the key for probes and pages on the engine's host; empty: none."""
    screened: bool = False
    """Whether its pages are read only at addresses that an engine may have: discovery names them, not the
    settings."""
    listed: tuple[str, ...] = ()
    """Models that the engine itself lists in addition, such as LoRA adapters."""
    own_names: tuple[str, ...] = ()
    """Those of `models` that its engine lists as its own model, not as an adapter; empty: unknown, or one."""

    @property
    def host(self) -> str:
        """The host without brackets, as in Envoy's socket address."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port."""
        return int(self.address.rpartition(":")[2])


def address_of(host: str, port: int) -> str:
    """Join host and port as addresses, authorities and URLs have them: an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Engines that serve the same models behind one Envoy cluster. `name` is the cluster's name."""

    name: str
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True)
class Membership:
    """All pools. An address is in one pool only."""

    pools: tuple[Pool, ...] = ()

    @cached_property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint, in the order of the pools."""
        return tuple(endpoint for pool in self.pools for endpoint in pool.endpoints)

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        """Every endpoint's address, in the order of the pools."""
        return tuple(endpoint.address for endpoint in self.endpoints)

    @cached_property
    def by_address(self) -> Mapping[str, Endpoint]:
        """Address to endpoint."""
        return {endpoint.address: endpoint for endpoint in self.endpoints}
