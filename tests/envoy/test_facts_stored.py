"""Copies of answers in observability mode on the real Envoy: no answer is held back or changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

PATH = "/v1/responses"
TEXT = {"content-type": "text/plain"}


async def _asks(world: Any, method: str = "POST", path: str = PATH) -> int:
    answer = await world.request(method, path=path, data=b"x", headers=TEXT)
    return int(answer.status)


async def test_only_answers_that_may_give_a_name_are_shown(world: Any) -> None:
    """With the endpoint and the status; requests for what is stored show their headers."""
    for method, path in (("POST", "/v1/embeddings"), ("GET", PATH), ("POST", "/v1/responses/compact")):
        assert await _asks(world, method, path) == 200
    await asyncio.sleep(0.1)
    assert world.ext_proc.messages == []
    answer = await world.request("POST", path=PATH, data=b"x", headers=TEXT)
    await world.eventually(lambda: world.ext_proc.messages, "the answer is shown")
    first = world.ext_proc.messages[0]
    assert first.kind == "response_body"
    assert first.attributes == {"upstream.address": answer.engine, "response.code": 200.0}
    world.ext_proc.messages.clear()
    picked = world.ext_proc.pick = world.pools["live"][2]
    for method in ("GET", "DELETE", "POST"):
        answer = await world.request(method, path="/v1/responses/resp_1/cancel")
        assert (answer.status, answer.engine) == (200, picked)
    assert {message.kind for message in world.ext_proc.messages} == {"request_headers"}


@pytest.mark.parametrize("state", ["frozen", "dead", "refuses"])
async def test_ext_proc_cannot_hold_an_answer_back(worlds: Any, state: str) -> None:
    """Frozen, dead, or with an answer of its own where Envoy takes none."""
    async with worlds() as world:
        if state == "frozen":
            world.ext_proc.freeze()
        elif state == "dead":
            await world.ext_proc.kill()
        else:
            world.ext_proc.immediate = True
            world.ext_proc.headers = {"x-made-up": "1"}
        for _ in range(4):
            async with asyncio.timeout(8):
                answer = await world.request("POST", path=PATH, data=b"x" * 100_000, headers=TEXT)
            assert (answer.status, answer.upstream("content-length")) == (200, ["100000"])
            assert "x-made-up" not in answer.headers
        world.ext_proc.thaw()
