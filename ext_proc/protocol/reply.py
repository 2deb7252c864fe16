"""Envoy's reply messages: unchanged, with a result, with the body in pieces, or an answer of our own.

Replies are bytes, spliced from constant fields: they differ in a few texts, and building a message and
serialising it takes several times as long. Fields that follow each other are one message by the wire format.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ext_proc.pick.result import Reason
from ext_proc.protocol.attributes import LOOKED_HEADERS, MAX_HEADER_BYTES, MAX_HEADERS
from fleet.envoy_api.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import (
    CROWDED_BYTES,
    CROWDED_HEADERS,
    DESTINATION_KEY,
    DESTINATION_NAMESPACE,
    HEADER_ENDPOINT,
    HEADER_IDEMPOTENCY,
    HEADER_MATCHED,
    HEADER_PREFIX,
    HEADER_PROTOCOL,
    HEADER_RANK,
    HEADER_REASON,
    METADATA_ENDPOINT,
    METADATA_EXPECTED,
    METADATA_LENGTH,
    METADATA_MATCHED,
    METADATA_NAMESPACE,
    METADATA_POOL,
    METADATA_PREFIX,
    METADATA_PROMPT,
    METADATA_RANK,
    METADATA_REASON,
    METADATA_REQUEST,
    METADATA_SERIAL,
    METADATA_TRACE,
    REMOVED_REQUEST_HEADERS,
)
from fleet.wire_fields import field_of, varint_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ext_proc.pick.result import PickResult, Refusal
    from fleet.envoy_api.config.core.v3 import base_pb2

PIECE_BYTES: Final = 62 * 1024
"""Largest piece of an echoed body: Envoy's limit on a streamed body reply is 64 KiB."""

_ERRORS: Final = {
    404: ("invalid_request_error", "model_not_found"),
    409: ("conflict_error", "duplicate_request"),
    429: ("rate_limit_error", "overloaded"),
    503: ("server_error", "no_endpoint_ready"),
}
"""Status to type and code of an error, in OpenAI's terms where they exist."""
_OTHER_ERROR: Final = ("server_error", "refused")

_OVERWRITE: Final = b"\x18\x02"
"""`append_action` of a header option: OVERWRITE_IF_EXISTS_OR_ADD."""
_KEPT_IF_CROWDED: Final = frozenset({HEADER_PROTOCOL, HEADER_IDEMPOTENCY})
"""An older configuration of ours adds the first to every request, and the second affects no routing: neither
is a reason to fail a request."""

# Keys of fields: number << 3 | wire type. A field that an enclosing message shares is named once.
_FIRST, _SECOND, _THIRD, _FIFTH = b"\x0a", b"\x12", b"\x1a", b"\x2a"
_KINDS: Final = {
    "request_headers": b"\x0a",
    "response_headers": b"\x12",
    "request_body": b"\x1a",
    "response_body": b"\x22",
    "request_trailers": b"\x2a",
    "response_trailers": b"\x32",
}
_DYNAMIC_METADATA: Final = b"\x42"
_CLEAR_ROUTE_CACHE: Final = b"\x28\x01"
_NO_MUTATION: Final = b"\x12\0"
"""An empty header mutation: without any, Envoy does not clear the route cache."""
_KEPT_METADATA: Final = (METADATA_TRACE, METADATA_POOL, METADATA_LENGTH)
"""Metadata that adds no header to the request."""


@lru_cache(1024)
def _entry_head(key: str, size: int, kind: bytes) -> bytes:
    """Return what stands in an entry of a Struct before a content of this size, a text or a struct."""
    head = field_of(_FIRST, key.encode()) + _SECOND
    value = kind + varint_of(size)
    head += varint_of(len(value) + size) + value
    return _FIRST + varint_of(len(head) + size) + head


def _entry(key: str, content: bytes, kind: bytes = _THIRD) -> bytes:
    """Return an entry of a Struct, a text by default."""
    return _entry_head(key, len(content), kind) + content


