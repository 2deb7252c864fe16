"""Refusals through the real Envoy: only where configured, only of low priorities, as clients expect them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio

from tests.product.conftest import LIMIT_SECONDS, Product, until
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT = {"most_wait_seconds": 0.005, "priority_header": "x-priority", "tenant_priorities": {"batch": -1}}
"""A single request in flight is more than that."""

PATIENT = {"message_timeout_seconds": 10.0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product() -> AsyncIterator[Product]:
    settings = ClusterSettings("serve", 1, EngineSettings(), {"ext_proc": PATIENT})
    # What Envoy tells of a request's headers changes with the settings for new connections only.
    anew = aiohttp.TCPConnector(force_close=True)
    async with running_cluster(settings) as cluster, aiohttp.ClientSession(connector=anew) as session:
        yield Product(cluster, session)


async def configure(product: Product, pick: dict[str, Any]) -> None:
    """Change the settings and wait until they are in force."""
    cluster = product.cluster
    overrides = {"ext_proc": {**PATIENT, "pick": pick}}
    if overrides == cluster.settings.overrides:
        return
    cluster.settings = replace(cluster.settings, overrides=overrides)
    before = await applied(product)
    cluster.write_settings()

    async def in_force() -> bool:
        return await applied(product) > before

    await until(in_force)


async def applied(product: Product) -> float:
    """How many changes of the settings were taken over."""
    page = await product.text(product.cluster.admin_address, "/metrics")
    name = 'warmroute_settings_reloads_total{outcome="applied"} '
    return next(float(line.removeprefix(name)) for line in page.splitlines() if line.startswith(name))


async def ask(product: Product, **headers: str) -> tuple[int, Mapping[str, str], Any]:
    async with post(product, {"max_tokens": 1}, **headers) as response:
        return response.status, response.headers, await response.json(content_type=None)


def post(product: Product, more: dict[str, Any], **headers: str) -> Any:
    body = {"model": "smol", "messages": [{"role": "user", "content": "hello"}], **more}
    url = f"http://{product.cluster.address}/v1/chat/completions"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return product.session.post(url, json=body, headers=named)


@pytest.mark.parametrize("configured", [True, False])
async def test_low_priority_waits_while_all_engines_are_full(product: Product, configured: bool) -> None:
    cluster = product.cluster
    await configure(product, {"admission": LIMIT, "tenant_header": "x-tenant"} if configured else {})

    async def idle() -> bool:
        """The engine's own word that it is idle comes with a scrape, and is believed by and by."""
        return (await ask(product, x_priority="-1"))[0] == 200

    async def begun() -> bool:
        told = await product.get(cluster.admin_address, "/api/v1/picks")
        return bool(told["engines"][cluster.engines[0]]["in_flight"])

    async def told(**headers: str) -> tuple[int, Mapping[str, str], Any]:
        """While the service stalls, Envoy asks nobody, and so refuses nobody."""
        answers = []

        async def as_configured() -> bool:
            answers.append(await ask(product, **headers))
            assert answers[-1][0] in ((200, 429) if configured else (200,))
            return answers[-1][0] == 429 or not configured

        await until(as_configured)
        return answers[-1]

    await until(idle)
    # Far longer than the test: what ends it is that the client leaves.
    async with post(product, {"max_tokens": 20_000, "stream": True}) as long:
        assert long.status == 200
        await until(begun)
        low = [await told(x_priority="-1"), await told(x_tenant="batch")]
        usual = await ask(product)
        assert "[DONE]" not in await rest(long), "the limit was passed all the time"
    assert usual[0] == 200
    for _, headers, answer in low if configured else []:
        assert 1 <= int(headers["retry-after"]) <= 60
        assert headers["content-type"].startswith("application/json")
        assert answer["error"]["message"]
    await until(idle)


async def rest(response: aiohttp.ClientResponse) -> str:
    """What has come of a stream, up to a chunk that comes from now on."""
    async with asyncio.timeout(LIMIT_SECONDS):
        held = response.content.read_nowait()
        return (held + await response.content.readany()).decode()
