"""Messages to ext_proc that are large in what costs most: headers, allowed endpoints, attributes.

Through an Envoy with its default limits no client can cause them; a peer that reaches `ext_proc.address` can.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import grpc

from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import SUBSET_KEY, SUBSET_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

METHOD: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
_MOST_BYTES: Final = 60 << 20


def _field(number: int, content: bytes) -> bytes:
    """Return a field of bytes, as protobuf writes it."""
    size, prefix = len(content), bytearray([number << 3 | 2])
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes(prefix) + bytes([size]) + content


def _headers(one: bytes, count: int) -> bytes:
    return _field(2, _field(1, one * count))


def _subset(value: bytes) -> bytes:
    """Return metadata that allows endpoints; `value` is a protobuf Value."""
    entry = _field(1, SUBSET_KEY.encode()) + _field(2, value)
    metadata = _field(1, SUBSET_NAMESPACE.encode()) + _field(2, _field(1, entry))
    ended = _field(2, b"\x18\x01")
    return ended + _field(8, _field(1, metadata))


def repeated(count: int) -> bytes:
    """Return one header many times, of 64 bytes each: to be joined by commas."""
    value = b"x" * 64
    return _headers(_field(1, _field(1, b"content-type") + _field(3, value)), count)


def empty(count: int) -> bytes:
    """Return headers without name and value."""
    return _headers(b"\x0a\x00", count)


def commas(count: int) -> bytes:
    """Return a text of allowed endpoints, all of them empty."""
    return _subset(_field(3, b"," * count))


def allowed(count: int) -> bytes:
    """Return a list of allowed endpoints, in a spelling that is slow to read."""
    one = b"".join(_field(1, _field(3, b"::%x:x" % number)) for number in range(min(count, 4096)))
    return _subset(_field(6, one * max(1, count // 4096)))


def attributes(count: int) -> bytes:
    """Return attributes of filters that do not exist."""
    return _field(2, b"") + b"".join(_field(9, _field(1, b"%x" % number)) for number in range(count))


KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "repeated": repeated,
    "empty": empty,
    "commas": commas,
    "allowed": allowed,
    "attributes": attributes,
}


async def attack(
    address: str, kind: str, count: int, *, most_bytes: int = 256 << 20, seconds: float = 10.0
) -> int:
    """Send a message of one of `KINDS` on one stream after another, until bytes or time run out."""
    message, sent = KINDS[kind](count), 0
    if len(message) > _MOST_BYTES:
        raise ValueError(f"{len(message)} bytes; allowed: {_MOST_BYTES}")
    options = [("grpc.max_send_message_length", _MOST_BYTES)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), grpc.aio.insecure_channel(address, options=options) as channel:
            method = channel.stream_stream(METHOD, response_deserializer=pb.ProcessingResponse.FromString)
            while sent < most_bytes:
                call = method()
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await call.write(message)
                    await call.read()
                call.cancel()
                sent += len(message)
    return sent
