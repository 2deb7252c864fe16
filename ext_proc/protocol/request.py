"""What an exchange reads of its request: headers and attributes, and the question that they make."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from fleet.names import (
    CROWDED_ATTRIBUTE,
    DESTINATION_NAMESPACE,
    EXT_PROC_FILTER,
    SERVED_KEY,
    SUBSET_KEY,
    SUBSET_NAMESPACE,
    pool_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.envoy_api.config.core.v3 import base_pb2
    from fleet.envoy_api.google.protobuf import struct_pb2
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

CLUSTER: Final = "xds.cluster_name"
ENCODING: Final = "content-encoding"
CONTENT_TYPE: Final = "content-type"
REQUEST_ID: Final = "x-request-id"
TRACEPARENT: Final = "traceparent"
METHOD: Final = ":method"
PATH: Final = ":path"
UPGRADE: Final = "upgrade"
CROWDED: Final = "crowded"
"""Not empty where the request's headers leave no room for ours. Only an attribute tells it, no header."""

MAX_ID_CHARS: Final = 128
"""A client may send a request id of its own: what is remembered of it has a limit."""
MAX_MODEL_CHARS: Final = 512
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 60 * 1024
"""Envoy's own limits of a request's headers, by default, and of what a mutation may make of them."""
LOOKED_HEADERS: Final = 512
"""Headers that are looked at, for Envoys that let more through."""
MAX_SUBSET: Final = 8192
"""Endpoints that a gateway may allow at once; those named after them are not allowed."""

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
_MODEL_IN_PATH: Final = re.compile(r"/(?:deployments|models)/([^/?:]+)[/:]|[?&]model=([^&#]+)")
_NOTHING: Final[Mapping[str, str]] = {}


class RouteRequest(NamedTuple):
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
    path: str = ""
    """With its query; empty when Envoy does not tell."""
    headers: Mapping[str, str] = _NOTHING
    """Headers that are read, by lower-case name; those sent repeatedly are joined by commas."""
    subset: tuple[str, ...] | None = None
    """What the gateway allows, `ip:port` or `ip`; None: everything. `ext_proc.protocol.subset` reads it."""
    headers_only: bool = False
    """There is no body that could be read in time: `body` is empty and the rest has to decide."""


class Reads:
    """Which headers are read, and as which attributes they come where Envoy sends no headers."""

    __slots__ = ("attributes", "headers")

    def __init__(self, headers: Iterable[str] = ()) -> None:
        """`headers` are wanted by whoever routes, beside those that an exchange needs itself."""
        wanted = {name.lower() for name in headers} - _ALWAYS
        self.headers: frozenset[str] = _ALWAYS | wanted
        self.attributes: Mapping[str, str] = _ATTRIBUTES | {
            f"request.headers['{name}']": name for name in sorted(wanted)
        }
        """Attribute to the name of what it tells."""

    def of_headers(self, sent: base_pb2.HeaderMap, told: dict[str, str]) -> None:
        """Add what is read of headers to `told`: raw_value, then value, as latin-1, which no byte breaks."""
        wanted = self.headers
        repeated: dict[str, list[str]] = {}
        for header in islice(sent.headers, LOOKED_HEADERS):
            if (name := header.key) in wanted:
                raw = header.raw_value
                text = raw.decode("latin-1") if raw else header.value
                if name in told:
                    repeated.setdefault(name, [told[name]]).append(text)
                else:
                    told[name] = text
        for name, texts in repeated.items():
            told[name] = ",".join(texts)

    def of_attributes(self, sent: struct_pb2.Struct, told: dict[str, str]) -> None:
        """Add what is read of attributes to `told`; headers that are there already stay."""
        fields = sent.fields
        for attribute, name in self.attributes.items():
            if attribute in fields and name not in told:
                told[name] = fields[attribute].string_value


NO_MORE: Final = Reads()
"""Nothing but what every exchange reads."""


class Facts:
    """What is known of one request beside its body."""

    __slots__ = ("_reads", "subset", "told")

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self.told: dict[str, str] = {}
        """Headers and attributes that are read, by name."""
        self.subset: tuple[str, ...] | None = None

    @property
    def request_id(self) -> str:
        """Envoy's id of the request, or the client's; empty when it does not come along."""
        return self.told.get(REQUEST_ID, "")[:MAX_ID_CHARS]

    @property
    def crowded(self) -> bool:
        """Whether its headers are so many, or so long, that none should be added."""
        return bool(self.told.get(CROWDED))

    @property
    def traceparent(self) -> str:
        """The client's trace context, as it says; empty without one."""
        return self.told.get(TRACEPARENT, "")

    def take_headers(self, sent: base_pb2.HeaderMap) -> None:
        """Take in the request's headers."""
        self._reads.of_headers(sent, self.told)

    def take(self, message: pb.ProcessingRequest) -> None:
        """Take in what comes along with any message: attributes, and metadata of the gateway."""
        if EXT_PROC_FILTER in message.attributes:
            self._reads.of_attributes(message.attributes[EXT_PROC_FILTER], self.told)
        if message.HasField("metadata_context"):
            self.subset = subset_of(message.metadata_context)

    def question(self, body: bytes, *, complete: bool, headers_only: bool = False) -> RouteRequest:
        """Make the question to whoever routes."""
        told = self.told
        return RouteRequest(
            body,
            complete,
            pool_of(told.get(CLUSTER, "")),
            told.get(ENCODING, ""),
            told.get(REQUEST_ID, "")[:MAX_ID_CHARS],
            told.get(TRACEPARENT, ""),
            path=told.get(PATH, ""),
            headers=told,
            subset=self.subset,
            headers_only=headers_only,
        )


def subset_of(metadata: base_pb2.Metadata) -> tuple[str, ...] | None:
    """Read which endpoints a gateway allows: a list of texts, or one text with commas.

    None: it does not say, or says something else than these two. Empty: it allows nobody. At most
    `MAX_SUBSET` of them.
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
    """Read who served a response, as a gateway tells with its headers, and whether its status is an error.

    The address is empty where it is not told.
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


def model_in_path(path: str) -> str:
    """Read the model from a path (`/deployments/M/...`, `/models/M:...`) or its query (`?model=M`).

    Empty when it names none.
    """
    found = _MODEL_IN_PATH.search(path)
    if found is None:
        return ""
    return unquote(found[1] or found[2])[:MAX_MODEL_CHARS]
