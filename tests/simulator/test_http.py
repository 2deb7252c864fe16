"""The engine over HTTP: what clients of vLLM rely on."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from fleet.names import HEADER_ENDPOINT
from warmroute.simulator.admin import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.io

TEXT = "You are a careful assistant. " * 40
CHAT = "/v1/chat/completions"


def chat_body(text: str = TEXT, **fields: object) -> dict[str, object]:
    return {"model": "warm-model", "messages": [{"role": "user", "content": text}], **fields}


def parse_sse(raw: str) -> list[dict[str, Any]]:
    """Each event is one data line and a blank one; the last is the end mark."""
    events = raw.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(event.startswith("data: ") and "\n" not in event for event in events[:-1])
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


async def test_a_chat_stream_is_openai_shaped(engine: Any) -> None:
    """Role first, then content, then the reason, then the usage with no choices."""
    body = chat_body(stream=True, max_tokens=40, stream_options={"include_usage": True})
    async with engine.post(CHAT, body, x_request_id="abc-1") as reply:
        assert reply.status == 200
        assert reply.content_type == "text/event-stream"
        assert reply.headers["x-engine-address"] == engine.address
        chunks = parse_sse(await reply.text())
    assert {chunk["id"] for chunk in chunks} == {"chatcmpl-abc-1"}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 40
    said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert len(said) == 40 * 4


async def test_no_usage_chunk_unless_requested(engine: Any) -> None:
    """As OpenAI: without include_usage every chunk has choices."""
    async with engine.post(CHAT, chat_body(stream=True)) as reply:
        chunks = parse_sse(await reply.text())
    assert all(chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize("speed_up", [20.0, 100_000.0])
async def test_coalescing_keeps_every_token(run_engine: Callable[..., Any], speed_up: float) -> None:
    """Fewer chunks than tokens, the same text as without a stream, for many clients at once."""
    async with run_engine(speed_up=speed_up) as engine:

        async def one(number: int) -> tuple[int, str, str]:
            body = chat_body(f"{number} {TEXT}", max_tokens=100, stream=True)
            async with engine.post(CHAT, body) as reply:
                chunks = parse_sse(await reply.text())
            said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
            whole = await engine.chat(f"{number} {TEXT}", max_tokens=100)
            return len(chunks), said, whole["choices"][0]["message"]["content"]

        for chunks, said, whole in await asyncio.gather(*(one(number) for number in range(8))):
            assert said == whole
            assert len(said) == 400
            assert chunks < 80


async def test_a_repeated_prompt_is_cached(engine: Any) -> None:
    """The usage shows how much of the prompt was warm, in whole blocks."""
    cold, warm = await engine.chat(TEXT), await engine.chat(TEXT)
    tokens = cold["usage"]["prompt_tokens"]
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == (tokens - 1) // 16 * 16
    assert cold["usage"]["completion_tokens"] == 16
    assert cold["usage"]["total_tokens"] == tokens + 16


async def test_the_next_turn_finds_prompt_and_answer_warm(engine: Any) -> None:
    """A conversation that carries the model's answer back stays warm past the answer."""
    first = await engine.chat(TEXT, max_tokens=64)
    turns = [
        {"role": "user", "content": TEXT},
        first["choices"][0]["message"],
        {"role": "user", "content": "go on"},
    ]
    async with engine.post(CHAT, {"messages": turns}) as reply:
        usage = (await reply.json())["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] + 64 - 32


async def test_completions_take_text_and_token_ids(engine: Any) -> None:
    """Both shapes of prompt; a token id is one token."""
    async with engine.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 3}) as reply:
        ids = await reply.json()
    async with engine.post("/v1/completions", {"prompt": "x" * 40, "stream": True}) as reply:
        chunks = parse_sse(await reply.text())
    assert ids["object"] == "text_completion"
    assert ids["usage"]["prompt_tokens"] == 3
    assert len(ids["choices"][0]["text"]) == 12
    assert len("".join(chunk["choices"][0]["text"] for chunk in chunks)) == 64


