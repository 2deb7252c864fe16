"""One entry of Envoy's gRPC access log as a finished request. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fleet.endpoint import address_of
from fleet.envoy_api.data.accesslog.v3 import accesslog_pb2
from fleet.names import (
    DESTINATION_KEY,
    DESTINATION_NAMESPACE,
    JSON_ROUTE,
    LEADING_FILTER,
    LEADING_ROUTE,
    METADATA_MODEL,
    METADATA_NAMESPACE,
    SESSION_TAG,
    UNSEEN_ROUTES,
    WEBSOCKET_ROUTE,
    pool_of,
)
from xds_server.access_log.finished import UNANSWERED, Finished

if TYPE_CHECKING:
    from collections.abc import Iterator

_ESTABLISHED: Final = accesslog_pb2.DownstreamTunnelSuccessfullyEstablished
MOST_ATTEMPTS: Final = 100
"""Larger numbers in an entry are capped here: Envoy retries far less often, and one hostile number would
spoil a sum for ever."""
_MOST_METADATA: Final = 64
"""ext_proc writes some twenty."""
_FLAGS: Final = {
    "failed_local_healthcheck": "LH",
    "no_healthy_upstream": "UH",
    "upstream_request_timeout": "UT",
    "local_reset": "LR",
    "upstream_remote_reset": "UR",
    "upstream_connection_failure": "UF",
    "upstream_connection_termination": "UC",
    "upstream_overflow": "UO",
    "no_route_found": "NR",
    "downstream_connection_termination": "DC",
    "downstream_remote_reset": "DR",
    "upstream_retry_limit_exceeded": "URX",
    "stream_idle_timeout": "SI",
    "downstream_protocol_error": "DPE",
    "upstream_protocol_error": "UPE",
    "upstream_max_stream_duration_reached": "UMSDR",
    "duration_timeout": "DT",
    "no_cluster_found": "NC",
    "overload_manager": "OM",
}
"""Envoy's field to its short name; other flags keep their field's name."""


def finished_of(entry: Any) -> Finished | None:
    """Read an `HTTPAccessLogEntry`; None while a request goes on, unless a WebSocket has opened.

    Raises:
        ValueError: a time that is no time.
    """
    common = entry.common_properties
    established = common.intermediate_log_entry and common.access_log_type == _ESTABLISHED
    if common.intermediate_log_entry and not established:
        return None
    filters = common.metadata.filter_metadata
    first = seconds = sent = None
    if common.HasField("time_to_first_upstream_rx_byte"):
        first = _seconds(common.time_to_first_upstream_rx_byte)
    if common.HasField("time_to_first_upstream_tx_byte"):
        sent = _seconds(common.time_to_first_upstream_tx_byte)
    if common.HasField("time_to_last_downstream_tx_byte"):
        seconds = _seconds(common.time_to_last_downstream_tx_byte)
    elif common.HasField("duration"):
        seconds = _seconds(common.duration)
    flags: tuple[str, ...] = ()
    if common.HasField("response_flags"):
        flags = tuple(_flags(common.response_flags))
    started = common.start_time
    pool = pool_of(common.upstream_cluster)
    return Finished(
        address=_address(common.upstream_remote_address),
        picked=_picked(filters),
        cluster=pool,
        request_id=entry.request.request_id,
        started_at=started.seconds + started.nanos * 1e-9,
        first_byte_seconds=first,
        duration_seconds=seconds,
        sent_seconds=sent,
        status=entry.response.response_code.value,
        flags=flags,
        attempts=min(common.upstream_request_attempt_count, MOST_ATTEMPTS),
        metadata=_metadata(filters),
        session=_session(common.custom_tags.get(SESSION_TAG)),
        over_http1=pool != common.upstream_cluster,
        request_bytes=entry.request.request_body_bytes,
        response_bytes=entry.response.response_body_bytes,
        handshake=common.route_name == WEBSOCKET_ROUTE,
        unseen=_unseen(common.route_name, filters),
        established=established,
    )


def _session(name: str | None) -> int | None:
    return hash(name) if name else None


def _seconds(duration: Any) -> float:
    value: float = duration.seconds + duration.nanos * 1e-9
    if value < 0:
        raise ValueError("a negative duration")
    return value


def _address(address: Any) -> str:
    if not address.HasField("socket_address"):
        return ""
    socket = address.socket_address
    return address_of(socket.address, socket.port_value)


def _flags(flags: Any) -> Iterator[str]:
    for field, value in flags.ListFields():
        if value is True:
            yield _FLAGS.get(field.name, field.name)


def _fields(filters: Any, namespace: str) -> Any:
    """Return a namespace's fields; those of a leading part's pick are one level deeper.

    These come first: where a listener chooses by the model, Envoy's own filter writes to our namespace too.
    """
    if LEADING_FILTER in filters and namespace in (nested := filters[LEADING_FILTER].fields):
        return nested[namespace].struct_value.fields
    return filters[namespace].fields if namespace in filters else {}


def _unseen(route: str, filters: Any) -> str:
    """Return why ext_proc has not decided; empty: it has, or nothing tells."""
    if route in (JSON_ROUTE, LEADING_ROUTE):
        # Envoy itself writes the model in a header or path.
        written = _fields(filters, METADATA_NAMESPACE).keys() - {METADATA_MODEL}
        return "" if written else UNANSWERED
    return UNSEEN_ROUTES.get(route, "")


def _picked(filters: Any) -> str:
    fields = _fields(filters, DESTINATION_NAMESPACE)
    if DESTINATION_KEY not in fields:
        return ""
    picked: str = fields[DESTINATION_KEY].string_value
    return picked.partition(",")[0].strip()


def _metadata(filters: Any) -> dict[str, str]:
    return {
        key: value.string_value
        for key, value in islice(_fields(filters, METADATA_NAMESPACE).items(), _MOST_METADATA)
        if value.WhichOneof("kind") == "string_value"
    }
