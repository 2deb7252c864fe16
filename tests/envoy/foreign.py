"""Envoys as other people configure them, static and without a word of ours, before the product's ext_proc."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.director.director import Director
from ext_proc.idempotency.guard import Idempotency
from ext_proc.processor import ExternalProcessor
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.names import DESTINATION_KEY
from fleet.settings import parse_settings
from fleet.store import FleetStore, FleetView
from tests.envoy.conftest import Engines, eventually, free_address
from tests.envoy.processors import mother
from tests.ext_proc.transports import serving
from warmroute.demo.envoy import EnvoyProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from ext_proc.pick import PickResult
    from ext_proc.server import ExtProcService

_PRE = "type.googleapis.com/envoy."
_POLICY = f"{_PRE}extensions.load_balancing_policies"
DUPLEX = "FULL_DUPLEX_STREAMED"
MODES = ["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX]


@dataclass(frozen=True)
class Way:
    """One listener: how ext_proc is asked, what happens when it fails, and how the endpoint is chosen."""

    name: str
    mode: str
    allow: bool = True
    response: str = "NONE"
    """Body mode of the response; its headers and trailers come along with another one than NONE."""
    response_headers: bool = False
    headers: bool = True
    cluster: str = "pool"
    subset: Sequence[str] | None = None
    """What is allowed, as dynamic metadata that a filter before ext_proc sets."""
    retries: int = 2
    routed_by: str = ""
    """A request header of ours on which a route to the cluster `other` matches."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the ext_proc filter."""
    before: Sequence[Mapping[str, Any]] = ()
    """Filters that stand before it."""


def bootstrap(ways: Sequence[Way], addresses: Mapping[str, str], socket: str, engines: Sequence[str]) -> Any:
    """Make a bootstrap with a listener for each way, at its address."""
    override = {"override_host_sources": [_by_metadata()], "fallback_policy": _policies(_maglev())}
    by_header = {
        "override_host_sources": [{"header": DESTINATION_KEY}],
        "fallback_policy": _policies(_maglev()),
    }
    original = {"use_http_header": True, "http_header_name": DESTINATION_KEY}
    endpoints = {"type": "STATIC", "load_assignment": _assignment("pool", engines)}
    return {
        "static_resources": {
            "listeners": [_listener(way, addresses[way.name]) for way in ways],
            "clusters": [
                {"name": "pool", **endpoints, "load_balancing_policy": _policies(_override(override))},
                {"name": "by_header", **endpoints, "load_balancing_policy": _policies(_override(by_header))},
                {"name": "other", "type": "STATIC", "load_assignment": _assignment("other", engines[-1:])},
                {
                    "name": "original",
                    "type": "ORIGINAL_DST",
                    "lb_policy": "CLUSTER_PROVIDED",
                    "original_dst_lb_config": original,
                },
                _processor("processor", socket),
                _processor("checked", socket, _health_checks()),
            ],
        }
    }


def _listener(way: Way, address: str) -> dict[str, Any]:
    host, _, port = address.partition(":")
    action: dict[str, Any] = {"cluster": way.cluster, "timeout": "0s"}
    if way.retries:
        action["retry_policy"] = {"retry_on": "5xx,connect-failure", "num_retries": way.retries}
    routes: list[dict[str, Any]] = [{"match": {"prefix": "/"}, "route": action}]
    if way.routed_by:
        match = {"prefix": "/", "headers": [{"name": way.routed_by, "present_match": True}]}
        routes.insert(0, {"match": match, "route": {"cluster": "other", "timeout": "0s"}})
    manager = {
        "@type": f"{_PRE}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": way.name,
        "http_filters": [*_hint(way), *way.before, _ext_proc(way), filter_of("router", "router.v3.Router")],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "upgrade_configs": [{"upgrade_type": "websocket"}],
    }
    return {
        "name": way.name,
        "address": {"socket_address": {"address": host, "port_value": int(port)}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def filter_of(name: str, kind: str, **config: Any) -> dict[str, Any]:
    """Make an HTTP filter of its configuration."""
    typed = {"@type": f"{_PRE}extensions.filters.http.{kind}", **config}
    return {"name": f"envoy.filters.http.{name}", "typed_config": typed}


def _ext_proc(way: Way) -> dict[str, Any]:
    duplex = way.mode == DUPLEX
    responds = way.response != "NONE"
    mode = {
        "request_header_mode": "SEND" if way.headers else "SKIP",
        "request_body_mode": way.mode,
        "request_trailer_mode": "SEND" if duplex else "SKIP",
        "response_header_mode": "SEND" if responds or way.response_headers else "SKIP",
        "response_body_mode": way.response,
        "response_trailer_mode": "SEND" if way.response == DUPLEX else "SKIP",
    }
    config: dict[str, Any] = {
        "grpc_service": {"envoy_grpc": {"cluster_name": "processor"}},
        "failure_mode_allow": way.allow,
        # The service is mostly in the test's own process, which stalls now and then.
        "message_timeout": "10s",
        "processing_mode": mode,
        "metadata_options": {
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": ["envoy.lb", "warmroute"]},
        },
        "stat_prefix": way.name,
        **way.extra,
    }
    return filter_of("ext_proc", "ext_proc.v3.ExternalProcessor", **config)


def _hint(way: Way) -> list[dict[str, Any]]:
    if way.subset is None:
        return []
    value = {"x-gateway-destination-endpoint-subset": list(way.subset)}
    metadata = [{"metadata_namespace": "envoy.lb.subset_hint", "value": value}]
    return [filter_of("set_metadata", "set_metadata.v3.Config", metadata=metadata)]


def _by_metadata() -> dict[str, Any]:
    return {"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION_KEY}]}}


def _policies(typed: dict[str, Any]) -> dict[str, Any]:
    return {"policies": [{"typed_extension_config": typed}]}


def _override(config: dict[str, Any]) -> dict[str, Any]:
    typed = {"@type": f"{_POLICY}.override_host.v3.OverrideHost", **config}
    return {"name": "envoy.load_balancing_policies.override_host", "typed_config": typed}


def _maglev() -> dict[str, Any]:
    return {
        "name": "envoy.load_balancing_policies.maglev",
        "typed_config": {"@type": f"{_POLICY}.maglev.v3.Maglev"},
    }


def _assignment(cluster: str, engines: Sequence[str]) -> dict[str, Any]:
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}}
        for host, _, port in (engine.partition(":") for engine in engines)
    ]
    return {"cluster_name": cluster, "endpoints": [{"lb_endpoints": endpoints}]}


