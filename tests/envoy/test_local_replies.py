"""Envoy's own answers in OpenAI's form for JSON clients, and the reasons of requests without a pick."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.names import HEADER_REASON

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("headers", "form"),
    [
        (JSON, True),
        ({"content-type": "text/plain", "accept": "application/json"}, True),
        ({"content-type": "text/plain", "accept": "*/*"}, False),
        ({"content-type": "text/plain"}, False),
    ],
)
async def test_a_pool_without_engines(world: Any, headers: Any, form: bool) -> None:
    """Every engine is away: 503 as without Warmroute, in a form that clients of engines can read."""
    world.set_membership({"marked": []})
    try:
        await _engines(world, 0)
        async with world.http.post(world.url("marked"), data=b"{}", headers=headers) as response:
            assert response.status == 503
            text = await response.text()
            assert (response.content_type == "application/json") is form
    finally:
        world.set_membership({})
        await _engines(world, 3)
    if form:
        error = json.loads(text)["error"]
        assert error == {
            "message": "no healthy upstream",
            "type": "server_error",
            "param": None,
            "code": "no_endpoint_ready",
        }
    else:
        assert text == "no healthy upstream"


async def test_an_engine_that_breaks_off(world: Any) -> None:
    world.engines.resets.update(world.pools["marked"])
    try:
        status, answer = await _post(world)
    finally:
        world.engines.resets.clear()
    assert (status, answer["error"]["code"]) == (503, "no_answer")


async def test_an_engines_own_error_stays(world: Any) -> None:
    world.engines.statuses.update(dict.fromkeys(world.pools["marked"], 500))
    try:
        status, answer = await _post(world)
    finally:
        world.engines.statuses.clear()
    assert (status, "sha256" in answer) == (500, True)


@pytest.mark.parametrize(
    ("method", "headers", "reason"),
    [
        ("POST", {"content-type": "text/plain"}, "content_type"),
        ("PUT", JSON, "method"),
        ("GET", {}, "method"),
        ("POST", JSON, None),
    ],
)
async def test_clients_learn_why_there_is_no_pick(world: Any, method: str, headers: Any, reason: Any) -> None:
    """On loopback. By default other listeners show nothing of a decision."""
    world.ext_proc.metadata = {"reason": "warm"}
    for listener in ("main", "quiet"):
        data = None if method == "GET" else _chunked()
        answer = await world.request(method, listener, data=data, headers=headers)
        assert answer.status == 200
        if listener == "main":
            assert answer.headers[HEADER_REASON] == (reason or "warm")
        else:
            assert not [name for name in answer.headers if name.startswith("x-warmroute")]


async def _post(world: Any) -> tuple[int, Any]:
    async with world.http.post(world.url("marked"), json={}) as response:
        return response.status, await response.json()


async def _chunked() -> Any:
    yield b"{}"


async def _engines(world: Any, count: int) -> None:
    async def reached() -> bool:
        return len((await world.envoy.clusters())["marked"]) == count

    await world.eventually(reached, f"{count} engines")
