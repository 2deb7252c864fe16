"""The pings and the streams per connection that Envoy is configured with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.extensions.upstreams.http.v3 import http_protocol_options_pb2
from fleet.names import EXT_PROC_CLUSTER
from fleet.settings import Settings, parse_settings
from xds_server.envoy.bootstrap import bootstrap
from xds_server.envoy.clusters import clusters

OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def settings(protocol: str = "h2", **connections: Any) -> Settings:
    written = {
        "pools": [{"name": "p", "protocol": protocol, "endpoints": [{"address": "10.0.0.1:80"}]}],
        "listeners": [{"name": "l", "address": "127.0.0.1:10000", "pool": "p"}],
        "connections": connections,
    }
    return parse_settings(json.dumps(written))


def http2(made: Settings, name: str) -> Any:
    """A cluster's HTTP/2 options."""
    (body,) = [resource.body for resource in clusters(made) if resource.name == name]
    cluster = cluster_pb2.Cluster.FromString(body.value)
    options = http_protocol_options_pb2.HttpProtocolOptions()
    cluster.typed_extension_protocol_options[OPTIONS].Unpack(options)
    return options.explicit_http_config.http2_protocol_options


def test_our_services_are_pinged() -> None:
    options = http2(settings(ping_seconds=20, ping_timeout_seconds=5), EXT_PROC_CLUSTER)
    assert (options.connection_keepalive.interval.seconds, options.connection_keepalive.timeout.seconds) == (
        20,
        5,
    )
    assert options.max_concurrent_streams.value == 400
    assert http2(settings(ext_proc_streams=7), EXT_PROC_CLUSTER).max_concurrent_streams.value == 7
    connections = settings(ping_seconds=20.5, ping_timeout_seconds=5).connections
    made = bootstrap(ads_address="unix:/x", node_id="n", node_cluster="c", connections=connections)
    (cluster,) = made["static_resources"]["clusters"]
    config = cluster["typed_extension_protocol_options"][OPTIONS]["explicit_http_config"]
    assert config["http2_protocol_options"]["connection_keepalive"] == {"interval": "20.5s", "timeout": "5s"}


@pytest.mark.parametrize("protocol", ["h2", "grpc"])
def test_engines_are_pinged_only_where_they_permit_it(protocol: str) -> None:
    assert not http2(settings(protocol), "p").HasField("connection_keepalive")
    keepalive = http2(settings(protocol, engine_ping_seconds=300), "p").connection_keepalive
    assert (keepalive.interval.seconds, keepalive.timeout.seconds) == (300, 10)