def _processor(name: str, socket: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    options = {"explicit_http_config": {"http2_protocol_options": {}}}
    protocol = f"{_PRE}extensions.upstreams.http.v3.HttpProtocolOptions"
    endpoint = {"endpoint": {"address": {"pipe": {"path": socket}}}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": protocol, **options}
        },
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
        **(more or {}),
    }


def _health_checks() -> dict[str, Any]:
    check = {
        "timeout": "1s",
        "interval": "0.2s",
        "no_traffic_interval": "0.2s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "tcp_health_check": {},
    }
    return {"health_checks": [check], "common_lb_config": {"healthy_panic_threshold": {"value": 0}}}


def processor_of(engines: Sequence[str], **ext_proc: Any) -> ExternalProcessor:
    """The product's processor over a fleet of these engines."""
    pools = Membership((Pool("pool", tuple(Endpoint(engine, "pool", ()) for engine in engines)),))
    store = FleetStore()
    store.publish(FleetView(pools, dict.fromkeys(engines, 100)))
    settings = parse_settings(
        "pools: [{name: pool}]\nlisteners: [{name: l, address: '127.0.0.1:1', pool: pool}]\n"
        f"ext_proc: {json.dumps(ext_proc)}"
    )
    registry, loop = CollectorRegistry(), asyncio.get_running_loop()
    director = Director(store, settings, registry, loop.time)
    tracer = TracerProvider().get_tracer("test")
    keys = Idempotency(settings, registry, loop.time, "alone")
    return ExternalProcessor(director, keys, tracer, registry)


@dataclass
class Foreign:
    """Envoy, engines, and the product's service in this process or in one of its own."""

    envoy: EnvoyProcess
    engines: Engines
    pool: list[str]
    http: aiohttp.ClientSession
    addresses: Mapping[str, str]
    socket: str
    service: ExtProcService | None = None

    def url(self, way: str, path: str = "/v1/chat/completions") -> str:
        return f"http://{self.addresses[way]}{path}"

    @property
    def newest(self) -> PickResult:
        """What the service decided last."""
        assert self.service is not None
        return self.service.processor.decisions._ring[-1].result

    async def stat(self, way: str, name: str) -> int:
        """One counter of a way's ext_proc filter."""
        return (await self.envoy.stats(f"http.{way}.ext_proc.{way}.{name}")).get(
            f"http.{way}.ext_proc.{way}.{name}", 0
        )

    async def bytes_received(self, way: str) -> int:
        """How much a listener has read from its clients."""
        name = f"http.{way}.downstream_cx_rx_bytes_total"
        return (await self.envoy.stats(name)).get(name, 0)

    async def deserted(self) -> None:
        """Wait until Envoy has heard of the end of its connections to the processor."""
        name = "cluster.processor.upstream_cx_active"

        async def heard() -> bool:
            return (await self.envoy.stats(name)).get(name, 0) == 0

        await eventually(heard, "no connection to the processor")

    async def rose(self, way: str, name: str, before: int) -> None:
        """Wait until a counter is above what it was."""

        async def above() -> bool:
            return await self.stat(way, name) > before

        await eventually(above, f"{way} {name}")


@contextlib.asynccontextmanager
async def foreign(
    ways: Sequence[Way], *, inside: bool = True, transport: str = "lane", **ext_proc: Any
) -> AsyncIterator[Foreign]:
    """Start it all; `inside` is whether the service runs in this process."""
    directory = Path(tempfile.mkdtemp(prefix="warmroute-test-"))
    engines = Engines()
    await engines.start()
    pool = [await engines.add() for _ in range(3)]
    addresses = {way.name: free_address() for way in ways}
    socket = f"{directory}/ext_proc.sock"
    timeout = aiohttp.ClientTimeout(total=60)
    try:
        boot = bootstrap([_at(way, pool) for way in ways], addresses, socket, pool)
        async with contextlib.AsyncExitStack() as stack:
            service = None
            if inside:
                carried = serving(processor_of(pool, **ext_proc), f"unix:{socket}", transport)
                service = await stack.enter_async_context(carried)
            envoy = await stack.enter_async_context(EnvoyProcess(boot))
            http = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
            await envoy.wait_ready(listeners=len(ways))
            yield Foreign(envoy, engines, pool, http, addresses, socket, service)
    finally:
        await engines.stop()
        shutil.rmtree(directory)


def _at(way: Way, pool: Sequence[str]) -> Way:
    """Put engines' addresses for the numbers in a subset."""
    if way.subset is None:
        return way
    allowed = [pool[int(entry)] if entry.isdigit() else entry for entry in way.subset]
    return Way(**{**way.__dict__, "subset": allowed})


async def _listen(socket: str, engines: Sequence[str]) -> contextlib.AsyncExitStack:
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(serving(processor_of(engines), f"unix:{socket}"))
    return stack


if __name__ == "__main__":
    mother(_listen)
