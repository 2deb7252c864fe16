"""Messages to ext_proc that are large in what costs most: headers, allowed endpoints, attributes.

Through an Envoy with its default limits no client can cause them; a peer that reaches `ext_proc.address` can.
"""

from __future__ import annotations

import gzip
import secrets
from typing import TYPE_CHECKING, Any, Final

from bench.abuse.sending import field, send_calls
from fleet.envoy_api.service.auth.v3 import external_auth_pb2 as auth
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import EXT_PROC_FILTER, LEADING_BYTES, SUBSET_KEY, SUBSET_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.abuse.sending import Sent

METHOD: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CHECK: Final = "/envoy.service.auth.v3.Authorization/Check"


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


def _answer(body: bytes, encoding: str = "") -> bytes:
    """Return a copy of an answer's first part, as Envoy shows it."""
    message = pb.ProcessingRequest(response_body=pb.HttpBody(body=body))
    shown = message.attributes[EXT_PROC_FILTER].fields
    shown["upstream.address"].string_value = "127.0.0.1:1"
    shown["response.code"].number_value = 200
    shown["response.headers['content-encoding']"].string_value = encoding
    return message.SerializeToString()


def _check(body: bytes = b"", headers: Iterable[tuple[str, str]] = (), extensions: int = 0) -> bytes:
    """Return the leading part of a body, as Envoy's ext_authz filter sends it."""
    request = auth.CheckRequest()
    request.attributes.context_extensions[LEADING_BYTES] = "262144"
    for number in range(extensions):
        request.attributes.context_extensions[f"{number:x}"] = ""
    http = request.attributes.request.http
    http.raw_body = body
    for name, value in headers:
        http.header_map.headers.add(key=name, raw_value=value.encode())
    return request.SerializeToString()


_ZIPPED: Final = (("content-type", "application/json"), ("content-encoding", "gzip"))
KINDS: Final[dict[str, Callable[[int], bytes]]] = {
    "repeated": repeated,
    "empty": empty,
    "commas": commas,
    "allowed": allowed,
    "attributes": attributes,
}
ANSWERS: Final[dict[str, Callable[[], bytes]]] = {
    "names": lambda: _answer(b'{"id":"resp_%s"}' % secrets.token_hex(120).encode()),
    "deep": lambda: _answer(b"[" * 500_000),
    "bomb": lambda: _answer(gzip.compress(bytes(64 << 20)), "gzip"),
}
"""Names of stored state in answers, and what only looks like them."""
CHECKS: Final[dict[str, Callable[[], bytes]]] = {
    "headers": lambda: _check(headers=[("content-type", "x" * 64)] * 100_000),
    "allowed_headers": lambda: _check(headers=[("content-type", "x" * 64)] * 6_000),
    "extensions": lambda: _check(extensions=500_000),
    "allowed_extensions": lambda: _check(extensions=40_000),
    "deep": lambda: _check(b"[" * 262_144, _ZIPPED[:1]),
    "bomb": lambda: _check(gzip.compress(bytes(64 << 20)), _ZIPPED),
    "large": lambda: _check(b'{"model":"smol","prompt":"' + b"x" * (32 << 20), _ZIPPED[:1]),
}
"""Leading parts of bodies."""


async def attack(
    address: str, kind: str, count: int, *, most_bytes: int = 256 << 20, seconds: float = 10.0
) -> int:
    """Send a message of one of `KINDS` on one stream after another, until bytes or time run out."""
    message = KINDS[kind](count)
    return await _send(address, METHOD, lambda: message, calls=1, most_bytes=most_bytes, seconds=seconds)


async def attack_answers(address: str, kind: str, **bounds: Any) -> int:
    """Show an answer of one of `ANSWERS` on each of many streams."""
    made = ANSWERS[kind]()
    make = ANSWERS[kind] if kind == "names" else lambda: made
    return await _send(address, METHOD, make, calls=8, **bounds)


async def attack_checks(address: str, kind: str, **bounds: Any) -> int:
    """Send one of `CHECKS` on each of many calls."""
    made = CHECKS[kind]()
    return await _send(address, CHECK, lambda: made, calls=2, **bounds)


async def _send(address: str, method: str, make: Callable[[], bytes], **how: Any) -> int:
    async def speak(call: Any, sent: Sent) -> None:
        sent.add(message := make())
        await call.write(message)
        await call.done_writing()
        await call.read()

    return await send_calls(address, method, speak, **how)
