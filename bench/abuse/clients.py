"""Clients of Envoy's listener: endless bodies, aborted requests, meaningless bodies.

Bodies that unfold are left to `bench.bodies`: they would stop the simulated engines, which nothing protects.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Final

from bench.abuse.sending import send
from fleet.settings.address import split_host_port
from warmroute.demo.http_client import ExchangeError, HttpClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.abuse.sending import Sent

_PATH: Final = "/v1/chat/completions"
_HEAD: Final = f"POST {_PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
_CONNECTIONS: Final = 400
_MOST_DELAY_SECONDS: Final = 0.05


def _chat(model: str, words: int) -> bytes:
    prompt = " ".join(f"{random.getrandbits(24):x}" for _ in range(words))
    text = f'{{"model":"{model}","max_tokens":4,"messages":[{{"role":"user","content":"{prompt}"}}]}}'
    return text.encode()


def _request(body: bytes, length: int | None = None) -> bytes:
    return f"{_HEAD}content-length: {length or len(body)}\r\n\r\n".encode() + body


KINDS: Final[dict[str, tuple[Callable[[str], bytes], float | None]]] = {
    "slow_bodies": (lambda model: _request(_chat(model, 10), 500_000), None),
    "large_slow_bodies": (lambda model: _request(_chat(model, 60_000), 500_000), None),
    "given_up": (lambda model: _request(_chat(model, 200)), _MOST_DELAY_SECONDS),
    "deep": (lambda _: _request(b"[" * 500_000), 1.0),
}
"""The bytes that a connection sends, and the most seconds until it is aborted; None: it stays."""


async def ask(address: str, model: str) -> None:
    """Send well-formed requests for whole answers, one after the other, until cancelled."""
    client = HttpClient(address, time.monotonic)
    try:
        while True:
            with contextlib.suppress(ExchangeError):
                await client.request("POST", _PATH, _chat(model, 20), {"content-type": "application/json"})
            await asyncio.sleep(0.02)
    finally:
        client.close()


async def attack(
    address: str, model: str, kind: str, *, most_bytes: int = 256 << 20, seconds: float = 10.0
) -> int:
    """Keep many connections busy; each that ends is followed by another."""
    host, port = split_host_port(address)
    make, patience = KINDS[kind]
    request = make(model)

    async def connect(sent: Sent) -> None:
        _, writer = await asyncio.open_connection(host, port, limit=1024)
        try:
            writer.write(request)
            await writer.drain()
            sent.add(request)
            await asyncio.sleep(seconds if patience is None else random.uniform(0, patience))
        finally:
            writer.transport.abort()

    connections = _CONNECTIONS if patience is None else _CONNECTIONS // 20
    return await send(connect, connections=connections, most_bytes=most_bytes, seconds=seconds)
