"""What of a request the real Envoy shows to ext_proc, and what happens when ext_proc is away."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from typing import Any

import aiohttp
import pytest

from fleet.names import CROWDED_ATTRIBUTE, session_attribute
from fleet.settings.picks import SessionSettings

LARGE = 1_048_576


def _json_of(size: int) -> bytes:
    body = json.dumps({"prompt": ""}).encode()
    return body[:-2] + b"x" * (size - len(body)) + body[-2:]


async def _chunks(body: bytes, size: int = 16_384) -> Any:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def test_one_message_with_the_whole_body_and_the_attributes(world: Any) -> None:
    """Single-message mode: body, end of stream, and of the headers what routing needs."""
    body = _json_of(50_000)
    headers = {"content-type": "Application/JSON; charset=utf-8", "x-session-id": "s1"}
    answer = await world.post(data=body, headers=headers, path="/v1/completions?a=b")
    (message,) = world.ext_proc.messages
    assert (message.kind, message.end, message.sha256) == (
        "request_body",
        True,
        hashlib.sha256(body).hexdigest(),
    )
    assert answer.seen["sha256"] == message.sha256
    assert message.attributes == {
        "request.path": "/v1/completions?a=b",
        "request.id": answer.upstream("x-request-id")[0],
        session_attribute(("x-session-id", *SessionSettings().every_header)): "s1",
        "request.headers['content-type']": "Application/JSON; charset=utf-8",
        "xds.cluster_name": "live",
        CROWDED_ATTRIBUTE: "",
    }


async def test_content_encoding_is_told(world: Any) -> None:
    """A compressed body is recognised by its attribute."""
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    await world.post(data=b"\x1f\x8b not really", headers=headers, skip_auto_headers=["content-encoding"])
    assert world.ext_proc.messages[0].attributes["request.headers['content-encoding']"] == "gzip"


@pytest.mark.parametrize("size", [600_000, LARGE - 1])
async def test_a_body_below_the_limit_is_shown_whole(world: Any, size: Any) -> None:
    """One message, the pick counts, and the engine gets every byte."""
    picked = world.pools["live"][1]
    world.ext_proc.pick = picked
    body = _json_of(size)
    answer = await world.post(data=body, headers={"content-type": "application/json"})
    assert (answer.status, answer.engine) == (200, picked)
    assert answer.seen["sha256"] == hashlib.sha256(body).hexdigest()
    (message,) = world.ext_proc.messages
    assert (message.kind, message.bytes, message.end) == ("request_body", size, True)


@pytest.mark.parametrize("size", [LARGE, LARGE + 124, 1_100_000, 1_300_000, 3_000_000, 9_000_000])
async def test_a_larger_body_is_picked_by_its_leading_part(world: Any, size: Any) -> None:
    """Each of many arrives whole, and ext_proc sees no more of it than it reads."""
    picked = world.pools["live"][1]
    world.ext_proc.pick = picked
    body = _json_of(size)
    digest = hashlib.sha256(body).hexdigest()
    for _ in range(8):
        answer = await world.post(data=body, headers={"content-type": "application/json"})
        assert (answer.status, answer.seen["sha256"], answer.engine) == (200, digest, picked)
    messages = {(message.kind, message.bytes, message.end) for message in world.ext_proc.messages}
    assert messages == {("leading", world.settings.limits.body_bytes, False)}


@pytest.mark.parametrize("size", [100, 100_000, 1_100_000, 3_000_000])
async def test_chunked_json_is_picked_too(world: Any, size: Any) -> None:
    """Without a content-length nobody knows whether the body fits: its leading part decides."""
    picked = world.pools["live"][1]
    world.ext_proc.pick = picked
    body = _json_of(size)
    answer = await world.post(data=_chunks(body), headers={"content-type": "application/json"})
    assert (answer.status, answer.engine) == (200, picked)
    assert answer.seen["sha256"] == hashlib.sha256(body).hexdigest()
    (message,) = world.ext_proc.messages
    shown = min(size, world.settings.limits.body_bytes)
    assert (message.kind, message.bytes, message.end) == ("leading", shown, shown == size)


async def test_operator_may_have_larger_bodies_whole(world: Any) -> None:
    """`large_body_bytes` beyond Envoy's default buffer: one message, no 413, no hang."""
    picked = world.pools["live"][0]
    world.ext_proc.pick = picked
    for size in (1_100_000, 4_194_303):
        world.ext_proc.messages.clear()
        answer = await world.post(
            data=_json_of(size), listener="roomy", headers={"content-type": "application/json"}
        )
        assert (answer.status, answer.engine, answer.seen["bytes"]) == (200, picked, size)
        assert [(entry.bytes, entry.end) for entry in world.ext_proc.messages] == [(size, True)]


