"""API listeners: what is in them, and that only those hear of them who ask by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from fleet.endpoint import Locality
from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.config.listener.v3 import listener_pb2
from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.envoy_api.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from fleet.names import TYPE_CLUSTER, TYPE_LISTENER
from fleet.settings import Settings, parse_settings
from xds_server.envoy.clusters import clusters
from xds_server.envoy.proxyless import api_listeners, grpc_bootstrap


def make_settings(*listeners: dict[str, str]) -> Settings:
    entries = [
        {"address": f"127.0.0.1:{port}", "pool": "llm", **listener}
        for port, listener in enumerate(listeners, 8080)
    ]
    return parse_settings(
        yaml.safe_dump({"pools": [{"name": "llm"}, {"name": "idle"}], "listeners": entries})
    )


def manager_of(settings: Settings, name: str) -> Any:
    (resource,) = [entry for entry in api_listeners(settings) if entry.name == name]
    assert resource.type_url == TYPE_LISTENER
    listener = listener_pb2.Listener.FromString(resource.body.value)
    assert listener.name == name
    assert not listener.HasField("address"), "gRPC refuses a listener that is both"
    manager = http_connection_manager_pb2.HttpConnectionManager()
    assert listener.api_listener.api_listener.Unpack(manager)
    return manager


def session_headers(settings: Settings, name: str) -> list[str]:
    (host,) = manager_of(settings, name).route_config.virtual_hosts
    assert list(host.domains) == ["*"]
    (route,) = host.routes
    assert route.route.cluster == name.removeprefix("grpc/")
    return [policy.header.header_name for policy in route.route.hash_policy]


def test_each_pool_has_one_api_listener() -> None:
    settings = make_settings({"name": "llm"})
    assert [entry.name for entry in api_listeners(settings)] == ["grpc/llm", "grpc/idle"]


def test_the_router_is_the_only_filter() -> None:
    filters = manager_of(make_settings({"name": "a"}), "grpc/llm").http_filters
    assert [entry.name for entry in filters] == ["envoy.filters.http.router"]


def test_sessions_use_the_listeners_headers() -> None:
    settings = make_settings(
        {"name": "a", "session_header": "x-user"},
        {"name": "b", "session_header": "x-chat"},
        {"name": "c", "session_header": "x-user"},
    )
    assert session_headers(settings, "grpc/llm") == ["x-chat", "x-user"]
    assert session_headers(settings, "grpc/idle") == ["x-session-id"]


def test_envoy_comes_first_in_the_list_of_policies() -> None:
    (resource,) = [entry for entry in clusters(make_settings({"name": "a"})) if entry.name == "llm"]
    assert resource.type_url == TYPE_CLUSTER
    policies = cluster_pb2.Cluster.FromString(resource.body.value).load_balancing_policy.policies
    assert [policy.typed_extension_config.name.rpartition(".")[2] for policy in policies] == [
        "override_host",
        "ring_hash",
    ]


@pytest.mark.parametrize("variant", ["sotw", "delta"])
def test_the_wildcard_does_not_bring_them_and_their_name_does(xds: Any, variant: str) -> None:
    snapshot = xds.snapshot(xds.listener("front"), xds.listener("grpc/llm"))
    for names, expected in (((), {"front"}), (("*",), {"front"}), (("grpc/llm",), {"grpc/llm"})):
        peer, machine = xds.peer(variant), xds.machine(variant)
        machine.on_snapshot(snapshot)
        (response,) = machine.on_request(peer.ask(TYPE_LISTENER, names))
        state = peer.take(response)
        assert set(state.resources) == expected
        machine.on_request(peer.answer(response))
        # One that changes or comes is nobody's business who did not ask for it either.
        changed = xds.snapshot(xds.listener("front"), xds.listener("grpc/llm", "x"), xds.listener("grpc/b"))
        assert len(machine.on_snapshot(changed)) == ("grpc/llm" in names)


def test_bootstrap_has_locality_only_if_set() -> None:
    made = grpc_bootstrap(ads_address="unix:/x", node_id="n", node_cluster="c")
    assert made["node"] == {"id": "n", "cluster": "c"}
    assert made["xds_servers"][0]["server_uri"] == "unix:/x"
    placed = grpc_bootstrap(ads_address="h:1", node_id="n", node_cluster="c", locality=Locality(zone="z"))
    assert placed["node"]["locality"]["zone"] == "z"
    assert json.loads(json.dumps(placed)) == placed


def test_inline_routes_are_no_route_resource() -> None:
    """So no Envoy that asks for all routes by the explicit wildcard gets them."""
    config = manager_of(make_settings({"name": "a"}), "grpc/llm")
    assert not config.HasField("rds")
    assert isinstance(config.route_config, route_pb2.RouteConfiguration)
