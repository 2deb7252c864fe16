"""Faults on demand do what they say, and heal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from warmroute.simulator.admin import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = {"messages": [{"role": "user", "content": "hello " * 200}], "max_tokens": 8}
CHAT = "/v1/chat/completions"


async def test_slow_stretches_the_engines_own_times(engine: Any) -> None:
    """Factor 50: the engine's own end-to-end sum grows by more than 20 times."""
    e2e = engine.server.driver.metrics.e2e
    await engine.chat("a" * 4_000)
    normal = e2e.total
    assert await engine.fault(kind="slow", factor=50) == 200
    await engine.chat("b" * 4_000)
    assert e2e.total - normal > 20 * normal
    assert await engine.fault(kind="none") == 200
    assert engine.server.driver.model.slowdown == 1.0


async def test_frozen_accepts_and_never_answers_until_healed(engine: Any) -> None:
    """Health and a stale metrics page go on; the request is answered after healing, its time unspent."""
    await engine.chat("before")
    assert await engine.fault(kind="frozen") == 200
    before = await engine.get("/metrics")

    async def ask() -> int:
        async with engine.post(CHAT, {**BODY, "stream": True}) as reply:
            await reply.read()
            return int(reply.status)

    asking = asyncio.create_task(ask())
    await engine.until(lambda: engine.server.counts.requests == 2)
    assert await engine.get("/health") == (200, "")
    await asyncio.sleep(0.05)
    assert not asking.done()
    assert await engine.get("/metrics") == before
    await engine.fault(kind="none")
    assert await asking == 200
    assert await engine.get("/metrics") != before
    assert engine.server.driver.metrics.e2e.total < 0.05


async def test_a_stream_under_way_freezes_too(run_engine: Callable[..., Any]) -> None:
    """Tokens stop in the middle and go on afterwards; none is lost."""
    async with run_engine(speed_up=5.0) as engine:
        # So slow that it is in the midst of it whenever this test comes to look.
        engine.server.set_fault(Fault(kind="slow", factor=30))
        async with engine.post(CHAT, {**BODY, "stream": True, "max_tokens": 60}) as reply:
            raw = await reply.content.readany()
            engine.server.set_fault(Fault(kind="frozen"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.15):
                    while b"[DONE]" not in raw:
                        raw += await reply.content.readany()
            await engine.fault(kind="none")
            raw += await reply.content.read()
        assert b"[DONE]" in raw
        assert engine.server.driver.model.counters.generated == 60


@pytest.mark.parametrize("code", [503, 429])
async def test_status_answers_with_that_code(engine: Any, code: int) -> None:
    """Inference is refused; health and metrics are not."""
    await engine.fault(kind="status", code=code)
    async with engine.post(CHAT, BODY) as reply:
        assert reply.status == code
        assert (await reply.json())["error"]["code"] == code
    assert (await engine.get("/health"))[0] == 200
    await engine.fault(kind="none")
    await engine.chat("after")
    assert engine.server.counts.refused == 1


async def test_reset_drops_new_connections_and_those_under_way(run_engine: Callable[..., Any]) -> None:
    """Both see a reset, not an answer; the dropped request frees its blocks."""
    async with run_engine(speed_up=1.0) as engine:
        model = engine.server.driver.model
        async with engine.post(CHAT, {**BODY, "stream": True, "max_tokens": 9_000}) as reply:
            await reply.content.readany()
            await engine.fault(kind="reset")
            with pytest.raises(aiohttp.ClientError):
                await reply.read()
        await engine.until(lambda: model.running == 0)
        assert model.cache.used == 0
        with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
            async with engine.post(CHAT, BODY):
                pass
        assert (await engine.get("/health"))[0] == 200
        await engine.fault(kind="none")
        await engine.chat("after", max_tokens=1)


async def test_out_of_memory_reads_full_and_makes_requests_wait(engine: Any) -> None:
    """kv_cache_usage_perc 0.97, the request waits, and ends once healed."""
    await engine.fault(kind="out_of_memory")
    asking = asyncio.create_task(engine.chat("hello"))
    await engine.until(lambda: engine.server.driver.model.waiting == 1)
    page = (await engine.get("/metrics"))[1]
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="warm-model"} 0.97\n' in page
    assert 'vllm:num_requests_waiting{engine="0",model_name="warm-model"} 1.0\n' in page
    assert not asking.done()
    await engine.fault(kind="none")
    assert (await asking)["usage"]["completion_tokens"] == 16


