"""Long bodies and bodies of unknown length on the real Envoy: a pick for each, and every byte arrives."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from functools import partial
from typing import Any

import pytest

from fleet.names import METADATA_POOL
from testing.raw_http import Reply, Upload, over_http1, over_http2
from tests.envoy.conftest import free_address

LEADING = 524_288
KEPT = 1_048_577 + LEADING
"""Bytes of a body that Envoy keeps for a retry."""
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "chunked": (over_http1, {}),
    "chunked-trailers": (over_http1, {"trailers": True}),
    "length": (over_http1, {"length": True}),
    "http2": (over_http2, {}),
    "http2-trailers": (over_http2, {"trailers": True}),
    "http2-length-trailers": (over_http2, {"trailers": True, "length": True}),
}


def pieces_of(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


def address(world: Any, listener: str = "main") -> str:
    return str(world.url(listener, "").removeprefix("http://"))


def whole(reply: Reply, body: bytes) -> bool:
    """Whether the engine has read the body's bytes, each of them once."""
    return reply.status == 200 and json.loads(reply.body)["sha256"] == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("failures", [0, 1])
async def test_every_byte_arrives_once_and_by_the_pick(world: Any, way: str, failures: int) -> None:
    """Also where a retry sends the body again: as long as Envoy without ext_proc would do so, and longer."""
    send, options = WAYS[way]
    sizes = [
        20,
        LEADING - 1,
        LEADING,
        LEADING + 1,
        1_048_577,
        1_300_000,
        *([] if failures else [KEPT, 9_000_000]),
    ]
    picked = world.pools["retrying"][1]
    world.ext_proc.pick = picked
    for size in sizes:
        body = random.Random(size).randbytes(size)
        world.ext_proc.messages.clear()
        world.engines.failures = failures
        reply = await send(address(world, "retrying"), Upload(pieces_of(body, 16_000), **options))
        assert whole(reply, body), (size, reply.status)
        assert failures or json.loads(reply.body)["address"] == picked
        assert len(world.ext_proc.messages) == 1


@pytest.mark.parametrize("send", [over_http1, over_http2])
async def test_small_and_empty_pieces(world: Any, send: Any) -> None:
    world.ext_proc.pick = world.pools["live"][1]
    body = random.Random(1).randbytes(600_000)
    # Envoy takes two empty DATA frames in a row for a flood.
    pieces = [b"", *pieces_of(body[:2000], 1), b"", *pieces_of(body[2000:], 7001)]
    for trailers in (False, True):
        reply = await send(address(world), Upload(pieces, trailers=trailers))
        assert whole(reply, body)
        assert json.loads(reply.body)["address"] == world.pools["live"][1]


async def test_a_client_that_waits_for_100_continue(world: Any) -> None:
    headers = {"content-type": "application/json", "expect": "100-continue"}
    body = b"x" * 700_000
    for length in (False, True):
        assert whole(await over_http1(address(world), Upload([body], headers=headers, length=length)), body)


@pytest.mark.parametrize("leading", [1000, LEADING + 200_000])
async def test_a_client_that_leaves_leaves_nothing_behind(world: Any, leading: int) -> None:
    """Before the pick no engine is asked; behind it the engine's request ends, as without ext_proc."""
    for send in (over_http1, over_http2):
        upload = Upload([b"x" * leading, b"y"], pause=asyncio.Event())
        sending = asyncio.create_task(send(address(world), upload))
        if leading > LEADING:
            await world.eventually(lambda: world.ext_proc.messages, "picked")
        else:
            await asyncio.sleep(0.1)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert bool(world.ext_proc.messages) is (leading > LEADING)
        world.ext_proc.messages.clear()

    async def idle() -> bool:
        active = await world.envoy.stats("cluster.(live|warmroute_ext_proc).upstream_rq_active")
        return set(active.values()) == {0}

    await world.eventually(idle, "no request is left")


async def test_an_engine_that_answers_in_the_middle_of_a_body(world: Any) -> None:
    """Its answer reaches the client before the body has ended, once the leading part is there."""
    for send in (over_http1, over_http2):
        upload = Upload([b"x" * LEADING, b"x" * 100, b"y"], path="/early", pause=asyncio.Event())
        reply = await send(address(world), upload)
        assert (reply.status, reply.body) == (403, b"early")


