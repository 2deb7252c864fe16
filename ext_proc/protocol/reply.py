"""Envoy's reply messages: unchanged, with the pick, the body echoed in pieces, or an answer in its place."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from ext_proc.protocol.request import LOOKED_HEADERS, MAX_HEADER_BYTES, MAX_HEADERS
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

    from ext_proc.pick import Pick, Refusal

PIECE_BYTES: Final = 62 * 1024
"""Largest piece of an echoed body: Envoy's limit on a streamed body reply is 64 KiB."""

_ERRORS: Final = {
    409: ("conflict_error", "duplicate_request"),
    429: ("rate_limit_error", "overloaded"),
    503: ("server_error", "no_endpoint_ready"),
}
"""Status to type and code of an error, in OpenAI's words where it has some."""
_OTHER_ERROR: Final = ("server_error", "refused")

_NO_BODY: Final = processing_mode_pb2.ProcessingMode(
    request_body_mode=processing_mode_pb2.ProcessingMode.NONE,
    response_body_mode=processing_mode_pb2.ProcessingMode.NONE,
)
_OVERWRITE: Final = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


_KEPT_IF_CROWDED: Final = frozenset({HEADER_PROTOCOL, HEADER_IDEMPOTENCY})
"""An older configuration of ours adds the one to every request, the other steers nothing: neither is a reason
to fail any."""


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


class Room(NamedTuple):
    """What may be changed of a request's headers: Envoy 1.40 fails a request whose limits are broken after.

    That holds for a reply that only removes, too, because Envoy adds headers of its own to a request that
    was within the limits when it came.
    """

    headers: int
    """How many more fit; negative: there are too many already."""
    bytes: int
    removed: tuple[str, ...] = REMOVED_REQUEST_HEADERS
    """What has to go, whether it is there or not."""

    @property
    def crowded(self) -> bool:
        """Whether nothing should be told of which Envoy makes more headers."""
        spare_headers, spare_bytes = MAX_HEADERS - CROWDED_HEADERS, MAX_HEADER_BYTES - CROWDED_BYTES
        return self.headers < spare_headers or self.bytes < spare_bytes


NO_ROOM: Final = Room(0, 0)


def room_of(sent: base_pb2.HeaderMap) -> Room:
    """Measure a request's headers against Envoy's own limits, and look for what has to go if it must be."""
    headers = sent.headers
    count = MAX_HEADERS - len(headers)
    if len(headers) > LOOKED_HEADERS:
        # Found in the bytes, where a value that spells a name counts too: then one is removed in vain.
        spelt = sent.SerializeToString()
        names = (name for name in REMOVED_REQUEST_HEADERS if name not in _KEPT_IF_CROWDED)
        return Room(count, 0, tuple(name for name in names if name.encode() in spelt))
    size = MAX_HEADER_BYTES - sent.ByteSize()
    if size < 0:  # The message's size is a little more than what Envoy counts.
        size = MAX_HEADER_BYTES - sum(len(entry.key) + len(entry.raw_value) for entry in headers)
    if count >= 0 and size >= 0:
        return Room(count, size)
    told = {entry.key for entry in headers} - _KEPT_IF_CROWDED
    return Room(count, size, tuple(name for name in REMOVED_REQUEST_HEADERS if name in told))


def headers_reply(
    pick: Pick | None, room: Room, *, clear_route_cache: bool, no_body: bool = False
) -> pb.ProcessingResponse:
    """Reply to request headers: a client's routing headers go, those of a pick that is known come.

    `no_body` asks for neither body, which Envoy grants where its `allow_mode_override` says so.
    """
    reply = pb.ProcessingResponse()
    response = reply.request_headers.response
    headers = {} if pick is None else _headers(pick, room)
    response.SetInParent()
    if room.removed:
        # A name stands in one of the two lists only, so that their order in Envoy is of no account.
        response.header_mutation.remove_headers.extend(name for name in room.removed if name not in headers)
    if headers:
        _set_headers(response, headers, clear_route_cache=clear_route_cache)
    if pick is not None:
        _set_metadata(reply, pick, crowded=room.crowded)
    if no_body:
        reply.mode_override.CopyFrom(_NO_BODY)
    return reply


