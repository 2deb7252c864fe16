"""The bootstrap: only an Envoy's name and the source of its configuration."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from fleet.endpoint import Locality
from fleet.names import ADS_CLUSTER
from fleet.settings.address import split_host_port
from fleet.settings.connections import ConnectionSettings
from xds_server.envoy.extension import discovery_type

if TYPE_CHECKING:
    from collections.abc import Mapping

# Short, so that Envoy soon connects again after a host has vanished. With TLS Envoy's own default: the peer's
# process makes the handshake, and an Envoy whose handshakes are all cut off never gets a configuration.
_CONNECT_TIMEOUT: Final = "1s"
_CONNECT_TIMEOUT_WITH_TLS: Final = "5s"


def bootstrap(
    *,
    ads_address: str,
    node_id: str,
    node_cluster: str,
    locality: Locality = Locality(),  # noqa: B008 - frozen
    delta: bool = False,
    admin_address: str = "",
    transport_socket: Mapping[str, Any] | None = None,
    connections: ConnectionSettings = ConnectionSettings(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Build an Envoy bootstrap as plain data, ready to be printed as YAML.

    Args:
        ads_address: xds_server, as `unix:/path` or `host:port`.
        node_id: this Envoy's own name.
        node_cluster: what the Envoys of one use have in common.
        locality: where this Envoy stands; left out when empty.
        delta: incremental xDS instead of state of the world.
        admin_address: `ip:port` of Envoy's admin interface; empty leaves it out.
        transport_socket: how to speak TLS to xds_server; None: plaintext.
        connections: how often xds_server is pinged.
    """
    made: dict[str, Any] = {
        "node": _node(node_id, node_cluster, locality),
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC" if delta else "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": _ads_service()}],
            },
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {"clusters": [_ads_cluster(ads_address, transport_socket, connections)]},
    }
    if admin_address:
        made["admin"] = {"address": _address(admin_address)}
    return made


def _ads_service() -> dict[str, Any]:
    # Envoy's own back-off grows to 30 s: weights would stand still that long after a restart of ours.
    back_off = {"base_interval": "0.25s", "max_interval": "2s"}
    return {"cluster_name": ADS_CLUSTER, "retry_policy": {"retry_back_off": back_off}}


def _node(node_id: str, node_cluster: str, locality: Locality) -> dict[str, Any]:
    node: dict[str, Any] = {"id": node_id, "cluster": node_cluster}
    if place := {name: value for name, value in asdict(locality).items() if value}:
        node["locality"] = place
    return node


def _ads_cluster(
    address: str, transport_socket: Mapping[str, Any] | None, connections: ConnectionSettings
) -> dict[str, Any]:
    keepalive = {
        "interval": f"{connections.ping_seconds:g}s",
        "timeout": f"{connections.ping_timeout_seconds:g}s",
    }
    endpoint = {"endpoint": {"address": _address(address)}}
    return {
        "name": ADS_CLUSTER,
        "type": discovery_type(address),
        "connect_timeout": _CONNECT_TIMEOUT if transport_socket is None else _CONNECT_TIMEOUT_WITH_TLS,
        **({} if transport_socket is None else {"transport_socket": dict(transport_socket)}),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {
                    "http2_protocol_options": {"connection_keepalive": keepalive},
                },
            }
        },
        "load_assignment": {"cluster_name": ADS_CLUSTER, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _address(address: str) -> dict[str, Any]:
    if address.startswith("unix:"):
        return {"pipe": {"path": address.removeprefix("unix:")}}
    host, port = split_host_port(address)
    return {"socket_address": {"address": host, "port_value": port}}
