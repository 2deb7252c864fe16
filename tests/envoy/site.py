"""Envoy with the real services, in one process with the test."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import aiohttp
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from fleet.settings import parse_settings
from fleet.store import FleetStore
from tests.envoy.conftest import PATIENCE_SECONDS, eventually, free_address, patience
from warmroute.demo.envoy import EnvoyProcess
from xds_server.app import XdsServer
from xds_server.envoy.bootstrap import bootstrap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path


class Site:
    """Envoy, the real xds_server, and pools of which each has a listener by its name."""

    def __init__(
        self,
        addresses: dict[str, str],
        server: XdsServer,
        ext_proc: ExtProcServer,
        client: aiohttp.ClientSession,
        written: dict[str, Any],
        envoy: EnvoyProcess,
        registry: CollectorRegistry,
    ) -> None:
        self.addresses, self.server, self.ext_proc, self.client = addresses, server, ext_proc, client
        self.envoy, self.written = envoy, written
        """The settings as they stand in the file."""
        self.registry = registry
        """Of xds_server."""
        self.statuses: list[int] = []

    async def over(self, pool: str) -> str:
        """Ask once; return the protocol by which the engine was asked, or the status of a failure."""
        url = f"http://{self.addresses[pool]}/v1/chat/completions"
        async with self.client.post(url, json={}) as response:
            self.statuses.append(response.status)
            text = await response.text()
        return str(json.loads(text)["over"]) if response.status == 200 else str(response.status)

    async def reaches(self, pool: str, protocol: str) -> None:
        """Ask until it is so."""

        async def reached() -> bool:
            return await self.over(pool) == protocol

        await eventually(reached, f"{pool} over {protocol}")

    def bad(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.server.views()["/api/v1/http2"]()
        return shown


@contextlib.asynccontextmanager
async def site(
    directory: Path,
    pools: dict[str, tuple[str, list[str]]],
    of_each: Mapping[str, dict[str, Any]] | None = None,
    ext_proc: dict[str, Any] | None = None,
    **of_pools: Any,
) -> AsyncIterator[Site]:
    """Start it; `pools` has protocol and engines of each pool.

    `of_pools` and `of_each` have more settings of pools, `ext_proc` those of its section.

    The services share a process with the test and stall with it, so Envoy waits long for them.
    """
    addresses = {name: free_address() for name in pools}
    written = {
        "pools": [
            {
                "name": name,
                "protocol": protocol,
                "endpoints": [{"address": address} for address in engines],
                "joining": {"probe": "none"},
                **of_pools,
                **(of_each or {}).get(name, {}),
            }
            for name, (protocol, engines) in pools.items()
        ],
        "listeners": [
            {"name": name, "address": address, "pool": name} for name, address in addresses.items()
        ],
        "xds": {"address": f"unix:{directory}/xds.sock", "state_path": "", "tick_seconds": 0.05},
        "ext_proc": {
            "address": f"unix:{directory}/ext_proc.sock",
            "message_timeout_seconds": PATIENCE_SECONDS,
            **(ext_proc or {}),
        },
        "control": {"address": f"unix:{directory}/control.sock"},
        "admin": {"address": "", "ext_proc_address": ""},
        "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.5},
        "limits": {"drain_seconds": 0.1},
        "upgrades": {
            "http2": {"pause_seconds": 0.4, "most_pause_seconds": 0.8, "probe_timeout_seconds": 1.0}
        },
    }
    settings = parse_settings(json.dumps(written))
    store = FleetStore()
    registry = CollectorRegistry()
    server = XdsServer(settings, store, registry, TracerProvider(), control=False)
    worker = ExtProcServer(settings, store, CollectorRegistry(), TracerProvider(), follow=False)
    boot = bootstrap(ads_address=settings.xds.address, node_id="test", node_cluster="tests")
    with patience():
        await worker.start()
        await server.start()
        try:
            async with EnvoyProcess(boot) as envoy, aiohttp.ClientSession() as client:
                await envoy.wait_ready(listeners=len(pools))
                yield Site(addresses, server, worker, client, written, envoy, registry)
        finally:
            await server.stop()
            await worker.stop()
