"""The parts of a request apart from its body: headers, attributes, metadata."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.names import (
    CROWDED_ATTRIBUTE,
    DESTINATION_NAMESPACE,
    EXT_PROC_FILTER,
    LISTENER_ATTRIBUTE,
    SERVED_KEY,
    SESSION_ATTRIBUTE,
    SUBSET_KEY,
    SUBSET_NAMESPACE,
    pool_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ext_proc.pick.result import Reason
    from fleet.envoy_api.config.core.v3 import base_pb2
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

CLUSTER: Final = "xds.cluster_name"
ENCODING: Final = "content-encoding"
CONTENT_TYPE: Final = "content-type"
REQUEST_ID: Final = "x-request-id"
TRACEPARENT: Final = "traceparent"
METHOD: Final = ":method"
PATH: Final = ":path"
UPGRADE: Final = "upgrade"
LISTENER: Final = LISTENER_ATTRIBUTE
"""Only where the model chooses the pool."""
CROWDED: Final = "crowded"
"""Not empty where the request's headers leave no room for ours. Only an attribute has this name."""

MAX_ID_CHARS: Final = 128
"""Limit of a stored request id, which may be the client's own."""
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 60 * 1024
"""Envoy's default limits of a request's headers, before and after a mutation."""
LOOKED_HEADERS: Final = 512
"""Limit of headers that are read, for Envoys that pass more."""
MAX_SUBSET: Final = 8192
"""Limit of endpoints that a gateway may allow; later ones are not allowed."""

_ALWAYS: Final = frozenset({ENCODING, CONTENT_TYPE, REQUEST_ID, TRACEPARENT, METHOD, PATH, UPGRADE})
_ATTRIBUTES: Final = {
    "request.id": REQUEST_ID,
    "request.path": PATH,
    CLUSTER: CLUSTER,
    CROWDED_ATTRIBUTE: CROWDED,
    f"request.headers['{CONTENT_TYPE}']": CONTENT_TYPE,
    f"request.headers['{ENCODING}']": ENCODING,
    f"request.headers['{TRACEPARENT}']": TRACEPARENT,
}
_NOTHING: Final[Mapping[str, str]] = {}


class HttpRequest(NamedTuple):
    """A request at the moment of its decision."""

    body: bytes
    """At most the limit of inspected bytes."""
    complete: bool
    """False when `body` is only the leading part."""
    attributes: Mapping[str, str] = _NOTHING
    """Headers and attributes by name; repeated headers are joined by commas."""
    subset: tuple[str, ...] | None = None
    """Endpoints that the gateway allows, `ip:port` or `ip`; None: all. `ext_proc.pick.subset` reads it."""
    no_body: Reason | None = None
    """The reason why headers alone decide; None: `body` decides."""
    late: bool = False
    """Whether Envoy has sent the headers on already, so that no endpoint can be picked."""

    @property
    def cluster(self) -> str:
        """The pool of the cluster in Envoy's route; empty if unknown."""
        return pool_of(self.attributes.get(CLUSTER, ""))

    @property
    def path(self) -> str:
        """The path with its query; empty when Envoy does not send it."""
        return self.attributes.get(PATH, "")

    @property
    def content_encoding(self) -> str:
        """The body's content codings; empty without any."""
        return self.attributes.get(ENCODING, "")

    @property
    def request_id(self) -> str:
        """Envoy's id of the request, or the client's; empty if Envoy does not send it."""
        return self.attributes.get(REQUEST_ID, "")[:MAX_ID_CHARS]

    @property
    def traceparent(self) -> str:
        """The client's trace context, unchecked; empty without one."""
        return self.attributes.get(TRACEPARENT, "")


class AttributeMap:
    """The headers to read, and the attributes with the same values where Envoy sends no headers."""

    __slots__ = ("attributes", "headers")

    def __init__(
        self,
        headers: Iterable[str] = (),
        only_headers: Iterable[str] = (),
        sessions: Iterable[str] = (),
        attributes: Iterable[str] = (),
    ) -> None:
        """`headers` and `attributes` come in addition to those that every exchange reads.

        `only_headers` are no attributes of their own; `sessions` are the attributes with a request's session.
        """
        more = {name.lower() for name in headers} - _ALWAYS
        self.headers: frozenset[str] = _ALWAYS | more | frozenset(only_headers)
        self.attributes: Mapping[str, str] = (
            _ATTRIBUTES
            | dict.fromkeys(sessions, SESSION_ATTRIBUTE)
            | {f"request.headers['{name}']": name for name in sorted(more)}
            | {name: name for name in attributes}
        )
        """Attribute to the name of its header."""

    def read_headers(self, sent: base_pb2.HeaderMap, values: dict[str, str]) -> None:
        """Add headers to `values`: raw_value or value, as Latin-1, which has a character for every byte."""
        names = self.headers
        repeated: dict[str, list[str]] = {}
        for header in islice(sent.headers, LOOKED_HEADERS):
            if (name := header.key) in names:
                raw = header.raw_value
                text = raw.decode("latin-1") if raw else header.value
                if name in values:
                    repeated.setdefault(name, [values[name]]).append(text)
                else:
                    values[name] = text
        for name, texts in repeated.items():
            values[name] = ",".join(texts)

    def read_attributes(self, message: pb.ProcessingRequest, values: dict[str, str]) -> None:
        """Add attributes, which any message may have, to `values`; headers that are there already stay."""
        if EXT_PROC_FILTER not in message.attributes:
            return
        fields = message.attributes[EXT_PROC_FILTER].fields
        for attribute, name in self.attributes.items():
            if attribute in fields and name not in values:
                values[name] = fields[attribute].string_value


NO_MORE: Final = AttributeMap()
"""Only the headers that every exchange reads."""


def subset_of(metadata: base_pb2.Metadata) -> tuple[str, ...] | None:
    """Read the endpoints that a gateway allows, at most `MAX_SUBSET`: a list of texts, or one with commas.

    None: there is no such value, so all are allowed. Empty: no endpoint is allowed.
    """
    if SUBSET_NAMESPACE not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[SUBSET_NAMESPACE].fields
    if SUBSET_KEY not in fields:
        return None
    value = fields[SUBSET_KEY]
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        texts = [entry.string_value for entry in islice(value.list_value.values, MAX_SUBSET)]
    elif kind == "string_value":
        texts = value.string_value.split(",", MAX_SUBSET)[:MAX_SUBSET]
    else:
        return None
    return tuple(text for entry in texts if (text := entry.strip()))


def served_of(metadata: base_pb2.Metadata, headers: base_pb2.HeaderMap) -> tuple[str, bool]:
    """Return the endpoint that served a response, and whether the response's status is an error.

    The address is empty unless a gateway reports it.
    """
    address, refused = "", False
    if DESTINATION_NAMESPACE in metadata.filter_metadata:
        fields = metadata.filter_metadata[DESTINATION_NAMESPACE].fields
        address = fields[SERVED_KEY].string_value.strip() if SERVED_KEY in fields else ""
    for header in islice(headers.headers, LOOKED_HEADERS):
        if header.key == ":status":
            refused = (header.raw_value or header.value.encode())[:1] in (b"4", b"5")
        elif header.key == SERVED_KEY and not address:
            address = (header.raw_value.decode("latin-1") or header.value).strip()
    return address, refused