def body_reply(
    pick: Pick, room: Room | None, *, clear_route_cache: bool, crowded: bool = False
) -> pb.ProcessingResponse:
    """Reply to the body message that decided. `room` is None in modes where Envoy applies no headers.

    `crowded`: nothing is told of which Envoy makes headers.
    """
    reply = pb.ProcessingResponse()
    response = reply.request_body.response
    response.SetInParent()
    if room is not None and (headers := _headers(pick, room)):
        _set_headers(response, headers, clear_route_cache=clear_route_cache)
    _set_metadata(reply, pick, crowded=crowded or (room is not None and room.crowded))
    return reply


def refusal_reply(refusal: Refusal) -> pb.ProcessingResponse:
    """Answer in the engines' place, in the form that clients of OpenAI's interface read."""
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


def trailers_reply(pick: Pick | None) -> pb.ProcessingResponse:
    """Reply to request trailers, the last chance to say what was decided."""
    if pick is None:
        return UNCHANGED["request_trailers"]
    reply = pb.ProcessingResponse()
    reply.request_trailers.SetInParent()
    _set_metadata(reply, pick)
    return reply


def echo(
    kind: str, body: bytes, *, end_of_stream: bool, pick: Pick | None = None
) -> Iterator[pb.ProcessingResponse]:
    """Echo body bytes in pieces of at most `PIECE_BYTES`; the last one carries the flag, the first the pick.

    Nothing at all when there are neither bytes nor flag, unless a pick must be told.
    """
    starts = range(0, len(body), PIECE_BYTES) or (range(1) if end_of_stream or pick is not None else ())
    for start in starts:
        reply = pb.ProcessingResponse()
        piece = getattr(reply, kind).response.body_mutation.streamed_response
        piece.body = body[start : start + PIECE_BYTES] if len(body) > PIECE_BYTES else body
        piece.end_of_stream = end_of_stream and start + PIECE_BYTES >= len(body)
        if pick is not None and start == 0:
            _set_metadata(reply, pick)
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


def _headers(pick: Pick, room: Room) -> dict[str, str]:
    """Headers of a pick, the most important first, as many as there is room for."""
    if not pick.endpoints:
        return {}
    wanted = {
        DESTINATION_KEY: ",".join(pick.endpoints),
        HEADER_ENDPOINT: pick.endpoints[0],
        HEADER_MATCHED: f"{pick.matched_share:.2f}",
        HEADER_REASON: pick.reason.value,
        HEADER_PREFIX: pick.prefix,
    }
    fitting: dict[str, str] = {}
    left = room.bytes
    for name, value in wanted.items():
        left -= len(name) + len(value)
        if left < 0 or len(fitting) >= room.headers:
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


def _set_metadata(reply: pb.ProcessingResponse, pick: Pick, *, crowded: bool = False) -> None:
    """Tell the pick and, unless it is `crowded`, what Envoy makes headers of."""
    namespaces = reply.dynamic_metadata.fields
    if pick.endpoints:
        destination = namespaces[DESTINATION_NAMESPACE].struct_value.fields[DESTINATION_KEY]
        destination.string_value = ",".join(pick.endpoints)
    ours = namespaces[METADATA_NAMESPACE].struct_value.fields
    if pick.trace:
        ours[METADATA_TRACE].string_value = pick.trace
    if pick.expected_seconds is not None and pick.endpoints:
        ours[METADATA_EXPECTED].string_value = f"{pick.expected_seconds:.6f}"
    if pick.prompt and pick.endpoints:
        ours[METADATA_PROMPT].string_value = f"{pick.prompt:016x}"
        ours[METADATA_REQUEST].string_value = f"{pick.request:016x}"
        ours[METADATA_SERIAL].string_value = f"{pick.serial:016x}"
    if crowded:
        return
    ours[METADATA_REASON].string_value = pick.reason.value
    if pick.prefix:
        ours[METADATA_PREFIX].string_value = pick.prefix
    for key, text in pick.told:
        ours[key].string_value = text
    if pick.endpoints:
        ours[METADATA_ENDPOINT].string_value = pick.endpoints[0]
        ours[METADATA_MATCHED].string_value = f"{pick.matched_share:.2f}"
