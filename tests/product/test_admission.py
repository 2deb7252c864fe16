"""Refusals through the real Envoy: only where configured, only of low priorities, as clients expect them."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from bench.cluster import Cluster, ClusterSettings, EngineSettings, running_cluster

LIMIT = {"most_wait_seconds": 0.005, "priority_header": "x-priority", "tenant_priorities": {"batch": -1}}
"""A single request in flight is more than that."""


async def ask(
    cluster: Cluster, http: aiohttp.ClientSession, max_tokens: int = 1, **headers: str
) -> tuple[int, aiohttp.typedefs.LooseHeaders, Any]:
    body = {"model": "smol", "max_tokens": max_tokens, "messages": [{"role": "user", "content": "hello"}]}
    url = f"http://{cluster.address}/v1/chat/completions"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.post(url, json=body, headers=named) as response:
        return response.status, response.headers, await response.json(content_type=None)


@pytest.mark.parametrize("configured", [True, False])
async def test_a_low_priority_waits_outside_while_all_engines_are_past_their_limit(configured: bool) -> None:
    pick = {"admission": LIMIT, "tenant_header": "x-tenant"} if configured else {}
    settings = ClusterSettings("serve", 1, EngineSettings(), {"ext_proc": {"pick": pick}})
    async with running_cluster(settings) as cluster, aiohttp.ClientSession() as http:
        assert (await ask(cluster, http, x_priority="-1"))[0] == 200
        long = asyncio.create_task(ask(cluster, http, max_tokens=400))
        picks = "/api/v1/picks"
        while (await cluster.get_json(cluster.admin_address, picks))["engines"][cluster.engines[0]][
            "in_flight"
        ] == 0:
            await asyncio.sleep(0.01)
        low = [await ask(cluster, http, x_priority="-1"), await ask(cluster, http, x_tenant="batch")]
        usual = await ask(cluster, http)
        assert not long.done(), "the limit was passed all the time"
        assert (await long)[0] == 200
        assert usual[0] == 200
        assert [status for status, _, _ in low] == [429 if configured else 200] * 2
        for _, headers, answer in low if configured else []:
            assert 1 <= int(headers["retry-after"]) <= 60
            assert headers["content-type"].startswith("application/json")
            assert answer["error"]["message"]
        async with asyncio.timeout(30):
            # The engine's own word that it is idle comes with a scrape, and is believed by and by.
            while (await ask(cluster, http, x_priority="-1"))[0] != 200:
                await asyncio.sleep(0.2)
