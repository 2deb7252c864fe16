"""A hostile client of discovery: names without end, large nodes, streams that say nothing or read nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import grpc

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT

if TYPE_CHECKING:
    from collections.abc import Callable

METHOD: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
DELTA: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
STATUS: Final = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus"
FETCH: Final = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus"
_MOST_BYTES: Final = 60 << 20
_FOREVER: Final = 3600.0


def field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, as protobuf writes it."""
    size, prefix = len(content), bytearray([number << 3 | 2])
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes(prefix) + bytes([size]) + content


def ask(names: bytes = b"", type_url: str = TYPE_ENDPOINT, node: str = "abuse", extra: bytes = b"") -> bytes:
    """Return a request; `names` and the node fields in `extra` are serialised already."""
    begin = discovery_pb2.DiscoveryRequest(type_url=type_url)
    begin.node.id = node
    return begin.SerializeToString() + names + (field(2, extra) if extra else b"")


def _unlike(size: int) -> bytes:
    """Names of 3 KB, each another one."""
    return b"".join(field(3, b"%020d" % number + b"x" * 3000) for number in range(size // 3024))


def _deep() -> bytes:
    """A value in a list in a list, as deep as a parser may like."""
    value = b"\x0a\x00"
    for _ in range(80):
        value = field(6, field(1, value))
    return field(3, field(1, field(1, b"k") + field(2, value)))


KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "same_name": lambda size: ask(field(3, b"chat") * (size // 6)),
    "empty_names": lambda size: ask(b"\x1a\x00" * (size // 2)),
    "unlike_names": lambda size: ask(_unlike(size)),
    "locators": lambda size: ask(field(7, b"") * (size // 2)),
    "node_id": lambda size: ask(node="x" * size),
    "extensions": lambda size: ask(extra=field(9, b"") * (size // 2)),
    "metadata": lambda size: ask(extra=_deep() * (size // len(_deep()))),
    "error": lambda size: ask(names=field(6, field(2, b"x" * size))),
    "type_url": lambda size: ask(type_url="x" * size),
    "clusters": lambda _: ask(type_url=TYPE_CLUSTER),
    "nothing": lambda _: b"",
}
"""A stream's first message by its approximate size in bytes; `nothing` is never sent."""


async def attack(
    address: str,
    kind: str,
    size: int = 60_000_000,
    *,
    streams: int = 8,
    most_bytes: int = 512 << 20,
    seconds: float = 10.0,
    method: str = METHOD,
) -> int:
    """Open streams that send one of `KINDS` and read nothing; reopen each that ends."""
    message, sent = KINDS[kind](size), 0
    if len(message) > _MOST_BYTES:
        raise ValueError(f"{len(message)} bytes; allowed: {_MOST_BYTES}")
    options = [("grpc.max_send_message_length", _MOST_BYTES)]

    async def one(channel: grpc.aio.Channel) -> None:
        nonlocal sent
        stream: Any = channel.stream_stream(method)
        while sent < most_bytes:
            call = stream()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                if message:
                    await call.write(message)
                    sent += len(message)
                await call.code()
            await asyncio.sleep(0.01)
        await asyncio.sleep(_FOREVER)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), grpc.aio.insecure_channel(address, options=options) as channel:
            await asyncio.gather(*(one(channel) for _ in range(streams)))
    return sent


async def send(
    address: str,
    method: str,
    message: bytes,
    *,
    streams: int = 8,
    most_bytes: int = 512 << 20,
    seconds: float = 10.0,
) -> int:
    """Send one message repeatedly on several streams; return the bytes sent."""
    sent = 0

    async def one(channel: grpc.aio.Channel) -> None:
        nonlocal sent
        stream: Any = channel.stream_stream(method)
        while sent < most_bytes:
            call = stream()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while sent < most_bytes:
                    await call.write(message)
                    sent += len(message)
            await asyncio.sleep(0.01)
        await asyncio.sleep(_FOREVER)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), grpc.aio.insecure_channel(address) as channel:
            await asyncio.gather(*(one(channel) for _ in range(streams)))
    return sent


async def say_little(
    address: str,
    *,
    most_bytes: int = 256 << 20,
    seconds: float = 10.0,
    streams: int = 10,
    names: int = 19_900,
) -> int:
    """Subscribe to many names, then to one more and not to it, again and again; returns the bytes sent."""
    sent = 0
    begin = discovery_pb2.DeltaDiscoveryRequest(type_url=TYPE_ENDPOINT)
    begin.node.id = "abuse"
    begin.resource_names_subscribe.extend([f"{number:06d}" for number in range(names)])
    more, less = (discovery_pb2.DeltaDiscoveryRequest(type_url=TYPE_ENDPOINT) for _ in range(2))
    more.resource_names_subscribe.append("z")
    less.resource_names_unsubscribe.append("z")

    async def one(channel: grpc.aio.Channel) -> None:
        nonlocal sent
        stream: Any = channel.stream_stream(DELTA)
        while sent < most_bytes:
            call = stream()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(begin.SerializeToString())
                while sent < most_bytes and await call.read() is not grpc.aio.EOF:
                    # Of the two that follow, the first is answered.
                    for request in (more, less):
                        await call.write(request.SerializeToString())
                        sent += request.ByteSize()
            await asyncio.sleep(0.01)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), grpc.aio.insecure_channel(address) as channel:
            await asyncio.gather(*(one(channel) for _ in range(streams)))
    return sent


async def fetch_status(
    address: str,
    *,
    size: int = 2_000_000,
    most_bytes: int = 4 << 30,
    seconds: float = 10.0,
    calls: int = 300,
) -> int:
    """Ask for the state of all clients in many requests at once, each as large as is taken."""
    sent = 0
    request = field(2, field(1, b"x" * size))

    async def one(channel: grpc.aio.Channel) -> None:
        nonlocal sent
        call: Any = channel.unary_unary(FETCH)
        while sent < most_bytes:
            sent += len(request)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call(request)
            await asyncio.sleep(0.01)

    options = [("grpc.max_receive_message_length", _MOST_BYTES)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), grpc.aio.insecure_channel(address, options=options) as channel:
            await asyncio.gather(*(one(channel) for _ in range(calls)))
    return sent


async def ask_for_status(
    address: str, *, most_bytes: int = 256 << 20, seconds: float = 10.0, streams: int = 32
) -> int:
    """Ask for the state of all clients as fast as answers come, on many streams; returns the bytes read."""
    read = 0

    async def one(channel: grpc.aio.Channel) -> None:
        nonlocal read
        stream: Any = channel.stream_stream(STATUS)
        while read < most_bytes:
            call = stream()
            with contextlib.suppress(grpc.aio.AioRpcError):
                while read < most_bytes:
                    await call.write(b"")
                    read += len(await call.read())
            await asyncio.sleep(0.01)

    options = [("grpc.max_receive_message_length", _MOST_BYTES)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), grpc.aio.insecure_channel(address, options=options) as channel:
            await asyncio.gather(*(one(channel) for _ in range(streams)))
    return read