UNCHANGED: Final[Mapping[str, bytes]] = {
    kind: key + (b"\0" if kind.endswith("trailers") else b"\x02\x0a\0") for kind, key in _KINDS.items()
}
"""Kind to the CONTINUE that changes nothing."""
_NO_BODY: Final = pb.ProcessingResponse(
    mode_override=processing_mode_pb2.ProcessingMode(
        request_body_mode=processing_mode_pb2.ProcessingMode.NONE,
        response_body_mode=processing_mode_pb2.ProcessingMode.NONE,
    )
).SerializeToString()
_REMOVALS: Final = {name: field_of(_SECOND, name.encode()) for name in REMOVED_REQUEST_HEADERS}
_REASONS: Final = {reason: _entry(METADATA_REASON, reason.value.encode()) for reason in Reason}
_DIGESTS: Final = b"".join(
    _entry_head(key, 16, _THIRD) + b"%016x" for key in (METADATA_PROMPT, METADATA_REQUEST, METADATA_SERIAL)
)
"""The three digests of a prompt that a pick is booked for, as a format with a fixed size."""
_DIGEST_MASK: Final = 2**64 - 1


@lru_cache(4096)
def _named(endpoints: tuple[str, ...]) -> tuple[bytes, bytes]:
    """Return the metadata for Envoy's load balancer, and the entry of ours that names the first endpoint."""
    destination = _entry(DESTINATION_KEY, ",".join(endpoints).encode())
    return _entry(DESTINATION_NAMESPACE, destination, _FIFTH), _entry(
        METADATA_ENDPOINT, endpoints[0].encode()
    )


class HeaderBudget(NamedTuple):
    """The room for changes of a request's headers. Above Envoy's limits, Envoy 1.40 fails the request.

    It also fails after a reply that only removes headers, because Envoy adds its own headers to a request
    that was within the limits on arrival.
    """

    headers: int
    """Headers that fit in addition; negative: there are too many already."""
    bytes: int
    removed: tuple[str, ...] = REMOVED_REQUEST_HEADERS
    """Headers to remove, present or not."""

    @property
    def crowded(self) -> bool:
        """Whether metadata from which Envoy makes headers should be left out."""
        spare_headers, spare_bytes = MAX_HEADERS - CROWDED_HEADERS, MAX_HEADER_BYTES - CROWDED_BYTES
        return self.headers < spare_headers or self.bytes < spare_bytes


NO_BUDGET: Final = HeaderBudget(0, 0)
NOTHING: Final[Mapping[str, str]] = {}


def budget_of(sent: base_pb2.HeaderMap) -> HeaderBudget:
    """Return the room within Envoy's limits; over a limit, `removed` has only headers that are present."""
    headers = sent.headers
    count = MAX_HEADERS - len(headers)
    if len(headers) > LOOKED_HEADERS:
        # A search in the bytes also matches a value with a header's name, which then is removed in vain.
        spelt = sent.SerializeToString()
        names = (name for name in REMOVED_REQUEST_HEADERS if name not in _KEPT_IF_CROWDED)
        return HeaderBudget(count, 0, tuple(name for name in names if name.encode() in spelt))
    size = MAX_HEADER_BYTES - sent.ByteSize()
    if size < 0:  # The message is a little larger than the bytes that Envoy counts.
        size = MAX_HEADER_BYTES - sum(len(entry.key) + len(entry.raw_value) for entry in headers)
    if count >= 0 and size >= 0:
        return HeaderBudget(count, size)
    sent_names = {entry.key for entry in headers} - _KEPT_IF_CROWDED
    return HeaderBudget(count, size, tuple(name for name in REMOVED_REQUEST_HEADERS if name in sent_names))


