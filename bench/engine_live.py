"""The engine model against a real llama.cpp on this machine: constants from some loads predict others.

llama.cpp is the demo's engine: two slots, one thread, a small model. Clients send prompts of random words,
without a common prefix. The reference is the last value: that the next load's times are the last load's.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from random import Random
from subprocess import DEVNULL, Popen
from typing import Any, Final, NamedTuple

import aiohttp
import numpy as np

from bench.engine_fit import Load, Times, fit, predict
from warmroute.demo import report
from warmroute.demo.llama_engine import INSTALL, available
from warmroute.demo.processes import free_port
from warmroute.simulator.fits import Timing
from warmroute.simulator.model import EngineConfig, Request

GUESS: Final = Timing(0.01, 0.002, 2e-6, 5e-3, 1e-6)
"""One CPU thread: 23 kB of KV a token, 69,000 operations a pair of tokens."""
CONFIG: Final = EngineConfig(
    num_blocks=128, max_num_seqs=2, max_batched_tokens=2048, async_scheduling=False, report_tokens=False
)
"""As the demo starts llama.cpp."""
START_SECONDS: Final = 60.0


class Shape(NamedTuple):
    """Clients, and at most: the words of a prompt, and the tokens of an answer. At least half as many.

    With equal lengths both slots would compute and decode in step with one another.
    """

    clients: int
    words: int
    output_tokens: int


FITTED: Final = (Shape(1, 80, 32), Shape(1, 200, 32), Shape(2, 120, 32))
OTHERS: Final = (Shape(2, 320, 40), Shape(4, 160, 24))
REQUESTS: Final = 8
_WORDS: Final = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world")


class Ran(NamedTuple):
    """What was sent, and its mean times."""

    load: Load
    times: Times


def check() -> dict[str, Any] | None:
    """Return the relative errors on loads that the constants do not come from; None without llama.cpp."""
    if not available():
        report.progress(f"llama.cpp is not installed, its check is left out: {INSTALL}")
        return None
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "warmroute.demo.llama_engine", "--address", address]
    with Popen(command, stdout=DEVNULL, stderr=DEVNULL) as engine:
        try:
            ran = asyncio.run(_measure(address))
        finally:
            engine.terminate()
    fitted, others = ran[: len(FITTED)], ran[len(FITTED) :]
    constants = fit(GUESS, [one.load for one in fitted], [one.times for one in fitted])
    measured = np.array([one.times for one in others])
    model = np.abs(np.array([predict(constants, one.load) for one in others]) / measured - 1)
    last = np.abs(np.array(fitted[-1].times) / measured - 1)
    result: dict[str, Any] = {"loads": [shape._asdict() for shape in OTHERS]}
    for column, name in enumerate(("ttft", "tpot")):
        result[f"{name}_error"] = model[:, column].round(3).tolist()
        result[f"{name}_error_last_value"] = last[:, column].round(3).tolist()
    report.progress(f"llama.cpp, other loads: {json.dumps(result)}")
    return result


async def _measure(address: str) -> list[Ran]:
    # llama.cpp closes a connection after a stream.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(f"http://{address}", connector=connector) as client:
        await _ready(client)
        draw = Random(1)
        await _one(client, Shape(1, 20, 4), draw)
        return [await _run(client, shape, draw) for shape in (*FITTED, *OTHERS)]


async def _ready(client: aiohttp.ClientSession) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            async with client.get("/health") as reply:
                if reply.status == 200:
                    return
        except aiohttp.ClientError:
            pass  # It does not listen yet.
        if time.monotonic() > until:
            raise OSError(f"llama.cpp did not start within {START_SECONDS:g} s")
        await asyncio.sleep(0.2)


async def _run(client: aiohttp.ClientSession, shape: Shape, draw: Random) -> Ran:
    done: list[tuple[Request, Times]] = []
    left = REQUESTS

    async def send() -> None:
        nonlocal left
        while left:
            left -= 1
            done.append(await _one(client, shape, draw))

    await asyncio.gather(*(send() for _ in range(shape.clients)))
    load = Load(CONFIG, shape.clients, tuple(request for request, _ in done))
    return Ran(load, Times(*np.mean([times for _, times in done], axis=0).tolist()))


async def _one(client: aiohttp.ClientSession, shape: Shape, draw: Random) -> tuple[Request, Times]:
    body = {
        "model": "smol",
        "prompt": " ".join(draw.choices(_WORDS, k=draw.randint(shape.words // 2, shape.words))),
        "max_tokens": draw.randint(shape.output_tokens // 2, shape.output_tokens),
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent_at, first_at, last_at, usage = time.monotonic(), None, 0.0, None
    async with client.post("/v1/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.content:
            if not line.startswith(b"data: {"):
                continue
            piece = json.loads(line[6:])
            usage = piece.get("usage") or usage
            if piece.get("choices"):
                last_at = time.monotonic()
                first_at = first_at or last_at
    assert first_at is not None
    assert usage is not None
    tokens = usage["completion_tokens"]
    times = Times(first_at - sent_at, (last_at - first_at) / (tokens - 1))
    return Request(usage["prompt_tokens"], tokens), times
