"""Envoy's reply messages: unchanged, with a result, with the body in pieces, or an answer of our own."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from ext_proc.protocol.attributes import LOOKED_HEADERS, MAX_HEADER_BYTES, MAX_HEADERS
from fleet.envoy_api.config.core.v3 import base_pb2
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
    HEADER_REASON,
    METADATA_ENDPOINT,
    METADATA_EXPECTED,
    METADATA_MATCHED,
    METADATA_NAMESPACE,
    METADATA_PREFIX,
    METADATA_PROMPT,
    METADATA_REASON,
    METADATA_REQUEST,
    METADATA_SERIAL,
    METADATA_TRACE,
    REMOVED_REQUEST_HEADERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ext_proc.pick.result import PickResult, Refusal

PIECE_BYTES: Final = 62 * 1024
"""Largest piece of an echoed body: Envoy's limit on a streamed body reply is 64 KiB."""

_ERRORS: Final = {
    409: ("conflict_error", "duplicate_request"),
    429: ("rate_limit_error", "overloaded"),
    503: ("server_error", "no_endpoint_ready"),
}
"""Status to type and code of an error, in OpenAI's terms where they exist."""
_OTHER_ERROR: Final = ("server_error", "refused")

_NO_BODY: Final = processing_mode_pb2.ProcessingMode(
    request_body_mode=processing_mode_pb2.ProcessingMode.NONE,
    response_body_mode=processing_mode_pb2.ProcessingMode.NONE,
)
_OVERWRITE: Final = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


_KEPT_IF_CROWDED: Final = frozenset({HEADER_PROTOCOL, HEADER_IDEMPOTENCY})
"""An older configuration of ours adds the first to every request, and the second affects no routing: neither
is a reason to fail a request."""


def _unchanged(kind: str) -> pb.ProcessingResponse:
    reply = pb.ProcessingResponse()
    part = getattr(reply, kind)
    part.SetInParent()
    if not kind.endswith("trailers"):
        part.response.SetInParent()
    return reply


UNCHANGED: Final[Mapping[str, pb.ProcessingResponse]] = {
    kind: _unchanged(kind)
    for kind in (
        "request_headers",
        "request_body",
        "request_trailers",
        "response_headers",
        "response_body",
        "response_trailers",
    )
}
"""Kind to the CONTINUE that changes nothing. Shared by all streams and never written to."""


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
    no_body: bool = False,
) -> pb.ProcessingResponse:
    """Reply to request headers: remove a client's routing headers, and set those of a result.

    `no_body` requests no bodies, which Envoy obeys with `allow_mode_override`.
    """
    reply = pb.ProcessingResponse()
    response = reply.request_headers.response
    headers = {} if result is None else _headers(result, budget)
    response.SetInParent()
    if budget.removed:
        # A name is in only one of the two lists, so Envoy's order of the two does not matter.
        response.header_mutation.remove_headers.extend(name for name in budget.removed if name not in headers)
    if headers:
        _set_headers(response, headers, clear_route_cache=clear_route_cache)
    if result is not None:
        _set_metadata(reply, result, metadata, crowded=budget.crowded)
    if no_body:
        reply.mode_override.CopyFrom(_NO_BODY)
    return reply


def body_reply(
    result: PickResult,
    budget: HeaderBudget | None,
    metadata: Mapping[str, str] = NOTHING,
    *,
    clear_route_cache: bool,
    crowded: bool = False,
) -> pb.ProcessingResponse:
    """Reply to the body message that decided. `budget` is None in modes where Envoy applies no headers.

    `crowded`: metadata from which Envoy makes headers is left out.
    """
    reply = pb.ProcessingResponse()
    response = reply.request_body.response
    response.SetInParent()
    if budget is not None and (headers := _headers(result, budget)):
        _set_headers(response, headers, clear_route_cache=clear_route_cache)
    crowded = crowded or (budget is not None and budget.crowded)
    _set_metadata(reply, result, metadata, crowded=crowded)
    return reply


def refusal_reply(refusal: Refusal) -> pb.ProcessingResponse:
    """Answer in the engines' place, in the form of OpenAI's interface."""
    kind, code = _ERRORS.get(refusal.status, _OTHER_ERROR)
    error = {"message": refusal.message, "type": kind, "param": None, "code": code}
    reply = pb.ProcessingResponse()
    answer = reply.immediate_response
    answer.status.code = refusal.status  # type: ignore[assignment] # An enum takes its numbers.
    answer.body = json.dumps({"error": error}).encode()
    answer.details = f"warmroute_{code}"
    headers = {"content-type": "application/json"}
    if refusal.retry_after_seconds is not None:
        headers["retry-after"] = str(max(1, math.ceil(refusal.retry_after_seconds)))
    _set(answer.headers, headers)
    return reply


