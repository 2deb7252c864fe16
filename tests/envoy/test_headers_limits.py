"""Headers near Envoy's limits: whoever Envoy alone serves is served with us in the way, too.

Between Envoy and the engine stands a second Envoy with its own limits (100 headers, 60 KiB), as in a mesh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from fleet.names import CROWDED_BYTES, CROWDED_HEADERS, HEADER_IDEMPOTENCY, HEADER_RANK, UPSTREAM_HEADERS
from tests.envoy.conftest import free_address
from tests.envoy.workers import worker
from warmroute.demo.envoy import EnvoyProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.envoy.conftest import World

PRE = "type.googleapis.com/envoy."
PATH = "/v1/chat/completions"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "how are you?"}]}'
OURS = {*UPSTREAM_HEADERS, HEADER_IDEMPOTENCY}
VALUE_BYTES = 6000


def listener(name: str, address: str, cluster: str) -> dict[str, Any]:
    """An Envoy that only passes on, with every limit at its default."""
    host, _, port = address.partition(":")
    router = {"@type": f"{PRE}extensions.filters.http.router.v3.Router"}
    # With a time limit, as by default, Envoy adds a header of its own: `x-envoy-expected-rq-timeout-ms`.
    route = {"match": {"prefix": "/"}, "route": {"cluster": cluster, "timeout": "60s"}}
    manager = {
        "@type": f"{PRE}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "upgrade_configs": [{"upgrade_type": "websocket"}],
    }
    http = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    return {
        "name": name,
        "address": {"socket_address": {"address": host, "port_value": int(port)}},
        "filter_chains": [{"filters": [http]}],
    }


def cluster(name: str, address: str) -> dict[str, Any]:
    host, _, port = address.partition(":")
    endpoint = {"address": {"socket_address": {"address": host, "port_value": int(port)}}}
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
        },
    }


@dataclass
class Two:
    """Ways to one engine behind a sidecar: through us, and through an Envoy alone."""

    world: World
    alone: str
    sidecar: str

    async def asked(self, headers: dict[str, str], **options: Any) -> tuple[int, int, dict[str, str]]:
        """The statuses alone and with us, and the headers of ours that the engine saw."""
        given = {"data": BODY, **options}
        typed = {"content-type": "application/json", **headers}
        async with self.world.http.post(f"http://{self.alone}{PATH}", headers=typed, **given) as reference:
            await reference.read()
        async with self.world.http.post(self.world.url("marked", PATH), headers=typed, **given) as response:
            seen = (await response.json())["headers"] if response.status == 200 else []
        return reference.status, response.status, {name: value for name, value in seen if name in OURS}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def two(worlds: Any) -> AsyncIterator[Two]:
    sidecar, alone = free_address(), free_address()

    def behind_a_sidecar(settings: dict[str, Any]) -> None:
        pool = next(pool for pool in settings["pools"] if pool["name"] == "marked")
        pool["endpoints"] = [{"address": sidecar}]
        settings["ext_proc"]["idempotency"] = {"enabled": True}
        settings["limits"] = {"drain_seconds": 0.5}

    async with worlds(adapt=behind_a_sidecar) as world:
        ways = [listener("sidecar", sidecar, "engine"), listener("alone", alone, "sidecar")]
        hosts = [cluster("engine", world.pools["live"][0]), cluster("sidecar", sidecar)]
        boot = {"static_resources": {"listeners": ways, "clusters": hosts}}
        async with EnvoyProcess(boot) as envoy, worker(world):
            await envoy.wait_ready(listeners=2)
            yield Two(world, alone, sidecar)


def of_count(most: int) -> Iterator[dict[str, str]]:
    for count in range(CROWDED_HEADERS - 15, most):
        yield {f"x-n-{number}": "v" for number in range(count)}


def of_size(most: int) -> Iterator[dict[str, str]]:
    for size in range(CROWDED_BYTES - 1000, most, 200):
        full, rest = divmod(size, VALUE_BYTES + 6)
        yield {f"x-n-{number:02}": "v" * VALUE_BYTES for number in range(full)} | {"x-rest": "v" * rest}


@pytest.mark.parametrize("sweep", [of_count(101), of_size(61_600)], ids=["count", "size"])
async def test_whom_envoy_alone_serves_is_served(two: Two, sweep: Iterator[dict[str, str]]) -> None:
    """Engines hear of the decision as long as there is room, and later the request matters more."""
    statuses, told = [], []
    for headers in sweep:
        alone, ours, seen = await two.asked(headers)
        statuses.append((alone, ours))
        told.append(set(seen))
    assert {ours for alone, ours in statuses if alone == 200} == {200}
    assert {alone for alone, _ in statuses} == {200, 431}, "the sweep ends beyond the limits"
    assert told[0] >= OURS - {"x-warmroute-endpoint", "x-warmroute-matched", HEADER_RANK}
    assert set() in [held for held, (_, ours) in zip(told, statuses, strict=True) if ours == 200]


@pytest.mark.parametrize("path", ["/ws", "/v1/realtime"])
@pytest.mark.parametrize("sweep", [of_count, of_size], ids=["count", "size"])
async def test_an_upgrade_at_the_limits_is_served(two: Two, sweep: Any, path: str) -> None:
    """On a path that ext_proc sees the headers of, and on one that it does not."""
    statuses = set()
    for headers in list(sweep(101 if sweep is of_count else 61_600))[-24:]:
        got = []
        for url in (f"http://{two.alone}{path}", two.world.url("marked", path)):
            try:
                async with two.world.http.ws_connect(url, headers=headers) as ws:
                    await ws.send_str("a")
                    got.append(await ws.receive_str(timeout=5))
            except Exception as error:  # noqa: BLE001 - which one is the client's matter
                got.append(type(error).__name__)
        statuses.add(tuple(got))
    assert {ours for alone, ours in statuses if alone == "echo a"} == {"echo a"}