async def test_what_cannot_be_read_never_meets_ext_proc(world: Any) -> None:
    """No body, another type or another method: by weights, without a message."""
    as_json = {"content-type": "application/json"}
    form = aiohttp.FormData({"a": "b"})
    form.add_field("file", b"x" * 400_000, filename="audio.wav")
    requests: list[tuple[str, dict[str, Any]]] = [
        ("GET", {}),
        ("GET", {"headers": as_json}),
        ("HEAD", {"headers": as_json}),
        ("DELETE", {"headers": as_json}),
        ("OPTIONS", {}),
        ("PUT", {"json": {"a": 1}}),
        ("POST", {"data": form}),
        ("POST", {"data": b"plain", "headers": {"content-type": "text/plain"}}),
        ("POST", {"data": b"\x00" * 700_000, "headers": {"content-type": "application/octet-stream"}}),
        ("POST", {"data": b"no type", "skip_auto_headers": ["content-type"]}),
    ]
    for method, options in requests:
        answer = await world.request(method, **options)
        assert answer.status == 200, (method, options)
    assert world.ext_proc.messages == []


@pytest.mark.parametrize(
    "content_type", ["application/x-ndjson", "application/jsonl", "application/grpc+json"]
)
async def test_stream_of_documents_is_not_held_back(world: Any, content_type: Any) -> None:
    """Its sender may wait for an answer to the first part: it reaches the engine before it has ended."""
    answered = asyncio.Event()

    async def upload() -> Any:
        yield b'{"a": 1}\n'
        await asyncio.wait_for(answered.wait(), 5)
        yield b'{"a": 2}\n'

    headers = {"content-type": content_type}
    async with world.http.post(world.url(path="/duplex"), data=upload(), headers=headers) as response:
        assert await response.content.readline() == b"first\n"
        answered.set()
        assert await response.content.read() == b"18"
    assert world.ext_proc.messages == []


