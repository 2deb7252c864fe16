"""Messages to ext_proc that are large in what costs most: headers, allowed endpoints, attributes.

Through an Envoy with its default limits no client can cause them; a peer that reaches `ext_proc.address` can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.abuse.sending import field, send_calls
from fleet.names import SUBSET_KEY, SUBSET_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.abuse.sending import Sent

METHOD: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


def _headers(one: bytes, count: int) -> bytes:
    return field(2, field(1, one * count))


def _subset(value: bytes) -> bytes:
    """Return metadata that allows endpoints; `value` is a protobuf Value."""
    entry = field(1, SUBSET_KEY.encode()) + field(2, value)
    metadata = field(1, SUBSET_NAMESPACE.encode()) + field(2, field(1, entry))
    ended = field(2, b"\x18\x01")
    return ended + field(8, field(1, metadata))


def repeated(count: int) -> bytes:
    """Return one header many times, of 64 bytes each: to be joined by commas."""
    value = b"x" * 64
    return _headers(field(1, field(1, b"content-type") + field(3, value)), count)


def empty(count: int) -> bytes:
    """Return headers without name and value."""
    return _headers(b"\x0a\x00", count)


def commas(count: int) -> bytes:
    """Return a text of allowed endpoints, all of them empty."""
    return _subset(field(3, b"," * count))


def allowed(count: int) -> bytes:
    """Return a list of allowed endpoints, in a spelling that is slow to read."""
    one = b"".join(field(1, field(3, b"::%x:x" % number)) for number in range(min(count, 4096)))
    return _subset(field(6, one * max(1, count // 4096)))


def attributes(count: int) -> bytes:
    """Return attributes of filters that do not exist."""
    return field(2, b"") + b"".join(field(9, field(1, b"%x" % number)) for number in range(count))


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
    message = KINDS[kind](count)

    async def speak(call: Any, sent: Sent) -> None:
        sent.add(message)
        await call.write(message)
        await call.read()

    return await send_calls(address, METHOD, speak, calls=1, most_bytes=most_bytes, seconds=seconds)