@pytest.mark.parametrize("send", [over_http1, over_http2])
async def test_death_in_the_middle_of_a_body_costs_no_byte(worlds: Any, send: Any) -> None:
    """Killed or frozen, before, while or after it has the leading part: all by weights, each byte once."""
    async with worlds(patient=False) as world:
        body = random.Random(2).randbytes(LEADING + 300_000)
        for stop, pieces in (("kill", [body[:1000], body[1000:]]), ("freeze", [body]), ("kill", [body])):
            pause = asyncio.Event()
            upload = Upload([*pieces, b""] if len(pieces) == 1 else pieces, pause=pause, trailers=True)
            if stop == "freeze":
                world.ext_proc.freeze()
            world.ext_proc.messages.clear()
            sending = asyncio.create_task(send(address(world, "retrying"), upload))
            await (
                asyncio.sleep(0.1)
                if len(pieces) > 1
                else world.eventually(lambda: world.ext_proc.messages, "")
            )
            if stop == "kill":
                await world.ext_proc.kill()
            pause.set()
            assert whole(await sending, body)
            world.ext_proc.thaw()
            await world.ext_proc.kill()
            await world.ext_proc.start()
            await world.ext_proc_health(healthy=True)


def with_several_pools(written: dict[str, Any]) -> None:
    """Add a listener at which only the answer to a leading part leads to the second pool."""
    listener = {"name": "several", "address": free_address(), "pools": ["live", "retrying"]}
    written["listeners"].append(listener)


@pytest.mark.parametrize("send", [over_http1, over_http2])
async def test_death_around_the_choice_of_a_pool(worlds: Any, send: Any) -> None:
    """Before the answer the default pool gets the whole body, and after it the pool of the answer."""
    async with worlds(patient=False, adapt=with_several_pools) as world:
        body = random.Random(3).randbytes(LEADING + 300_000)
        picked = world.pools["retrying"][1]
        for when in ("after", "during", "before"):
            world.ext_proc.pick, world.ext_proc.metadata = picked, {METADATA_POOL: "retrying"}
            world.ext_proc.messages.clear()
            pause = asyncio.Event()
            if when == "during":
                world.ext_proc.freeze()
            elif when == "before":
                await world.ext_proc.kill()
            upload = Upload(pieces_of(body, LEADING + 1000), pause=pause)
            sending = asyncio.create_task(send(address(world, "several"), upload))
            if when == "during":
                await world.eventually(lambda: world.ext_proc.messages, "it has the leading part")
            elif when == "after":
                await world.eventually(partial(active_in, world, "retrying"), "an engine has the request")
            await world.ext_proc.kill()
            pause.set()
            reply = await sending
            assert whole(reply, body)
            served = json.loads(reply.body)["address"]
            assert served == picked if when == "after" else served in world.pools["live"]
            world.ext_proc.thaw()
            await world.ext_proc.start()
            await world.ext_proc_health(healthy=True)


async def active_in(world: Any, pool: str) -> bool:
    stats = await world.envoy.stats(f"cluster.{pool}.upstream_rq_active")
    return bool(sum(stats.values()))


async def test_a_call_that_ends_without_an_answer_costs_no_byte(world: Any) -> None:
    """So ext_proc ends the calls that it cannot read, and those that are open when it stops."""
    world.ext_proc.mute = True
    body = b"x" * 700_000
    assert whole(await over_http1(address(world), Upload(pieces_of(body, 10_000))), body)
    assert len(world.ext_proc.messages) == 1


async def test_http_1_0_is_served_as_http_1_0(world: Any) -> None:
    """With a pick, and a token stream that ends with its connection instead of a last chunk."""
    picked = world.pools["live"][1]
    world.ext_proc.pick = picked
    upload = Upload([b"{}"], length=True, version="1.0")
    reply = await over_http1(address(world), upload)
    assert json.loads(reply.body)["address"] == picked
    stream = await over_http1(address(world), Upload([b"{}"], path="/stream", length=True, version="1.0"))
    assert stream.body == b"data: first\n\ndata: last\n\n"
    for answer in (reply, stream):
        assert answer.version == "HTTP/1.0" or answer.headers["connection"] == "close"
        assert "transfer-encoding" not in answer.headers
