"""Every header, metadata and resource name that Warmroute shares with Envoy, in one place.

`deploy/envoy` and the generated configuration use these; a test checks that no other spelling exists.
"""

from typing import Final

# The field's endpoint-picker protocol: an ordered, comma-separated list of host:port.
DESTINATION_KEY: Final = "x-gateway-destination-endpoint"
DESTINATION_NAMESPACE: Final = "envoy.lb"
# The endpoint that served, as some gateways report it with the response: in the same namespace.
SERVED_KEY: Final = "x-gateway-destination-endpoint-served"
# Which endpoints a gateway allows for a request.
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
SUBSET_KEY: Final = "x-gateway-destination-endpoint-subset"

# Our own metadata namespace; the route turns its keys into headers.
METADATA_NAMESPACE: Final = "warmroute"
METADATA_ENDPOINT: Final = "endpoint"  # the first of the pick
METADATA_MATCHED: Final = "matched"  # matched share of the prompt, "0.00" to "1.00"
METADATA_REASON: Final = "reason"  # a value of ext_proc.pick.Reason
# Reasons with an endpoint; with all others, weights decide or the request is answered.
PICKED_REASONS: Final = frozenset({"warm", "cold", "headers", "named", "stored", "session"})
METADATA_PREFIX: Final = "prefix"  # fixed-length hex digest of the leading block
# By these, xds_server reports the outcome of a request to workers; each is 16 hex digits.
METADATA_SERIAL: Final = "serial"  # of the pick, unique over all workers
METADATA_REQUEST: Final = "request"  # digest of the whole request
METADATA_PROMPT: Final = "prompt"  # digest of the prompt, as far as it fills blocks
METADATA_EXPECTED: Final = "expected"  # predicted seconds to the first token, "0.012345"
METADATA_IDEMPOTENCY: Final = "idempotency"  # key of a request that may be repeated
METADATA_RETRY_ON: Final = "retry_on"  # further conditions of retries, as in `retry_on`
METADATA_FIRST_BYTE: Final = "first_byte_ms"  # whole milliseconds to the response headers
METADATA_MODEL: Final = "model"  # in the header, path or query, by Envoy, where a listener has several pools
METADATA_POOL: Final = "pool"  # that ext_proc has chosen there
METADATA_LENGTH: Final = "length"  # content-length of a body in which an alias has been replaced
METADATA_BLOCKS: Final = "blocks"  # the prompt for a recording, as fleet.recorded_prompt writes it
METADATA_TRACE: Final = "trace"  # W3C traceparent of a traced request's pick
METADATA_RANK: Final = "rank"  # data-parallel rank of the picked endpoint, from 0

HEADER_ENDPOINT: Final = "x-warmroute-endpoint"
HEADER_MATCHED: Final = "x-warmroute-matched"
HEADER_REASON: Final = "x-warmroute-reason"
HEADER_PREFIX: Final = "x-warmroute-prefix"
# Of vLLM and SGLang: it chooses among an engine's data-parallel ranks.
HEADER_RANK: Final = "x-data-parallel-rank"
# On the response, for the client.
HEADER_SERVED: Final = "x-warmroute-served"
HEADER_ATTEMPTS: Final = "x-warmroute-attempts"

# To the engine, for requests that may reach two engines.
HEADER_IDEMPOTENCY: Final = "x-warmroute-idempotency-key"

# The key that a client gives its request; it passes unchanged.
CLIENT_KEY_HEADER: Final = "idempotency-key"

# Set by earlier configurations for their own routes.
HEADER_PROTOCOL: Final = "x-warmroute-protocol"

# As an attribute, the listener, whose name its virtual host has.
LISTENER_ATTRIBUTE: Final = "xds.virtual_host_name"

# As an attribute of a request that has nearly as many headers, or bytes of them, as Envoy lets through by
# default (100 and 60 KiB): the next proxy on the way to the engine may have the same limits.
CROWDED_HEADERS: Final = 80
CROWDED_BYTES: Final = 56 * 1024
CROWDED_ATTRIBUTE: Final = (
    f"size(request.headers) > {CROWDED_HEADERS}"
    f" || request.total_size - request.size > {CROWDED_BYTES} ? 'yes' : ''"
)

