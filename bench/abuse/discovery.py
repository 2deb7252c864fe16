"""A hostile client of discovery: names without end, large nodes, streams that say nothing or read nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc

from bench.abuse.sending import field, send_calls
from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.abuse.sending import Sent

METHOD: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
DELTA: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
STATUS: Final = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus"
FETCH: Final = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus"


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
    message = KINDS[kind](size)

    async def speak(call: Any, sent: Sent) -> None:
        if message:
            await call.write(message)
            sent.add(message)
        await call.code()

    return await send_calls(address, method, speak, calls=streams, most_bytes=most_bytes, seconds=seconds)


async def repeat(
    address: str,
    method: str,
    message: bytes,
    *,
    streams: int = 8,
    most_bytes: int = 512 << 20,
    seconds: float = 10.0,
) -> int:
    """Send one message repeatedly on several streams; return the bytes sent."""

    async def speak(call: Any, sent: Sent) -> None:
        while not sent.full:
            await call.write(message)
            sent.add(message)

    return await send_calls(address, method, speak, calls=streams, most_bytes=most_bytes, seconds=seconds)


async def change_little(
    address: str,
    *,
    most_bytes: int = 256 << 20,
    seconds: float = 10.0,
    streams: int = 10,
    names: int = 19_900,
) -> int:
    """Subscribe to many names, then to one of them again and again; return the bytes sent."""
    begin = discovery_pb2.DeltaDiscoveryRequest(type_url=TYPE_ENDPOINT)
    begin.node.id = "abuse"
    begin.resource_names_subscribe.extend([f"{number:06d}" for number in range(names)])
    more, less = (discovery_pb2.DeltaDiscoveryRequest(type_url=TYPE_ENDPOINT) for _ in range(2))
    more.resource_names_subscribe.append("z")
    less.resource_names_unsubscribe.append("z")
    changes = less.SerializeToString(), more.SerializeToString()

    async def speak(call: Any, sent: Sent) -> None:
        await call.write(begin.SerializeToString())
        while not sent.full and await call.read() is not grpc.aio.EOF:
            # The server answers only the second of these two. In the other order it may see both at once, and
            # answer neither.
            for request in changes:
                await call.write(request)
                sent.add(request)

    return await send_calls(address, DELTA, speak, calls=streams, most_bytes=most_bytes, seconds=seconds)


async def fetch_status(
    address: str,
    *,
    size: int = 2_000_000,
    most_bytes: int = 4 << 30,
    seconds: float = 10.0,
    calls: int = 300,
) -> int:
    """Ask for the state of all clients in many requests at once, each as large as is taken."""
    request = field(2, field(1, b"x" * size))

    async def speak(call: Any, sent: Sent) -> None:
        sent.add(request)
        await call.write(request)
        await call.done_writing()
        await call.read()

    return await send_calls(address, FETCH, speak, calls=calls, most_bytes=most_bytes, seconds=seconds)


async def ask_for_status(
    address: str, *, most_bytes: int = 256 << 20, seconds: float = 10.0, streams: int = 32
) -> int:
    """Ask for the state of all clients as fast as answers come, on many streams; return the bytes read."""

    async def speak(call: Any, read: Sent) -> None:
        while not read.full:
            await call.write(b"")
            if (answer := await call.read()) is grpc.aio.EOF:
                return
            read.add(answer)

    return await send_calls(address, STATUS, speak, calls=streams, most_bytes=most_bytes, seconds=seconds)
