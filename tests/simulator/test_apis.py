"""The APIs next to chat and completions, as their clients read them."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.io

TEXT = "You are a careful assistant. " * 40
MESSAGE = {"model": "warm-model", "max_tokens": 20, "messages": [{"role": "user", "content": TEXT}]}


async def send(engine: Any, path: str, body: object = None, method: str = "POST") -> tuple[int, Any]:
    async with engine.client.request(method, f"http://{engine.address}{path}", json=body) as reply:
        return reply.status, await reply.json()


async def events(engine: Any, path: str, body: object) -> list[tuple[str, Any]]:
    """Names and data of server-sent events; without a name, ""."""
    async with engine.post(path, body) as reply:
        assert reply.content_type == "text/event-stream"
        raw = await reply.text()
    received = []
    for event in raw.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in event.split("\n"))
        data = fields["data"]
        received.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return received


async def test_several_choices_share_the_prompt(engine: Any) -> None:
    body = {"messages": MESSAGE["messages"], "n": 3, "max_tokens": 20}
    _, whole = await send(engine, "/v1/chat/completions", body)
    streamed = await events(engine, "/v1/chat/completions", {**body, "stream": True})
    texts = [choice["message"]["content"] for choice in whole["choices"]]
    said = ["", "", ""]
    for _, chunk in streamed[:-1]:
        for choice in chunk["choices"]:
            said[choice["index"]] += choice["delta"].get("content", "")
    assert said == texts
    assert len(set(texts)) == 3
    assert whole["usage"]["completion_tokens"] == 60
    assert whole["usage"]["prompt_tokens"] < 400
    assert (await send(engine, "/v1/chat/completions", {**body, "n": 0}))[0] == 400
    assert (await engine.counts())["aborted"] == 0


async def test_a_stored_response_continues_warm(engine: Any) -> None:
    """Its follow-up names it alone, and has its prompt and answer ahead."""
    body = {"input": TEXT, "instructions": "Be brief.", "max_output_tokens": 64}
    _, first = await send(engine, "/v1/responses", body)
    more = {**body, "input": "And then?", "previous_response_id": first["id"]}
    _, second = await send(engine, "/v1/responses", more)
    assert first["output"][0]["content"][0]["type"] == "output_text"
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["input_tokens"] + 64 - 32
    path = f"/v1/responses/{first['id']}"
    assert await send(engine, path, method="GET") == (200, first)
    assert (await send(engine, f"{path}/cancel"))[0] == 400
    assert (await send(engine, path, method="DELETE"))[1]["deleted"] is True
    for method, each in (("GET", path), ("DELETE", path), ("POST", f"{path}/cancel")):
        assert (await send(engine, each, method=method))[0] == 404
    assert (await send(engine, "/v1/responses", more))[0] == 404


async def test_an_unstored_response_is_not_there(engine: Any) -> None:
    _, made = await send(engine, "/v1/responses", {"input": TEXT, "store": False})
    assert (await send(engine, f"/v1/responses/{made['id']}", method="GET"))[0] == 404


async def test_response_events_carry_text_and_order(engine: Any) -> None:
    received = await events(
        engine, "/v1/responses", {"input": [{"role": "user", "content": TEXT}], "stream": True}
    )
    kinds = [kind for kind, _ in received]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-1] == "response.completed"
    assert [data["sequence_number"] for _, data in received] == list(range(len(received)))
    assert all(data["type"] == kind for kind, data in received)
    said = "".join(data["delta"] for kind, data in received if kind == "response.output_text.delta")
    final = received[-1][1]["response"]
    assert final["output"][0]["content"][0]["text"] == said
    assert await send(engine, f"/v1/responses/{final['id']}", method="GET") == (200, final)


async def test_a_background_response_can_be_cancelled(run_engine: Callable[..., Any]) -> None:
    async with run_engine(speed_up=1.0) as engine:
        body = {"input": TEXT, "max_output_tokens": 9000, "background": True}
        _, made = await send(engine, "/v1/responses", body)
        path = f"/v1/responses/{made['id']}"
        assert (await send(engine, path, method="GET"))[1]["status"] == "in_progress"
        assert (await send(engine, f"{path}/cancel"))[1]["status"] == "cancelled"
        await engine.until(lambda: engine.server.driver.model.running == 0)
        assert (await send(engine, path, method="GET"))[1]["status"] == "cancelled"


async def test_a_background_response_finishes_alone(engine: Any) -> None:
    _, made = await send(engine, "/v1/responses", {"input": TEXT, "background": True})
    path = f"/v1/responses/{made['id']}"
    async with asyncio.timeout(60):
        while (await send(engine, path, method="GET"))[1]["status"] != "completed":
            await asyncio.sleep(0.005)
    status, body = await send(engine, f"{path}/cancel")
    assert (status, body["status"]) == (200, "completed")


async def test_message_events_are_anthropic_shaped(engine: Any) -> None:
    """Cached tokens are no input tokens; a system text counts ahead of the messages."""
    _, whole = await send(
        engine, "/v1/messages", {**MESSAGE, "system": [{"type": "text", "text": "Be brief."}]}
    )
    received = await events(engine, "/v1/messages", {**MESSAGE, "system": "Be brief.", "stream": True})
    kinds = [kind for kind, _ in received if kind not in ("ping", "content_block_delta")]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    said = "".join(data["delta"]["text"] for kind, data in received if kind == "content_block_delta")
    assert said == whole["content"][0]["text"]
    usage = received[-2][1]["usage"]
    assert usage["output_tokens"] == 20
    assert usage["cache_read_input_tokens"] > 200
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == whole["usage"]["input_tokens"]


async def test_message_errors_are_anthropic_shaped(engine: Any) -> None:
    status, body = await send(engine, "/v1/messages", {"messages": MESSAGE["messages"]})
    assert (status, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    status, body = await send(engine, "/v1/messages", {**MESSAGE, "model": "other"})
    assert (status, body["error"]["type"]) == (404, "not_found_error")
    status, body = await send(engine, "/v1/messages/count_tokens", {"messages": MESSAGE["messages"]})
    assert status == 200
    assert 290 < body["input_tokens"] < 310


async def test_embeddings_are_the_same_for_the_same_input(engine: Any) -> None:
    body = {"model": "warm-model", "input": [TEXT, "other", TEXT]}
    _, plain = await send(engine, "/v1/embeddings", body)
    _, packed = await send(engine, "/v1/embeddings", {"input": [1, 2, 3], "encoding_format": "base64"})
    vectors = [entry["embedding"] for entry in plain["data"]]
    assert vectors[0] == vectors[2] != vectors[1]
    assert sum(number * number for number in vectors[0]) == pytest.approx(1.0)
    assert plain["usage"]["total_tokens"] == 2 * 290 + 2
    assert packed["usage"]["prompt_tokens"] == 3
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert len(struct.unpack("<64f", raw)) == 64
    assert (await send(engine, "/v1/embeddings", {"input": []}))[0] == 400


async def test_generate_has_the_form_of_its_body(engine: Any) -> None:
    sglang = {"text": TEXT, "sampling_params": {"max_new_tokens": 10}}
    _, whole = await send(engine, "/generate", sglang)
    pieces = await events(engine, "/generate", {**sglang, "stream": True})
    assert whole["meta_info"]["completion_tokens"] == 10
    assert pieces[-1][1] == "[DONE]"
    assert pieces[-2][1]["text"] == whole["text"]
    assert pieces[-2][1]["meta_info"]["finish_reason"] == {"type": "length", "length": 10}
    assert (await send(engine, "/generate", {"input_ids": [1, 2]}))[1]["meta_info"]["prompt_tokens"] == 2

    tgi = {"inputs": TEXT, "parameters": {"max_new_tokens": 10}}
    assert await send(engine, "/generate", tgi) == (200, {"generated_text": whole["text"]})
    tokens = [data for _, data in await events(engine, "/generate_stream", tgi)]
    assert "".join(event["token"]["text"] for event in tokens) == whole["text"]
    assert [event["index"] for event in tokens] == list(range(1, 11))
    assert [event["generated_text"] for event in tokens] == [None] * 9 + [whole["text"]]
    assert (await send(engine, "/generate", {}))[0] == 400