UPSTREAM_HEADERS: Final[dict[str, str]] = {
    HEADER_ENDPOINT: METADATA_ENDPOINT,
    HEADER_MATCHED: METADATA_MATCHED,
    HEADER_REASON: METADATA_REASON,
    HEADER_PREFIX: METADATA_PREFIX,
    HEADER_RANK: METADATA_RANK,
}
"""Header to key of `METADATA_NAMESPACE`: the route adds these headers for the engine."""


def session_attribute(headers: tuple[str, ...]) -> str:
    """Return the attribute with the first of these headers that a request has: one value in place of many."""
    name, *others = headers
    value = f"request.headers['{name}']"
    return f"'{name}' in request.headers ? {value} : {session_attribute(tuple(others))}" if others else value


REMOVED_REQUEST_HEADERS: Final[tuple[str, ...]] = (
    DESTINATION_KEY,
    SERVED_KEY,
    SUBSET_KEY,
    *UPSTREAM_HEADERS,
    HEADER_SERVED,
    HEADER_ATTEMPTS,
    HEADER_IDEMPOTENCY,
    HEADER_PROTOCOL,
)
"""Our headers: sent by a client, they neither affect routing nor reach an engine."""

# Suffix of a pool's second cluster, for HTTP/1.1. No pool's name has a slash.
HTTP1_SUFFIX: Final = "/http1"


def pool_of(cluster: str) -> str:
    """Return the pool that a cluster's name belongs to."""
    return cluster.removesuffix(HTTP1_SUFFIX)


ADS_CLUSTER: Final = "warmroute_xds"
EXT_PROC_CLUSTER: Final = "warmroute_ext_proc"

# Name of the access log that Envoys send to xds_server.
ACCESS_LOG_NAME: Final = "warmroute"
# In its entries, the request's session; without one the tag is missing.
SESSION_TAG: Final = "warmroute-session"
SESSION_ATTRIBUTE: Final = "session"  # the first session header of a request, under this name
# And the route of WebSocket handshakes.
WEBSOCKET_ROUTE: Final = "websocket"

# Of listeners for gRPC's own xDS client. No other name has a slash.
GRPC_LISTENER_PREFIX: Final = "grpc/"

EXT_PROC_FILTER: Final = "envoy.filters.http.ext_proc"
# On the routes of what engines store: ext_proc sees the leading bytes of answers.
STORED_FILTER: Final = "warmroute.stored"
# Collections of the API whose members one engine stores: the name stands behind them in a path.
STORED_COLLECTIONS: Final = (
    "responses",
    "conversations",
    "files",
    "uploads",
    "batches",
    "vector_stores",
    "videos",
)
BUFFER_FILTER: Final = "envoy.filters.http.buffer"
# Of bodies that may be long: it holds their leading part. Its name is the namespace of its metadata.
LEADING_FILTER: Final = "envoy.filters.http.ext_authz"
# Keys of what it shows ext_proc of a route, in addition to the request.
LEADING_CLUSTER: Final = "cluster"
LEADING_LISTENER: Final = "listener"  # with several pools
LEADING_BYTES: Final = "leading_bytes"

# Routes by name: those of JSON, and those that ext_proc sees nothing of. The value is the cause.
JSON_ROUTE: Final = "json"
LEADING_ROUTE: Final = "json-leading"
UNSEEN_ROUTES: Final[dict[str, str]] = {
    "upgrade": "upgrade",
    "content-type": "content_type",
    "other": "method",
}

TYPE_LISTENER: Final = "type.googleapis.com/envoy.config.listener.v3.Listener"
TYPE_ROUTE: Final = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
TYPE_CLUSTER: Final = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
TYPE_ENDPOINT: Final = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
RESOURCE_TYPES: Final[tuple[str, ...]] = (TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE)
"""In the order of make before break: clusters, their endpoints, listeners, routes."""
TYPE_SECRET: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 - a type
SERVED_TYPES: Final[tuple[str, ...]] = (TYPE_SECRET, *RESOURCE_TYPES)
"""With secrets, which only Envoys with TLS request, before the types that refer to them."""
