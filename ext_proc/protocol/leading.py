"""The leading part of a body, from Envoy's ext_authz filter: its messages as those of an exchange. Pure.

The filter holds a request until the body has ended or has `LEADING_BYTES`, sends one `CheckRequest` and waits
for one `CheckResponse`. The rest of the body never comes here. Envoy's ext_proc filter cannot do this safely
(docs/decisions/0033). Headers and body become the two messages of the body mode BUFFERED_PARTIAL, and the
metadata of the reply becomes that of the `CheckResponse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from ext_proc.protocol.attributes import CLUSTER, LISTENER
from ext_proc.protocol.message import MAX_REST_BYTES, fields
from fleet.envoy_api.config.core.v3 import base_pb2
from fleet.envoy_api.service.auth.v3 import external_auth_pb2 as auth
from fleet.envoy_api.service.auth.v3.attribute_context_pb2 import AttributeContext
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import EXT_PROC_FILTER, LEADING_BYTES, LEADING_CLUSTER, LEADING_LISTENER

if TYPE_CHECKING:
    from collections.abc import Sequence

_BODY: Final = (
    auth.CheckRequest.ATTRIBUTES_FIELD_NUMBER,
    AttributeContext.REQUEST_FIELD_NUMBER,
    AttributeContext.Request.HTTP_FIELD_NUMBER,
    AttributeContext.HttpRequest.RAW_BODY_FIELD_NUMBER,
)
"""The field of the body, by the fields that enclose it."""
_OK: Final = 0
_PERMISSION_DENIED: Final = 7


def decode(data: bytes, most_bytes: int) -> tuple[pb.ProcessingRequest, pb.ProcessingRequest]:
    """Read a `CheckRequest`; return the exchange's messages, headers and body.

    Raises:
        DecodeError: the message is malformed, too large without its body, or of another configuration, or
            the body has more than `most_bytes`, which no leading part has.
    """
    body_bytes = _body_bytes(data) if len(data) > min(MAX_REST_BYTES, most_bytes) else 0
    if (rest := len(data) - body_bytes) > MAX_REST_BYTES:
        raise DecodeError(f"{rest} bytes without the body; allowed: {MAX_REST_BYTES}")
    if body_bytes > most_bytes:
        raise DecodeError(f"a leading part of {body_bytes} bytes; allowed: {most_bytes}")
    attributes = auth.CheckRequest.FromString(data).attributes
    http, route = attributes.request.http, attributes.context_extensions
    body = http.raw_body
    leading_bytes = route.get(LEADING_BYTES, "")
    if not leading_bytes.isdecimal():
        raise DecodeError(f"no {LEADING_BYTES} in context_extensions: the route is not one of ours")
    headers = pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=http.header_map, end_of_stream=not body),
        protocol_config=pb.ProtocolConfiguration(request_body_mode="BUFFERED_PARTIAL"),
    )
    shown = headers.attributes[EXT_PROC_FILTER].fields
    shown[CLUSTER].string_value = route.get(LEADING_CLUSTER, "")
    if LEADING_LISTENER in route:
        shown[LISTENER].string_value = route[LEADING_LISTENER]
    # Not by Envoy's x-envoy-auth-partial-body, which a client may send too.
    ends = len(body) < int(leading_bytes)
    return headers, pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=ends))


def _body_bytes(data: bytes) -> int:
    """Return the size of the body before anything is made of the rest; 0 where it is not found."""
    at, end = 0, len(data)
    for number in _BODY:
        at, end = next((span for key, *span in fields(data, at, end) if key == number), (0, 0))
    return end - at


def encode(replies: Sequence[bytes], *, may_refuse: bool) -> bytes:
    """Return the `CheckResponse` of the replies to both messages; it refuses only with `may_refuse`."""
    response = auth.CheckResponse()
    response.status.code = _OK
    response.ok_response.SetInParent()
    for data in replies:
        reply = pb.ProcessingResponse.FromString(data)
        if reply.HasField("dynamic_metadata"):
            response.dynamic_metadata.CopyFrom(reply.dynamic_metadata)
        if reply.HasField("immediate_response") and may_refuse:
            refusal = reply.immediate_response
            response.status.code = _PERMISSION_DENIED
            response.denied_response.status.code = refusal.status.code
            response.denied_response.body = refusal.body.decode()
            for option in refusal.headers.set_headers:
                header = base_pb2.HeaderValue(key=option.header.key, value=option.header.raw_value.decode())
                response.denied_response.headers.add(header=header)
    return response.SerializeToString()