def headers_reply(
    result: PickResult | None,
    budget: HeaderBudget,
    metadata: Mapping[str, str] = NOTHING,
    *,
    clear_route_cache: bool,
    reroute: bool = False,
    no_body: bool = False,
) -> bytes:
    """Reply to request headers: remove a client's routing headers, and set those of a result.

    `reroute`: Envoy chooses the route again, with the metadata. `no_body` requests no bodies, which Envoy
    obeys with `allow_mode_override`.
    """
    headers = {} if result is None else _headers(result, budget)
    # A name is in only one of the two lists, so Envoy's order of the two does not matter.
    removals = b"".join([_REMOVALS[name] for name in budget.removed if name not in headers])
    changes = _changes(headers, removals, clear_route_cache=clear_route_cache)
    if reroute:
        changes = (changes or _NO_MUTATION) + _CLEAR_ROUTE_CACHE
    reply = _reply("request_headers", changes)
    if result is not None:
        reply += _metadata(result, metadata, crowded=budget.crowded)
    return reply + _NO_BODY if no_body else reply


def body_reply(
    result: PickResult,
    budget: HeaderBudget | None,
    metadata: Mapping[str, str] = NOTHING,
    *,
    clear_route_cache: bool,
    crowded: bool = False,
    reroute: bool = False,
    body: bytes | None = None,
) -> bytes:
    """Reply to the body message that decided. `budget` is None in modes where Envoy applies no headers.

    `crowded`: metadata from which Envoy makes headers is left out. `reroute`: Envoy chooses the route again,
    with the metadata. `body` replaces the body, None leaves it.
    """
    more = b"" if body is None else field_of(_THIRD, field_of(_FIRST, body))
    if reroute:
        more += _NO_MUTATION + _CLEAR_ROUTE_CACHE
    if budget is None:
        unchanged = _reply("request_body", more) if more else UNCHANGED["request_body"]
        return unchanged + _metadata(result, metadata, crowded=crowded)
    changes = _changes(_headers(result, budget), b"", clear_route_cache=clear_route_cache) + more
    return _reply("request_body", changes) + _metadata(result, metadata, crowded=crowded or budget.crowded)


def refusal_reply(refusal: Refusal) -> bytes:
    """Answer in the engines' place, in the form of OpenAI's interface."""
    kind, code = _ERRORS.get(refusal.status, _OTHER_ERROR)
    error = {"message": refusal.message, "type": kind, "param": None, "code": code}
    headers = {"content-type": "application/json"}
    if refusal.retry_after_seconds is not None:
        headers["retry-after"] = str(max(1, math.ceil(refusal.retry_after_seconds)))
    answer = pb.ImmediateResponse(
        status={"code": refusal.status},
        headers=pb.HeaderMutation.FromString(_set(headers)),
        body=json.dumps({"error": error}).encode(),
        details=f"warmroute_{code}",
    )
    return pb.ProcessingResponse(immediate_response=answer).SerializeToString()


def trailers_reply(result: PickResult | None, metadata: Mapping[str, str] = NOTHING) -> bytes:
    """Reply to request trailers, the last place for a result."""
    unchanged = UNCHANGED["request_trailers"]
    return unchanged if result is None else unchanged + _metadata(result, metadata)


def echo(
    kind: str,
    body: bytes,
    end_of_stream: bool,  # noqa: FBT001 - the protocol's own flag
    result: PickResult | None = None,
    metadata: Mapping[str, str] = NOTHING,
) -> Iterator[bytes]:
    """Echo body bytes in pieces of at most `PIECE_BYTES`; the last has the flag, the first the result.

    Yields nothing when there are neither bytes nor flag nor result.
    """
    starts = range(0, len(body), PIECE_BYTES) or (range(1) if end_of_stream or result is not None else ())
    for start in starts:
        piece = body[start : start + PIECE_BYTES] if len(body) > PIECE_BYTES else body
        ends = end_of_stream and start + PIECE_BYTES >= len(body)
        sent = pb.StreamedBodyResponse(body=piece, end_of_stream=ends)
        reply = _streamed(kind, sent)
        yield reply + _metadata(result, metadata) if result is not None and start == 0 else reply


