"""What an exchange reads of its request: attributes, a few headers, and the question that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from envoy.config.core.v3 import base_pb2

ATTRIBUTE_CLUSTER: Final = "xds.cluster_name"
ATTRIBUTE_ENCODING: Final = "request.headers['content-encoding']"
ATTRIBUTE_ID: Final = "request.id"
ATTRIBUTE_TRACEPARENT: Final = "request.headers['traceparent']"
ATTRIBUTES: Final = (ATTRIBUTE_CLUSTER, ATTRIBUTE_ENCODING, ATTRIBUTE_ID, ATTRIBUTE_TRACEPARENT)
MAX_ID_CHARS: Final = 128
"""A client may send a request id of its own: what is remembered of it has a limit."""
_HEADERS_READ: Final = frozenset(
    {"content-encoding", "content-type", "upgrade", ":method", "x-request-id", "traceparent"}
)


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """What an exchange knows of its request at the moment of the decision."""

    body: bytes
    """At most the limit of inspected bytes."""
    complete: bool
    """False when `body` is only the leading part."""
    cluster: str = ""
    """The cluster that Envoy's route names; empty when it does not say."""
    content_encoding: str = ""
    request_id: str = ""
    traceparent: str = ""
    """The client's trace context, as it says; empty without one."""
    explain: bool = False
    """Whether the pick should tell of more endpoints than it names."""


def headers_of(sent: base_pb2.HeaderMap) -> dict[str, str]:
    """Read the few headers that matter: raw_value, then value, as latin-1, which no byte can break."""
    found: dict[str, str] = {}
    for header in sent.headers:
        if header.key in _HEADERS_READ:
            found[header.key] = header.raw_value.decode("latin-1") if header.raw_value else header.value
    return found
