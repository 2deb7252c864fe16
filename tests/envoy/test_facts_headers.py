"""Headers: what a client cannot set, and what engine and client are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from multidict import CIMultiDict

from fleet.names import (
    DESTINATION_KEY,
    HEADER_ATTEMPTS,
    HEADER_REASON,
    HEADER_SERVED,
    REMOVED_REQUEST_HEADERS,
)

METADATA = {"matched": "0.50", "reason": "warm", "prefix": "0123456789abcdef"}


def _forged(value: str) -> CIMultiDict[str]:
    """Every routing header twice, once in capitals."""
    headers: CIMultiDict[str] = CIMultiDict()
    for name in REMOVED_REQUEST_HEADERS:
        headers.add(name.title(), value)
        headers.add(name.upper(), "second")
    return headers


def _ours(answer: Any) -> list[str]:
    """Names of ours, or of the protocol's, that the engine saw."""
    seen = [name for name, _ in answer.seen["headers"]]
    return [name for name in seen if name.startswith(("x-warmroute", "x-gateway"))]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("GET", {}),
        ("POST", {"json": {"prompt": "x"}}),
        ("POST", {"json": {"prompt": "x" * 300_000}}),
        ("POST", {"data": b"x"}),
    ],
    ids=["get", "json", "large-json", "other"],
)
async def test_client_does_not_steer(world: Any, method: Any, options: Any) -> None:
    """Routing headers of a client reach nobody and move nothing, on every route."""
    target = world.pools["live"][0]
    answers = [await world.request(method, headers=_forged(target), **options) for _ in range(20)]
    assert all(_ours(answer) == [] for answer in answers)
    assert {answer.engine for answer in answers} - {target}, "all on the forged target"


async def test_client_does_not_override_a_pick(world: Any) -> None:
    """With a pick, the pick counts, and its headers are ours alone."""
    forged, picked = world.pools["live"][:2]
    world.ext_proc.pick, world.ext_proc.metadata = picked, {"endpoint": picked, **METADATA}
    answer = await world.post(headers=_forged(forged))
    assert answer.engine == picked
    assert answer.upstream("x-warmroute-endpoint") == [picked]
    assert answer.upstream("x-warmroute-reason") == ["warm"]
    assert answer.upstream(DESTINATION_KEY) == []
    assert answer.upstream(HEADER_SERVED) == []


async def test_client_does_not_steer_an_upgrade(world: Any) -> None:
    """The same holds on the way that ext_proc does not see."""
    async with world.http.ws_connect(world.url(path="/ws"), headers=_forged("10.0.0.1:1")) as ws:
        seen = ws._response.headers["x-seen"]
    assert "x-warmroute" not in seen
    assert "x-gateway" not in seen


async def test_metadata_becomes_headers(world: Any) -> None:
    """The engine learns all of the decision, the client what it may see, and who really served."""
    picked = world.pools["live"][1]
    world.ext_proc.pick, world.ext_proc.metadata = picked, {"endpoint": picked, **METADATA}
    for body in ({"prompt": "x"}, {"prompt": "x" * 300_000}):
        answer = await world.post(body)
        upstream = {name: value for name, value in answer.seen["headers"] if name.startswith("x-warmroute")}
        assert upstream == {
            "x-warmroute-endpoint": picked,
            "x-warmroute-matched": "0.50",
            "x-warmroute-reason": "warm",
            "x-warmroute-prefix": METADATA["prefix"],
        }
        shown = {name: value for name, value in answer.headers.items() if name.startswith("x-warmroute")}
        assert shown == {
            "x-warmroute-endpoint": picked,
            "x-warmroute-matched": "0.50",
            "x-warmroute-reason": "warm",
            HEADER_SERVED: picked,
            HEADER_ATTEMPTS: "1",
        }


async def test_absent_metadata_adds_no_header(world: Any) -> None:
    """Neither an empty value nor a dash: what is unknown is absent. Some routes know the reason."""
    for method, options, more in (("POST", {"json": {"prompt": "x"}}, set()), ("GET", {}, {HEADER_REASON})):
        answer = await world.request(method, **options)
        assert _ours(answer) == []
        shown = {name for name in answer.headers if name.startswith("x-warmroute")}
        assert shown == {HEADER_SERVED, HEADER_ATTEMPTS, *more}
        assert "-" not in answer.headers.values()


async def test_decision_is_hidden_where_the_operator_says_so(world: Any) -> None:
    """`show_decision: false` tells the client nothing; the engine still learns."""
    picked = world.pools["live"][1]
    world.ext_proc.pick, world.ext_proc.metadata = picked, {"endpoint": picked, **METADATA}
    answer = await world.post(listener="quiet")
    assert (answer.engine, answer.upstream("x-warmroute-endpoint")) == (picked, [picked])
    assert not [name for name in answer.headers if name.startswith("x-warmroute")]


async def test_websocket_passes(world: Any) -> None:
    """An upgrade completes, keeps its subprotocol and carries frames."""
    async with world.http.ws_connect(world.url(path="/ws"), protocols=("chat",)) as ws:
        assert ws.protocol == "chat"
        for text in ("one", "two"):
            await ws.send_str(text)
            assert await asyncio.wait_for(ws.receive_str(), 5) == f"echo {text}"
    assert world.ext_proc.messages == []


async def test_upgrade_that_looks_like_json_does_not_hang(world: Any) -> None:
    """Its body has no end, so no filter may wait for one, whatever method and type it claims."""
    host, port = world.url(path="").removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            b"POST /v1/x HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            b"content-type: application/json\r\nsec-websocket-version: 13\r\n"
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        status = await asyncio.wait_for(reader.readline(), 10)
        assert status.startswith(b"HTTP/1.1 ")
        assert world.ext_proc.messages == []
    finally:
        writer.close()
        await writer.wait_closed()


async def test_silent_stream_survives(world: Any) -> None:
    """Three seconds without a token are a long prefill, not a fault."""
    async with world.http.post(world.url(path="/stream?silence=3"), json={"prompt": "x"}) as response:
        assert response.status == 200
        assert await response.read() == b"data: first\n\ndata: last\n\n"