def echo_grpc(kind: str, message: pb.HttpBody) -> bytes:
    """Echo one gRPC message of the GRPC body mode whole, flags included."""
    sent = pb.StreamedBodyResponse(
        body=message.body,
        end_of_stream=message.end_of_stream,
        end_of_stream_without_message=message.end_of_stream_without_message,
        grpc_message_compressed=message.grpc_message_compressed,
    )
    return _streamed(kind, sent)


def _reply(kind: str, changes: bytes) -> bytes:
    """Return a reply with a CommonResponse."""
    return field_of(_KINDS[kind], field_of(_FIRST, changes))


def _streamed(kind: str, piece: pb.StreamedBodyResponse) -> bytes:
    return _reply(kind, field_of(_THIRD, field_of(_THIRD, piece.SerializeToString())))


def _headers(result: PickResult, budget: HeaderBudget) -> dict[str, str]:
    """Return headers of a result, the most important first, as many as fit."""
    if not result.endpoints:
        return {}
    by_importance = {
        DESTINATION_KEY: ",".join(result.endpoints),
        **({HEADER_RANK: result.rank} if result.rank else NOTHING),
        HEADER_ENDPOINT: result.endpoints[0],
        HEADER_MATCHED: f"{result.matched_share:.2f}",
        HEADER_REASON: result.reason.value,
        HEADER_PREFIX: result.prefix,
    }
    fitting: dict[str, str] = {}
    left = budget.bytes
    for name, value in by_importance.items():
        left -= len(name) + len(value)
        if left < 0 or len(fitting) >= budget.headers:
            break
        if value:
            fitting[name] = value
    return fitting


def _changes(headers: Mapping[str, str], removals: bytes, *, clear_route_cache: bool) -> bytes:
    """Return a CommonResponse that sets and removes headers."""
    mutation = _set(headers) + removals
    changes = field_of(_SECOND, mutation) if mutation else b""
    return changes + _CLEAR_ROUTE_CACHE if headers and clear_route_cache else changes


def _set(headers: Mapping[str, str]) -> bytes:
    """Return a HeaderMutation that sets headers, by raw_value: Envoy refuses one that has value as well."""
    return b"".join(
        field_of(
            _FIRST,
            field_of(_FIRST, field_of(_FIRST, name.encode()) + field_of(_THIRD, value.encode("ascii")))
            + _OVERWRITE,
        )
        for name, value in headers.items()
    )


def _metadata(result: PickResult, more: Mapping[str, str], *, crowded: bool = False) -> bytes:
    """Return the result and, unless the request is `crowded`, the values that Envoy turns into headers."""
    endpoints = result.endpoints
    namespaces, ours = b"", []
    if endpoints:
        namespaces, named = _named(endpoints)
        if result.expected_seconds is not None:
            ours.append(_entry(METADATA_EXPECTED, b"%.6f" % result.expected_seconds))
        if result.prompt:
            digests = result.prompt, result.request, result.serial
            ours.append(_DIGESTS % tuple([digest & _DIGEST_MASK for digest in digests]))
        if not crowded:
            ours += (named, _entry(METADATA_MATCHED, b"%.2f" % result.matched_share))
            if result.rank:
                ours.append(_entry(METADATA_RANK, result.rank.encode()))
    if not crowded:
        ours.append(_REASONS[result.reason])
        if result.prefix:
            ours.append(_entry(METADATA_PREFIX, result.prefix.encode()))
        ours += [_entry(key, text.encode()) for key, text in more.items()]
    else:
        ours += [_entry(key, more[key].encode()) for key in _KEPT_METADATA if key in more]
    return field_of(_DYNAMIC_METADATA, namespaces + _entry(METADATA_NAMESPACE, b"".join(ours), _FIFTH))
