"""The WebSocket of the simulated engine: every message is answered once, in order, whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from warmroute.simulator.tokens import Speaker

if TYPE_CHECKING:
    from collections.abc import Callable


def url(engine: Any) -> str:
    return f"http://{engine.address}/v1/realtime"


async def replies_to(
    socket: aiohttp.ClientWebSocketResponse, **ask: object
) -> tuple[str, list[dict[str, Any]]]:
    """Send a message; returns the text of the answer and its messages."""
    await socket.send_json(ask)
    parts: list[dict[str, Any]] = []
    while not (parts and parts[-1].get("done")):
        parts.append(json.loads(await socket.receive_str(timeout=60)))
    return "".join(part.get("text", "") for part in parts), parts


async def test_messages_are_answered_in_order_with_what_the_model_says(engine: Any) -> None:
    async with engine.client.ws_connect(url(engine)) as socket:
        for number in range(3):
            said, parts = await replies_to(socket, number=number, text=f"hello {number}", tokens=5)
            assert said == Speaker(0).answer(f"hello {number}".encode(), 5)
            assert {part["number"] for part in parts} == {number}
            assert parts[-1] == {"number": number, "done": True, "tokens": 5}
        await socket.close()
    assert socket.close_code == aiohttp.WSCloseCode.OK
    await engine.until(lambda: engine.server.counts.finished == 1)
    assert engine.server.counts.aborted == 0
    assert engine.server.driver.model.counters.aborted_requests == 0
    assert engine.server.driver.model.counters.finished_requests == 3


async def test_what_asks_for_no_tokens_comes_back_as_it_is(engine: Any) -> None:
    async with engine.client.ws_connect(url(engine)) as socket:
        for text in ("", "plain", '{"number": "seven"}', "[1]"):
            await socket.send_str(text)
            assert await socket.receive_str(timeout=60) == text
        await socket.send_bytes(b"\x00\xff")
        assert await socket.receive_bytes(timeout=60) == b"\x00\xff"
        assert await replies_to(socket, number=1, tokens=0) == (
            "",
            [{"number": 1, "done": True, "tokens": 0}],
        )


async def test_a_request_without_a_handshake_gets_426(engine: Any) -> None:
    """The connection stays open."""
    async with engine.client.get(url(engine)) as reply:
        assert (reply.status, reply.headers["x-engine-address"]) == (426, engine.address)
    assert (await engine.get("/health"))[0] == 200


@pytest.mark.parametrize("kind", ["reset", "restart"])
async def test_a_lost_engine_shows_as_an_abnormal_end(run_engine: Callable[..., Any], kind: str) -> None:
    async with run_engine(speed_up=1) as engine, engine.client.ws_connect(url(engine)) as socket:
        await socket.send_json({"number": 1, "tokens": 10_000})
        assert json.loads(await socket.receive_str(timeout=60))["from"] == 0
        if kind == "reset":
            await engine.fault(kind="reset")
        else:
            async with engine.client.post(f"http://{engine.address}/admin/restart") as reply:
                assert reply.status == 200
        while (message := await socket.receive(timeout=60)).type is aiohttp.WSMsgType.TEXT:
            assert "done" not in message.data
        assert socket.close_code == aiohttp.WSCloseCode.ABNORMAL_CLOSURE


async def test_a_client_that_leaves_frees_its_tokens(run_engine: Callable[..., Any]) -> None:
    async with run_engine(speed_up=1) as engine:
        async with engine.client.ws_connect(url(engine)) as socket:
            await socket.send_json({"number": 1, "tokens": 10_000})
            await socket.receive_str(timeout=60)
            socket._response.connection.transport.abort()
        await engine.until(lambda: engine.server.driver.model.counters.aborted_requests == 1)
