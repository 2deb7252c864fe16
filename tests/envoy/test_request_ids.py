"""Every response names its request, and `warmroute explain` finds it by that and by the answer's own id."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio

from fleet.names import HEADER_REASON
from warmroute.cli.main import main
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings, running_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OWN = "mine-2026-7"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "why? " * 200}]}),
    ("/v1/completions", {"prompt": "because " * 200}),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster() -> AsyncIterator[Cluster]:
    settings = ClusterSettings("serve", 2, EngineSettings(speed_up=50), {"limits": {"drain_seconds": 0.1}})
    async with running_cluster(settings) as cluster:
        yield cluster


async def asked(cluster: Cluster, path: str, body: dict[str, Any], **headers: str) -> tuple[str, str, str]:
    """Ask until ext_proc has had its say; return the header's id, the body's, and who has served."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    whole = {"model": "smol", "max_tokens": 2, **body}
    async with asyncio.timeout(60), aiohttp.ClientSession() as client:
        while True:
            async with client.post(f"http://{cluster.address}{path}", json=whole, headers=names) as response:
                text = await response.text()
                assert response.status == 200, text
                if HEADER_REASON in response.headers:
                    first = text.removeprefix("data: ").partition("\n")[0]
                    served = response.headers["x-warmroute-served"]
                    return response.headers["x-request-id"], json.loads(first)["id"], served
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("path", "body"), CALLS, ids=["chat", "completions"])
@pytest.mark.parametrize("headers", [{}, {"x_request_id": OWN}], ids=["Envoy's", "the client's"])
async def test_a_request_is_explained_by_the_ids_that_its_client_has(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    path: str,
    body: dict[str, Any],
    headers: dict[str, str],
    stream: bool,
) -> None:
    request_id, answer_id, served = await asked(cluster, path, {**body, "stream": stream}, **headers)
    assert (request_id == OWN) is bool(headers)
    assert answer_id != request_id
    for given in (request_id, answer_id):
        arguments = ["explain", given, "--admin", f"http://{cluster.admin_address}"]
        assert await asyncio.to_thread(main, arguments) == 0
        told = capsys.readouterr()
        assert f"request {request_id} to pool" in told.out
        assert f"was sent to {served}: " in told.out
        assert told.err == ""


async def test_responses_that_no_engine_gave_name_their_request_too(cluster: Cluster) -> None:
    async with aiohttp.ClientSession() as client:
        url = f"http://{cluster.address}/v1/realtime"
        async with client.get(url, headers={"upgrade": "websocket", "connection": "upgrade"}) as response:
            assert response.status == 400
            assert response.headers["x-request-id"]


async def test_a_long_id_comes_back_cut(cluster: Cluster) -> None:
    """A client may be able to send a header that it cannot take back."""
    (path, body), sent = CALLS[0], "x" * 4_000
    request_id, _, _ = await asked(cluster, path, body, x_request_id=sent)
    assert request_id == sent[:256]