def gauge(page: str, name: str) -> float:
    (line,) = (line for line in page.splitlines() if line.startswith(f"vllm:{name}{{"))
    return float(line.rpartition(" ")[2])


async def test_memory_and_zeros_change_only_the_metrics_page(
    run_engine: Callable[..., Any],
) -> None:
    async with run_engine(speed_up=1.0) as engine:
        async with engine.post(CHAT, {**BODY, "stream": True, "max_tokens": 9_000}) as reply:
            await reply.content.readany()
            assert await engine.fault(kind="memory", ratio=0.97) == 200
            page = (await engine.get("/metrics"))[1]
            assert gauge(page, "kv_cache_usage_perc") == 0.97
            assert gauge(page, "num_requests_running") == 1
            assert engine.server.driver.model.kv_used_ratio < 0.97
            await engine.fault(kind="zeros")
            page = (await engine.get("/metrics"))[1]
            assert gauge(page, "kv_cache_usage_perc") == gauge(page, "num_requests_running") == 0
            await engine.fault(kind="none")
            assert gauge((await engine.get("/metrics"))[1], "num_requests_running") == 1
        await engine.chat("after", max_tokens=1)


async def test_jitter_moves_the_gauges_within_its_bounds(run_engine: Callable[..., Any]) -> None:
    async with run_engine(speed_up=1.0) as engine:
        async with engine.post(CHAT, {**BODY, "stream": True, "max_tokens": 9_000}) as reply:
            await reply.content.readany()
            await engine.fault(kind="jitter", ratio=0.1)
            pages = [(await engine.get("/metrics"))[1] for _ in range(20)]
        values = {gauge(page, "num_requests_running") for page in pages}
        assert len(values) == 20
        assert all(0.9 <= value <= 1.1 for value in values)


async def test_restart_drops_requests_and_forgets_everything(run_engine: Callable[..., Any]) -> None:
    """Cache cold, counters at 0, faults healed, the request under way reset."""
    async with run_engine(speed_up=5.0) as engine:
        await engine.chat("hello " * 100)
        started = engine.server.driver.started_at
        async with engine.post(CHAT, {**BODY, "stream": True, "max_tokens": 9_000}) as reply:
            await reply.content.readany()
            await engine.fault(kind="slow", factor=2)
            async with engine.post("/admin/restart", {}) as restarted:
                assert restarted.status == 200
            with pytest.raises(aiohttp.ClientError):
                await reply.read()
        assert (await engine.counts())["requests"] == 0
        assert engine.server.driver.started_at > started
        page = (await engine.get("/metrics"))[1]
        assert 'vllm:prompt_tokens_total{engine="0",model_name="warm-model"} 0.0\n' in page
        assert 'vllm:num_requests_running{engine="0",model_name="warm-model"} 0.0\n' in page
        again = await engine.chat("hello " * 100)
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        counts = await engine.counts()
        assert (counts["finished"], counts["aborted"]) == (1, 0)


async def test_reset_cache_makes_prompts_cold(engine: Any) -> None:
    """The same prompt is computed again; counters stay."""
    await engine.chat("hello " * 100)
    async with engine.post("/admin/reset_cache", {}) as reply:
        assert reply.status == 200
    again = await engine.chat("hello " * 100)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert (await engine.counts())["finished"] == 2


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "earthquake"},
        {"kind": "slow", "factor": 0},
        {"kind": "status", "code": 200},
        {"kind": "slow", "by": 2},
        {"kind": "memory", "ratio": 1.1},
        {"kind": "jitter", "ratio": -0.1},
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused(engine: Any, fault: dict[str, object]) -> None:
    """400, and the engine stays as it was."""
    assert await engine.fault(**fault) == 400
    assert engine.server.fault.kind == "none"