async def test_list_content_renders_like_text(engine: Any) -> None:
    """The same text in parts has the same prefix."""
    await engine.chat(TEXT)
    parts = [{"type": "text", "text": TEXT[:100]}, {"type": "text", "text": TEXT[100:]}]
    async with engine.post(CHAT, {"messages": [{"role": "user", "content": parts}]}) as reply:
        usage = (await reply.json())["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, b"{bad", 400),
        (CHAT, b"[" * 100_000, 400),
        (CHAT, b"\xff\xfe", 400),
        (CHAT, b'{"messages": []}', 400),
        (CHAT, b'{"messages": [{"role": "user", "content": 5}]}', 400),
        (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', 400),
        (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 999999}', 400),
        (CHAT, b'{"model": "other", "messages": [{"role": "user", "content": "x"}]}', 404),
        ("/v1/completions", b'{"prompt": {"a": 1}}', 400),
        ("/v1/completions", b'{"prompt": ["a", "b"]}', 400),
        ("/v1/nowhere", b"{}", 404),
    ],
)
async def test_bad_requests_get_openai_errors(engine: Any, path: str, body: bytes, status: int) -> None:
    """The status stands in the body too, and nothing keeps running."""
    async with engine.client.post(f"http://{engine.address}{path}", data=body) as reply:
        assert reply.status == status
        error = (await reply.json())["error"]
    assert error["code"] == status
    assert error["message"]
    assert engine.server.driver.model.running == 0


async def test_models_and_health(engine: Any) -> None:
    """What a client asks first."""
    status, text = await engine.get("/v1/models")
    assert status == 200
    assert json.loads(text)["data"][0]["id"] == "warm-model"
    assert (await engine.get("/health"))[0] == 200


async def test_routed_and_honoured_count_apart(engine: Any) -> None:
    """A pick that names this engine is honoured; one that names another arrived in spite of it."""
    for picked in (engine.address, "10.0.0.9:8000", None):
        headers = {} if picked is None else {HEADER_ENDPOINT.replace("-", "_"): picked}
        async with engine.post(CHAT, chat_body(), **headers) as reply:
            assert reply.status == 200
            await reply.read()
    counts = await engine.counts()
    assert (counts["requests"], counts["routed"], counts["honoured"], counts["finished"]) == (3, 2, 1, 3)
    assert counts["address"] == engine.address
    assert 0 < counts["cached_tokens"] < counts["prompt_tokens"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_request(run_engine: Callable[..., Any], stream: bool) -> None:
    """Blocks and batch place come back, and the abort is counted."""
    async with run_engine(speed_up=1.0) as engine:
        model = engine.server.driver.model
        post = engine.client.post(
            f"http://{engine.address}{CHAT}", json=chat_body(stream=stream, max_tokens=9_000)
        )
        leaving = asyncio.create_task(_read(post))
        await engine.until(lambda: model.running == 1)
        assert model.cache.used > 0
        leaving.cancel()
        await engine.until(lambda: model.running == 0)
        assert model.cache.used == 0
        assert model.counters.aborted_requests == 1
        await engine.until(lambda: engine.server.counts.aborted == 1)
        assert engine.server.driver.metrics.success["abort"] == 1


async def _read(post: Any) -> None:
    async with post as reply:
        await reply.read()


@pytest.mark.parametrize(
    ("remote", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        (None, True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("localhost.evil", False),
    ],
)
def test_admin_is_for_loopback(remote: str | None, own: bool) -> None:
    """Only this machine's own addresses count."""
    assert is_loopback(remote) is own


async def test_a_request_names_its_rank(run_engine: Callable[..., Any]) -> None:
    """Each rank has a cache of its own; the engine refuses the number of a rank that it lacks, as vLLM."""
    async with run_engine(ranks=2) as engine:
        hits = []
        for rank in ("0", "1", "1", "0", "x"):
            async with engine.post(CHAT, chat_body(), x_data_parallel_rank=rank) as reply:
                assert reply.status == 200
                hits.append((await reply.json())["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
        assert hits == [False, False, True, True, True]
        for rank in ("2", "-1"):
            async with engine.post(CHAT, chat_body(), x_data_parallel_rank=rank) as reply:
                assert reply.status == 400
                assert f"data_parallel_rank {rank} is out of range [0, 2)" in await reply.text()


async def test_ranks_have_series_of_their_own(run_engine: Callable[..., Any]) -> None:
    async with run_engine(ranks=3) as engine:
        async with engine.post(CHAT, chat_body(), x_data_parallel_rank="2") as reply:
            assert reply.status == 200
        page = (await engine.get("/metrics"))[1]
    lines = [line for line in page.splitlines() if line.startswith("vllm:prompt_tokens_total{")]
    assert [line.rpartition(" ")[2] == "0.0" for line in lines] == [True, True, False]
    heads = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len({*heads})
