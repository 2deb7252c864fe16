"""Requests through the real Envoy, recorded, then replayed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp

from fleet.names import HEADER_REASON
from tests.product.conftest import until
from warmroute.cli.main import main
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster
from warmroute.replay.trace import read_trace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

COMMON = "You know a secret about this fleet. " * 300


async def test_yesterday_can_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = {
        "recording": {"directory": str(tmp_path)},
        "ext_proc": {"message_timeout_seconds": 10.0},
        "limits": {"drain_seconds": 0.2},
    }
    settings = ClusterSettings("serve", 2, EngineSettings(speed_up=1), overrides)
    async with running_cluster(settings) as cluster, aiohttp.ClientSession() as session:
        url = f"http://{cluster.address}/v1/chat/completions"
        model = settings.engine.model

        async def ask(number: int, **more: Any) -> str | None:
            content = f"{COMMON} Question {number}: " + f"{number} " * 2000
            body = {"model": model, "messages": [{"role": "user", "content": content}], **more}
            async with session.post(url, json=body, headers={"x-session-id": "s-1"}) as response:
                await response.read()
                assert response.status == 200
                return response.headers.get(HEADER_REASON)

        async def picked() -> bool:
            return await ask(0, max_tokens=4) in ("cold", "warm")

        await until(picked)
        await ask(1, max_tokens=40)
        await ask(2, max_tokens=40, stream=True)

        def recorded() -> bool:
            return sum(path.read_text().count('"at"') for path in tmp_path.glob("*.jsonl")) >= 3

        async with asyncio.timeout(60):
            while not await asyncio.to_thread(recorded):
                await asyncio.sleep(0.2)
    (path,) = tmp_path.glob("*.jsonl")  # noqa: ASYNC240
    assert "secret" not in path.read_text()
    trace = read_trace(path)
    *_, whole, streamed = trace.requests
    shared = min(len(whole.blocks), len(COMMON) // 2048)
    assert shared >= 4
    assert whole.blocks[:shared] == streamed.blocks[:shared], "the common beginning"
    assert whole.blocks[-1] != streamed.blocks[-1]
    assert streamed.after == len(trace.requests) - 2, "the session's request before"
    for request in (whole, streamed):
        assert 20 <= request.output_tokens <= 80, "about the 40 tokens of the answer"
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["replay", str(path), "--policy", "smg", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == len(trace.requests)