async def test_upload_of_unknown_length_streams_through(world: Any) -> None:
    """30 MB in chunks, no JSON: neither buffered (413) nor held back."""
    size = 30_000_000
    block = os.urandom(100_000)

    async def upload() -> Any:
        for _ in range(size // len(block)):
            yield block

    answer = await world.post(data=upload(), headers={"content-type": "application/octet-stream"})
    assert (answer.status, answer.seen["bytes"]) == (200, size)
    assert world.ext_proc.messages == []


async def test_ext_proc_can_neither_change_nor_answer_a_request(world: Any) -> None:
    """Header mutations and immediate responses are dropped, whole or leading body; the pick counts."""
    world.ext_proc.headers = {"x-evil": "1", ":path": "/evil"}
    world.ext_proc.pick = world.pools["live"][1]
    for body in ({"prompt": "x"}, {"prompt": "x" * 300_000}):
        answer = await world.post(body)
        assert (answer.status, answer.seen["path"], answer.upstream("x-evil")) == (200, "/v1/x", [])
        assert answer.engine == world.pools["live"][1]
    world.ext_proc.immediate = True
    for body in ({"prompt": "x"}, {"prompt": "x" * 300_000}):
        assert (await world.post(body)).status == 200


async def test_dead_ext_proc_costs_no_answer_and_heals(world: Any) -> None:
    """Killed and gone: 200 by weights from the first request on; picks resume by themselves."""
    picked = world.pools["live"][0]
    await world.ext_proc.kill()
    try:
        answers = [await world.post() for _ in range(10)]
        answers.append(await world.post({"prompt": "x" * 3_000_000}))
        assert {answer.status for answer in answers} == {200}
    finally:
        await world.ext_proc_health(healthy=False)
        await world.ext_proc.start()
        await world.ext_proc_health(healthy=True)
    await world.picks_resume(picked)


async def test_frozen_ext_proc_delays_only_the_first_requests(worlds: Any) -> None:
    """Until the health check has noticed, a request waits the message timeout; then ext_proc is left out."""
    async with worlds(patient=False) as world:
        world.ext_proc.freeze()
        first = [await world.post(), await world.post({"prompt": "x" * 3_000_000})]
        await world.ext_proc_health(healthy=False)
        # Envoy's workers hear of it a moment after its main thread.
        await world.eventually(lambda: unasked(world), "left out")
        asked = len(world.ext_proc.messages)
        later = [await world.post() for _ in range(10)]
        assert {answer.status for answer in first + later} == {200}
        assert len(world.ext_proc.messages) == asked
        world.ext_proc.thaw()
        await world.picks_resume(world.pools["live"][0])


async def unasked(world: Any) -> Any:
    before = len(world.ext_proc.messages)
    assert (await world.post()).status == 200
    return len(world.ext_proc.messages) == before


async def test_ext_proc_stream_lives_as_long_as_the_response(world: Any) -> None:
    """The in-flight counter: the gRPC stream ends with the HTTP response, not before."""
    await world.eventually(lambda: world.ext_proc.open_streams == 0, "quiet")
    async with world.http.post(world.url(path="/stream?silence=0.5"), json={"prompt": "x"}) as response:
        assert await response.content.readuntil(b"\n\n") == b"data: first\n\n"
        assert world.ext_proc.open_streams == 1
        assert await response.content.read() == b"data: last\n\n"
    await world.eventually(lambda: world.ext_proc.open_streams == 0, "stream ended")


async def test_ext_proc_stream_ends_when_the_client_leaves(world: Any) -> None:
    """An aborted request leaves no count behind."""
    async with world.http.post(world.url(path="/stream?silence=5"), json={"prompt": "x"}) as response:
        await response.content.readuntil(b"\n\n")
        assert world.ext_proc.open_streams == 1
        response.close()
    await world.eventually(lambda: world.ext_proc.open_streams == 0, "stream ended")


async def test_death_of_ext_proc_does_not_cut_a_response(world: Any) -> None:
    """A token stream that ext_proc has picked for goes on without it."""
    async with world.http.post(world.url(path="/stream?silence=0.6"), json={"prompt": "x"}) as response:
        await response.content.readuntil(b"\n\n")
        await world.ext_proc.kill()
        try:
            assert await response.content.read() == b"data: last\n\n"
        finally:
            await world.ext_proc.start()
            await world.ext_proc_health(healthy=True)


async def test_more_requests_in_flight_than_envoys_default_limit(world: Any) -> None:
    """1,024 streams to ext_proc or to the pool are no limit here."""
    count, started = 1100, time.monotonic()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:

        async def one() -> int:
            url = world.url(path="/stream?silence=3")
            async with http.post(url, json={"prompt": "x"}) as response:
                await response.read()
                return response.status

        statuses = await asyncio.gather(*(one() for _ in range(count)))
    assert set(statuses) == {200}, time.monotonic() - started
    overflows = await world.envoy.stats("cluster.(live|warmroute_ext_proc).upstream_rq_pending_overflow")
    assert set(overflows.values()) == {0}
