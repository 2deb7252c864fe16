"""The largest allowed number of discovery clients, each with its own name, under status queries."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import grpc

from bench.abuse import discovery
from fleet.names import TYPE_CLUSTER
from warmroute.demo.http_client import ExchangeError, HttpClient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

CLIENTS: Final = 1990
"""Some fewer than `limits.xds_streams`: the honest ones have places too."""
_FETCHES: Final = 64
_PAUSE_SECONDS: Final = 0.01
_AT_ONCE: Final = 10
"""They come as a fleet does: what many at once cost is another attack."""
_MOST_BYTES: Final = 60 << 20


async def _page(admin: str, path: str, add: Callable[[int], None]) -> None:
    client = HttpClient(admin, time.monotonic)
    try:
        while True:
            with contextlib.suppress(ExchangeError):
                add(len((await client.request("GET", path)).body))
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        client.close()


async def _fetch(xds: str, add: Callable[[int], None]) -> None:
    async def one(channel: grpc.aio.Channel) -> None:
        fetch: Any = channel.unary_unary(discovery.FETCH)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                add(len(await fetch(b"")))
            await asyncio.sleep(_PAUSE_SECONDS)

    options = [("grpc.max_receive_message_length", _MOST_BYTES)]
    async with grpc.aio.insecure_channel(xds, options=options) as channel:
        await asyncio.gather(*(one(channel) for _ in range(_FETCHES)))


async def _stream(xds: str, add: Callable[[int], None]) -> None:
    while True:
        add(await discovery.ask_for_status(xds, seconds=1.0))


KINDS: Final[dict[str, Callable[[str, str, Callable[[int], None]], Coroutine[Any, Any, None]]]] = {
    "status": lambda xds, _, add: _stream(xds, add),
    "fetch": lambda xds, _, add: _fetch(xds, add),
    "view": lambda _, admin, add: _page(admin, "/api/v1/clients", add),
    "metrics": lambda _, admin, add: _page(admin, "/metrics", add),
}
"""Who asks, and where."""


async def attack(
    xds: str, admin: str, kind: str, *, clients: int = CLIENTS, most_bytes: int, seconds: float
) -> int:
    """Connect clients and send one of `KINDS` for a time; return the bytes of the answers."""
    del most_bytes  # They are those of answers, as many as come.
    read = 0

    def add(size: int) -> None:
        nonlocal read
        read += size

    async with grpc.aio.insecure_channel(xds) as channel:
        stream: Any = channel.stream_stream(discovery.METHOD)
        calls: list[Any] = []
        for number in range(clients):
            calls.append(call := stream())
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(discovery.ask(type_url=TYPE_CLUSTER, node=f"crowd-{number}"))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(_PAUSE_SECONDS)
        for call in calls:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.read()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await KINDS[kind](xds, admin, add)
        for call in calls:
            call.cancel()
    return read
