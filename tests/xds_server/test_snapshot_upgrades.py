"""Routes and clusters of upgrades, as they are written; what they do is tested on the real Envoy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.config.route.v3 import route_components_pb2, route_pb2
from fleet.envoy_api.extensions.upstreams.http.v3 import http_protocol_options_pb2
from fleet.errors import SettingsError
from fleet.names import EXT_PROC_CLUSTER, HTTP1_SUFFIX, pool_of
from fleet.settings import parse_settings
from xds_server.envoy.clusters import clusters
from xds_server.envoy.routes import AS_CONFIGURED, routes
from xds_server.http2.protocol_choice import ProtocolChoice

if TYPE_CHECKING:
    from fleet.settings import Settings

TLS = {"ca_file": "/ca", "sni": "engines.test"}


def made(upgrades: dict[str, Any] | None = None, **pool: Any) -> Settings:
    written = {
        "pools": [{"name": "p", **pool}],
        "listeners": [{"name": "l", "address": "127.0.0.1:1", "pool": "p", "open_paths": ["*"]}],
        "upgrades": upgrades or {},
    }
    return parse_settings(json.dumps(written))


def routed(settings: Settings, protocols: ProtocolChoice = AS_CONFIGURED) -> list[route_components_pb2.Route]:
    (resource,) = routes(settings, protocols)
    config = route_pb2.RouteConfiguration.FromString(resource.body.value)
    return list(config.virtual_hosts[0].routes)


ORDINARY = (
    "upgrade", "stored", "json", "json", "json-leading", "json-leading", "content-type", "content-type",
    "other",
)  # fmt: skip
"""The first of two is for requests whose answer may name what an engine stores."""


def names(settings: Settings) -> list[str]:
    return [route.name for route in routed(settings)]


def protocols(settings: Settings) -> dict[str, tuple[str, str]]:
    """Cluster to its protocol and to whose endpoints it has."""
    by_cluster = {}
    for resource in clusters(settings):
        cluster = cluster_pb2.Cluster.FromString(resource.body.value)
        options = http_protocol_options_pb2.HttpProtocolOptions()
        (packed,) = cluster.typed_extension_protocol_options.values()
        assert packed.Unpack(options)
        kind = options.WhichOneof("upstream_protocol_options")
        if kind == "explicit_http_config":
            kind = options.explicit_http_config.WhichOneof("protocol_config")
        by_cluster[cluster.name] = (str(kind), cluster.eds_cluster_config.service_name or cluster.name)
    by_cluster.pop(EXT_PROC_CLUSTER)
    return by_cluster


def test_route_order_follows_the_decision_table() -> None:
    assert names(made()) == [
        *("websocket-version",) * 2,
        *("websocket-key",) * 3,
        *("websocket", "fallback"),
        *ORDINARY,
    ]


def test_without_paths_all_is_as_it_was() -> None:
    assert names(made({"paths": []})) == [*ORDINARY]
    assert not any(route.request_headers_to_remove for route in routed(made({"paths": []})))


def test_each_part_can_be_switched_off() -> None:
    off = {"check_handshakes": False, "fallback": {"enabled": False}}
    assert names(made(off)) == ["websocket", *ORDINARY]


def test_paths_match_whole_and_prefixes_at_a_slash() -> None:
    configured = made({"paths": ["/a", "/b/"]})
    matches = [route.match for route in routed(configured) if route.name == "websocket"]
    assert [match.WhichOneof("path_specifier") for match in matches] == ["path", "prefix"]
    taken = [
        configured.upgrades.takes(path) for path in ("/a", "/a?b=c", "/a/", "/ab", "/b/", "/b/c?d", "/b")
    ]
    assert taken == [True, True, False, False, True, True, False]


@pytest.mark.parametrize(
    "upgrades",
    [
        {"paths": ["/"]},
        {"paths": ["/a", "/a"]},
        {"paths": ["/a?b=c"]},
        {"paths": ["a"]},
        {"fallback": {"headers": ["connection"]}},
        {"http2": {"pause_seconds": 10.0, "most_pause_seconds": 5.0}},
        {"retry_statuses": [200]},
    ],
)
def test_impossible_upgrades_are_refused(upgrades: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        made(upgrades)
    made({"paths": ["/"], "fallback": {"enabled": False}})


def test_refused_handshake_is_retried() -> None:
    def policy(**pool: Any) -> route_components_pb2.RetryPolicy:
        return next(r for r in routed(made(**pool)) if r.name == "websocket").route.retry_policy

    retry = policy(retries=3)
    assert retry.num_retries.value == 3
    assert list(retry.retriable_status_codes) == [404, 405, 426, 501]
    assert "retriable-status-codes" in retry.retry_on.split(",")
    assert policy(retries=0) == route_components_pb2.RetryPolicy()
    others = [route for route in routed(made()) if route.name != "websocket"]
    assert {code for route in others for code in route.route.retry_policy.retriable_status_codes} == {503}


@pytest.mark.parametrize(
    ("pool", "own", "second"),
    [
        ({}, "http_protocol_options", None),
        ({"protocol": "h2"}, "http2_protocol_options", "http_protocol_options"),
        ({"protocol": "auto"}, "http2_protocol_options", "http_protocol_options"),
        ({"protocol": "auto", "tls": TLS}, "auto_config", "http_protocol_options"),
        ({"protocol": "h2", "tls": TLS}, "http2_protocol_options", "http_protocol_options"),
        ({"protocol": "grpc"}, "http2_protocol_options", None),
    ],
)
def test_clusters_of_each_protocol(pool: dict[str, Any], own: str, second: str | None) -> None:
    expected = {"p": (own, "p")} | ({f"p{HTTP1_SUFFIX}": (second, "p")} if second else {})
    assert protocols(made(**pool)) == expected
    assert {pool_of(name) for name in expected} == {"p"}


def test_http1_needs_known_support() -> None:
    configured, second = made(protocol="h2"), f"p{HTTP1_SUFFIX}"
    this: frozenset[str] = frozenset({"p"})

    def by(protocols: ProtocolChoice = AS_CONFIGURED) -> dict[str, str]:
        return {
            route.name: route.route.cluster
            for route in routed(configured, protocols)
            if route.HasField("route")
        }

    ordinary = {"stored": "p", "json": "p", "json-leading": "p", "content-type": "p", "other": "p"}
    assert set(by().values()) == {"p"}
    assert by(ProtocolChoice(fallback=this)) == {
        "websocket": "p",
        "fallback": second,
        "upgrade": "p",
        **ordinary,
    }
    assert by(ProtocolChoice(upgrades=this)) == {
        "websocket": second,
        "fallback": "p",
        "upgrade": second,
        **ordinary,
    }
    assert set(by(ProtocolChoice(this, this, this)).values()) == {second}
    grpc = routed(made(protocol="grpc"), ProtocolChoice(this, this, this))
    assert {route.route.cluster for route in grpc} == {"p"}
