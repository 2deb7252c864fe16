"""Requests that end with trailers, which only HTTP/2 clients can send through our listeners."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import h2.connection
import h2.events
import pytest

_SECONDS = 10.0


async def _post(url: str, headers: list[tuple[str, str]], body: bytes) -> dict[str, Any]:
    """Send a body and one trailer over HTTP/2; return what the engine says it saw."""
    host, _, path = url.removeprefix("http://").partition("/")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    stream = connection.get_next_available_stream_id()
    pseudo = [(":method", "POST"), (":scheme", "http"), (":authority", host), (":path", f"/{path}")]
    connection.send_headers(stream, [*pseudo, *headers])
    answer, sent, ended = b"", 0, False
    try:
        async with asyncio.timeout(_SECONDS):
            while not ended:
                while sent < len(body) and (window := connection.local_flow_control_window(stream)) > 0:
                    piece = body[sent : sent + min(window, connection.max_outbound_frame_size)]
                    connection.send_data(stream, piece)
                    sent += len(piece)
                    if sent == len(body):
                        connection.send_headers(stream, [("x-sum", "1")], end_stream=True)
                writer.write(connection.data_to_send())
                for event in connection.receive_data(await reader.read(65_536)):
                    if isinstance(event, h2.events.DataReceived):
                        answer += event.data
                        connection.acknowledge_received_data(event.flow_controlled_length, stream)
                    ended = ended or isinstance(event, h2.events.StreamEnded | h2.events.StreamReset)
    finally:
        writer.close()
        await writer.wait_closed()
    seen: dict[str, Any] = json.loads(answer)
    return seen


@pytest.mark.parametrize("size", [20, 50_000, 900_000, 3_000_000])
@pytest.mark.parametrize(
    ("with_length", "announced"),
    [(True, True), (False, True), (False, False)],
    ids=["length", "no-length", "no-length-unannounced"],
)
async def test_trailers_do_not_double_a_body(world: Any, size: Any, with_length: Any, announced: Any) -> None:
    """Where a leading part goes to ext_proc and the route has retries, Envoy 1.40 sends such a body twice."""
    body = json.dumps({"prompt": "x" * size}).encode()
    headers = [("content-type", "application/json")]
    if announced:
        headers.append(("trailer", "x-sum"))
    if with_length:
        headers.append(("content-length", str(len(body))))
    for _ in range(3):
        seen = await _post(world.url(), headers, body)
        assert (seen["bytes"], seen["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())


async def test_ordinary_body_with_trailers_is_picked(world: Any) -> None:
    """A body with a content-length is buffered whole, and trailers do it no harm, announced or not."""
    picked = world.pools["live"][1]
    world.ext_proc.pick = picked
    body = json.dumps({"prompt": "x" * 10_000}).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    for told in ([], [("trailer", "x-sum")]):
        seen = await _post(world.url(), headers + told, body)
        assert (seen["address"], seen["bytes"]) == (picked, len(body))