def trailers_reply(result: PickResult | None, metadata: Mapping[str, str] = NOTHING) -> pb.ProcessingResponse:
    """Reply to request trailers, the last place for a result."""
    if result is None:
        return UNCHANGED["request_trailers"]
    reply = pb.ProcessingResponse()
    reply.request_trailers.SetInParent()
    _set_metadata(reply, result, metadata)
    return reply


def echo(
    kind: str,
    body: bytes,
    end_of_stream: bool,  # noqa: FBT001 - the protocol's own flag
    result: PickResult | None = None,
    metadata: Mapping[str, str] = NOTHING,
) -> Iterator[pb.ProcessingResponse]:
    """Echo body bytes in pieces of at most `PIECE_BYTES`; the last has the flag, the first the result.

    Yields nothing when there are neither bytes nor flag nor result.
    """
    starts = range(0, len(body), PIECE_BYTES) or (range(1) if end_of_stream or result is not None else ())
    for start in starts:
        reply = pb.ProcessingResponse()
        piece = getattr(reply, kind).response.body_mutation.streamed_response
        piece.body = body[start : start + PIECE_BYTES] if len(body) > PIECE_BYTES else body
        piece.end_of_stream = end_of_stream and start + PIECE_BYTES >= len(body)
        if result is not None and start == 0:
            _set_metadata(reply, result, metadata)
        yield reply


def echo_grpc(kind: str, message: pb.HttpBody) -> pb.ProcessingResponse:
    """Echo one gRPC message of the GRPC body mode whole, flags included."""
    reply = pb.ProcessingResponse()
    piece = getattr(reply, kind).response.body_mutation.streamed_response
    piece.body = message.body
    piece.end_of_stream = message.end_of_stream
    piece.end_of_stream_without_message = message.end_of_stream_without_message
    piece.grpc_message_compressed = message.grpc_message_compressed
    return reply


def _headers(result: PickResult, budget: HeaderBudget) -> dict[str, str]:
    """Return headers of a result, the most important first, as many as fit."""
    if not result.endpoints:
        return {}
    by_importance = {
        DESTINATION_KEY: ",".join(result.endpoints),
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


def _set_headers(response: pb.CommonResponse, headers: Mapping[str, str], *, clear_route_cache: bool) -> None:
    _set(response.header_mutation, headers)
    if clear_route_cache:
        response.clear_route_cache = True


def _set(mutation: pb.HeaderMutation, headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        # Envoy reads raw_value and refuses a header that has both.
        option = mutation.set_headers.add(append_action=_OVERWRITE)
        option.header.key = name
        option.header.raw_value = value.encode("ascii")


def _set_metadata(
    reply: pb.ProcessingResponse,
    result: PickResult,
    metadata: Mapping[str, str],
    *,
    crowded: bool = False,
) -> None:
    """Add the result and, unless the request is `crowded`, the values that Envoy turns into headers."""
    namespaces = reply.dynamic_metadata.fields
    endpoints = result.endpoints
    if endpoints:
        destination = namespaces[DESTINATION_NAMESPACE].struct_value.fields[DESTINATION_KEY]
        destination.string_value = ",".join(endpoints)
    ours = namespaces[METADATA_NAMESPACE].struct_value.fields
    if METADATA_TRACE in metadata:
        ours[METADATA_TRACE].string_value = metadata[METADATA_TRACE]
    if result.expected_seconds is not None and endpoints:
        ours[METADATA_EXPECTED].string_value = f"{result.expected_seconds:.6f}"
    if result.prompt and endpoints:
        ours[METADATA_PROMPT].string_value = f"{result.prompt:016x}"
        ours[METADATA_REQUEST].string_value = f"{result.request:016x}"
        ours[METADATA_SERIAL].string_value = f"{result.serial:016x}"
    if crowded:
        return
    ours[METADATA_REASON].string_value = result.reason.value
    if result.prefix:
        ours[METADATA_PREFIX].string_value = result.prefix
    for key, text in metadata.items():
        ours[key].string_value = text
    if endpoints:
        ours[METADATA_ENDPOINT].string_value = endpoints[0]
        ours[METADATA_MATCHED].string_value = f"{result.matched_share:.2f}"
