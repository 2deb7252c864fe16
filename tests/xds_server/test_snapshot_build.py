"""The snapshot: what is in it, what changes with what, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from fleet.endpoint import Endpoint, Locality, Membership, Pool
from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.envoy_api.config.listener.v3 import listener_pb2
from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.envoy_api.extensions.filters.http.buffer.v3 import buffer_pb2
from fleet.envoy_api.extensions.filters.http.ext_proc.v3 import ext_proc_pb2
from fleet.envoy_api.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from fleet.envoy_api.extensions.load_balancing_policies.override_host.v3 import override_host_pb2
from fleet.errors import SnapshotError
from fleet.names import (
    EXT_PROC_CLUSTER,
    RESOURCE_TYPES,
    TYPE_CLUSTER,
    TYPE_ENDPOINT,
    TYPE_LISTENER,
    TYPE_ROUTE,
)
from fleet.settings import Settings, parse_settings
from fleet.settings.membership import membership
from xds_server.envoy.build import build_snapshot
from xds_server.snapshot.consistency import check
from xds_server.snapshot.snapshot import Snapshot

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "[2001:db8::3]:8000"


def make_settings(**changes: object) -> Settings:
    base = {
        "pools": [
            {
                "name": "llm",
                "endpoints": [
                    {"address": A, "locality": {"region": "r", "zone": "a"}},
                    {"address": B, "locality": {"region": "r", "zone": "b"}},
                    {"address": C, "locality": {"region": "r", "zone": "b"}},
                ],
            },
            {"name": "empty"},
        ],
        "listeners": [{"name": "front", "address": "127.0.0.1:8080", "pool": "llm"}],
    }
    return parse_settings(yaml.safe_dump(base | changes))


def make_snapshot(
    weights: dict[str, int] | None = None,
    unhealthy: frozenset[str] = frozenset(),
    settings: Settings | None = None,
    members: Membership | None = None,
) -> Snapshot:
    settings = settings or make_settings()
    members = membership(settings) if members is None else members
    return build_snapshot(settings, members, weights or {}, unhealthy)


def assignment(snapshot: Snapshot, pool: str = "llm") -> Any:
    return endpoint_pb2.ClusterLoadAssignment.FromString(snapshot.of_type(TYPE_ENDPOINT)[pool].body.value)


def weights_of(snapshot: Snapshot) -> dict[str, int]:
    return {
        f"{entry.endpoint.address.socket_address.address}": entry.load_balancing_weight.value
        for group in assignment(snapshot).endpoints
        for entry in group.lb_endpoints
    }


def test_every_type_is_served() -> None:
    snapshot = make_snapshot()
    assert set(snapshot.resources) == set(RESOURCE_TYPES)
    assert set(snapshot.of_type(TYPE_CLUSTER)) == {"llm", "empty", EXT_PROC_CLUSTER}
    assert set(snapshot.of_type(TYPE_ENDPOINT)) == {"llm", "empty"}
    assert set(snapshot.of_type(TYPE_LISTENER)) == {"front", "grpc/llm", "grpc/empty"}
    assert set(snapshot.of_type(TYPE_ROUTE)) == {"front"}


def test_versions_do_not_depend_on_order() -> None:
    """Replicas agree: neither the order of endpoints nor the identity of settings is content."""
    settings = make_settings()
    members = membership(settings)
    rng = random.Random(1)
    versions = [make_snapshot({A: 7, B: 5}).versions]
    for _ in range(5):
        pools = list(members.pools)
        rng.shuffle(pools)
        mixed = Membership(
            tuple(Pool(pool.name, tuple(rng.sample(pool.endpoints, len(pool.endpoints)))) for pool in pools)
        )
        versions.append(make_snapshot({B: 5, A: 7}, members=mixed).versions)
    assert all(version == versions[0] for version in versions)


def test_weight_changes_one_load_assignment_only() -> None:
    """So Envoys hear of nothing else, and nothing else is built."""
    settings = make_settings()
    before = make_snapshot({A: 1, B: 1, C: 1}, settings=settings)
    after = make_snapshot({A: 2, B: 1, C: 1}, settings=settings)
    for type_url in RESOURCE_TYPES:
        for name, resource in after.of_type(type_url).items():
            same = resource.version == before.of_type(type_url)[name].version
            assert same == ((type_url, name) != (TYPE_ENDPOINT, "llm"))
    for type_url in (TYPE_CLUSTER, TYPE_LISTENER, TYPE_ROUTE):
        for name, resource in after.of_type(type_url).items():
            assert resource is before.of_type(type_url)[name]


def test_changed_settings_are_taken_over() -> None:
    """The cache of what settings give does not outlive them."""
    listener = {"name": "front", "address": "127.0.0.1:8080", "pool": "llm"}
    hidden = make_settings(listeners=[{**listener, "show_decision": False}])
    assert make_snapshot().version(TYPE_ROUTE) != make_snapshot(settings=hidden).version(TYPE_ROUTE)


def test_localities_have_equal_weights() -> None:
    """The ring of gRPC multiplies a locality's weight by its endpoints'."""
    groups = assignment(make_snapshot({A: 10, B: 20, C: 30})).endpoints
    localities = {
        group.locality.zone: (
            group.load_balancing_weight.value,
            [entry.load_balancing_weight.value for entry in group.lb_endpoints],
        )
        for group in groups
    }
    assert localities == {"a": (1, [10]), "b": (1, [20, 30])}


def test_ipv6_goes_out_without_brackets() -> None:
    assert "2001:db8::3" in weights_of(make_snapshot())


def test_unknown_weight_counts_as_the_peers_mean() -> None:
    """Unknown is neutral, and with nothing known all are equal."""
    assert weights_of(make_snapshot({A: 100, B: 301})) == {
        "10.0.0.1": 100,
        "10.0.0.2": 301,
        "2001:db8::3": 200,
    }
    assert set(weights_of(make_snapshot()).values()) == {1}


def test_unhealthy_is_a_status_and_keeps_its_weight() -> None:
    snapshot = make_snapshot({A: 9, B: 9, C: 9}, frozenset([B]))
    status = {
        entry.endpoint.address.socket_address.address: (
            entry.health_status,
            entry.load_balancing_weight.value,
        )
        for group in assignment(snapshot).endpoints
        for entry in group.lb_endpoints
    }
    assert status == {"10.0.0.1": (1, 9), "10.0.0.2": (2, 9), "2001:db8::3": (1, 9)}


@pytest.mark.parametrize("weight", [0, -1, 10_001, 2**32])
def test_weight_outside_the_range_is_refused(weight: int) -> None:
    with pytest.raises(SnapshotError, match="not in"):
        make_snapshot({A: weight})


def test_address_in_two_pools_is_refused() -> None:
    twice = Membership(
        (Pool("llm", (Endpoint(A, "llm"),)), Pool("empty", (Endpoint(A, "empty", locality=Locality("x")),)))
    )
    with pytest.raises(SnapshotError, match="twice"):
        make_snapshot(members=twice)


def test_pool_that_the_settings_do_not_have_is_refused() -> None:
    with pytest.raises(SnapshotError, match="stranger"):
        make_snapshot(members=Membership((Pool("stranger"),)))


def test_pool_without_membership_is_refused() -> None:
    """A cluster that waits for endpoints which never come would hold up every listener."""
    with pytest.raises(SnapshotError, match="empty"):
        make_snapshot(members=Membership((Pool("llm"),)))


@pytest.mark.parametrize("type_url", [TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_ROUTE, TYPE_LISTENER])
def test_check_misses_no_dangling_name(type_url: str) -> None:
    """Without any one type, something refers to what is not there, or is referred to by nothing."""
    whole = make_snapshot()
    torn = Snapshot.of(
        resource for url, named in whole.resources.items() if url != type_url for resource in named.values()
    )
    check(whole)
    with pytest.raises(SnapshotError):
        check(torn)


def _manager(snapshot: Snapshot) -> http_connection_manager_pb2.HttpConnectionManager:
    listener = listener_pb2.Listener.FromString(snapshot.of_type(TYPE_LISTENER)["front"].body.value)
    manager = http_connection_manager_pb2.HttpConnectionManager()
    assert listener.filter_chains[0].filters[0].typed_config.Unpack(manager)
    return manager


def test_host_comes_from_metadata_only() -> None:
    """A header as a source would let clients steer."""
    cluster = cluster_pb2.Cluster.FromString(make_snapshot().of_type(TYPE_CLUSTER)["llm"].body.value)
    override = override_host_pb2.OverrideHost()
    policy = cluster.load_balancing_policy.policies[0]
    assert policy.typed_extension_config.typed_config.Unpack(override)
    assert [(entry.header, entry.HasField("metadata")) for entry in override.override_host_sources] == [
        ("", True),
        ("", True),
    ]


def test_ext_proc_may_fail_and_has_a_short_timeout() -> None:
    manager = _manager(make_snapshot(settings=make_settings(ext_proc={"message_timeout_seconds": 0.125})))
    processor = ext_proc_pb2.ExternalProcessor()
    assert manager.http_filters[1].typed_config.Unpack(processor)
    assert processor.failure_mode_allow
    assert processor.message_timeout.ToMilliseconds() == 125


def test_buffer_holds_more_than_its_route_lets_through() -> None:
    """Otherwise it would answer 413 for what Envoy alone passes on."""
    listener = {"name": "front", "address": "127.0.0.1:8080", "pool": "llm", "large_body_bytes": 5_000_000}
    snapshot = make_snapshot(settings=make_settings(listeners=[listener]))
    buffer = buffer_pb2.Buffer()
    assert _manager(snapshot).http_filters[2].typed_config.Unpack(buffer)
    config = route_pb2.RouteConfiguration.FromString(snapshot.of_type(TYPE_ROUTE)["front"].body.value)
    (ends,) = {
        matcher.range_match.end
        for route in config.virtual_hosts[0].routes
        for matcher in route.match.headers
        if matcher.HasField("range_match")
    }
    assert buffer.max_request_bytes.value > ends - 1 >= 0
    built = listener_pb2.Listener.FromString(snapshot.of_type(TYPE_LISTENER)["front"].body.value)
    assert built.per_connection_buffer_limit_bytes.value >= ends


def test_no_retries_where_the_operator_wants_none() -> None:
    pools = [{"name": "llm", "retries": 0}]
    snapshot = make_snapshot(settings=make_settings(pools=pools))
    config = route_pb2.RouteConfiguration.FromString(snapshot.of_type(TYPE_ROUTE)["front"].body.value)
    assert not any(route.route.HasField("retry_policy") for route in config.virtual_hosts[0].routes)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("unix:/run/x.sock", cluster_pb2.Cluster.STATIC),
        ("127.0.0.1:1234", cluster_pb2.Cluster.STATIC),
        ("[::1]:1234", cluster_pb2.Cluster.STATIC),
        ("ext-proc:1234", cluster_pb2.Cluster.STRICT_DNS),
    ],
)
def test_ext_proc_address_is_a_socket_ip_or_name(address: str, kind: int) -> None:
    settings = make_settings(ext_proc={"address": address}, allow_plaintext=True)
    snapshot = make_snapshot(settings=settings)
    cluster = cluster_pb2.Cluster.FromString(snapshot.of_type(TYPE_CLUSTER)[EXT_PROC_CLUSTER].body.value)
    assert cluster.type == kind
