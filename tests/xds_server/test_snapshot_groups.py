"""Node groups: whose snapshot differs, in what, and who shares."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from fleet.endpoint import Locality, Membership
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE
from fleet.settings import Settings, parse_settings
from fleet.settings.membership import membership
from xds_server.envoy.build import build_snapshot
from xds_server.snapshot.endpoints import assignments, load_assignments
from xds_server.snapshot.groups import group_snapshots
from xds_server.snapshot.snapshot import NodeGroup, Resource, Snapshot, SnapshotStore

A, B, C, D = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.1.1:8000"
EVEN = {A: 1000, B: 1000, C: 1000, D: 500}


@dataclass(frozen=True)
class Node:
    """A client, as the store sees it."""

    locality: Locality
    cluster: str = "fleet"


IN_A, IN_B, FAR = (Node(Locality(*place)) for place in (("eu", "a"), ("eu", "b"), ("us", "a")))


def fleet(topology: object = None, *, placed: bool = True) -> Settings:
    def entry(address: str, *place: str) -> dict[str, object]:
        where = dict(zip(("region", "zone"), place, strict=False))
        return {"address": address, "locality": where} if placed else {"address": address}

    return parse_settings(
        yaml.safe_dump(
            {
                "pools": [
                    {"name": "llm", "endpoints": [entry(A, "eu", "a"), entry(B, "eu", "b"), entry(C)]},
                    {"name": "one", "endpoints": [entry(D, "eu", "a")]},
                ],
                "listeners": [
                    {"name": "l1", "address": "127.0.0.1:10000", "pool": "llm"},
                    {"name": "l2", "address": "127.0.0.1:10001", "pool": "one"},
                ],
                "weights": {"topology": topology or {}},
            }
        )
    )


def put(store: SnapshotStore, settings: Settings, weights: dict[str, int]) -> bool:
    """What a tick does."""
    endpoints = (membership(settings), weights, frozenset[str]())
    snapshot = build_snapshot(settings, *endpoints)
    return store.set(snapshot, group_snapshots(snapshot, settings.weights.topology, *endpoints))


def filled(weights: dict[str, int] | None = None, topology: object = None, **store: Any) -> SnapshotStore:
    made = SnapshotStore(**store)
    put(made, fleet(topology), weights or EVEN)
    return made


def read(store: SnapshotStore, node: Node | None) -> Snapshot:
    snapshot = store.snapshot_for(node)
    assert snapshot is not None
    return snapshot


def weights_of(snapshot: Snapshot, pool: str = "llm") -> dict[str, int]:
    body = snapshot.of_type(TYPE_ENDPOINT)[pool].body.value
    return {
        f"{entry.endpoint.address.socket_address.address}:8000": entry.load_balancing_weight.value
        for group in endpoint_pb2.ClusterLoadAssignment.FromString(body).endpoints
        for entry in group.lb_endpoints
    }


def test_near_endpoints_weigh_more_and_unknown_the_same() -> None:
    store = filled()
    assert weights_of(read(store, IN_A)) == {A: 1000, B: 900, C: 1000}
    assert weights_of(read(store, IN_B)) == {A: 900, B: 1000, C: 1000}
    assert weights_of(read(store, FAR)) == {A: 800, B: 800, C: 1000}
    assert weights_of(read(store, None)) == {A: 1000, B: 1000, C: 1000}


def test_only_what_differs_is_not_shared() -> None:
    store = filled()
    base, group = read(store, None), read(store, IN_B)
    for kind in (TYPE_CLUSTER, TYPE_LISTENER, TYPE_ROUTE):
        assert group.of_type(kind) is base.of_type(kind)
        assert group.version(kind) == base.version(kind)
    assert group.of_type(TYPE_ENDPOINT)["one"] is base.of_type(TYPE_ENDPOINT)["one"]
    assert group.version(TYPE_ENDPOINT) != base.version(TYPE_ENDPOINT)


def test_equal_distances_or_no_locality_get_the_base_snapshot() -> None:
    store = filled({A: 7, B: 8, C: 9, D: 1}, {"same_region": 1.0})
    assert read(store, IN_A) is store.snapshot
    assert read(store, Node(Locality())) is store.snapshot
    assert read(store, FAR) is not store.snapshot


def test_groups_that_stand_equally_far_share_one_snapshot() -> None:
    store = filled()
    assert read(store, IN_A) is read(store, Node(IN_A.locality, "others"))
    assert read(store, FAR) is read(store, Node(Locality("asia", "x", "y")))


def test_fleet_without_localities_has_no_groups() -> None:
    registry = CollectorRegistry()
    store = SnapshotStore(registry=registry)
    put(store, fleet(placed=False), EVEN)
    assert read(store, IN_A) is store.snapshot
    assert registry.get_sample_value("warmroute_xds_node_groups") == 0


def test_group_snapshot_is_made_once_per_set() -> None:
    store = filled()
    first = read(store, IN_B)
    assert read(store, IN_B) is first
    assert put(store, fleet(), {**EVEN, A: 500})
    assert weights_of(read(store, IN_B)) == {A: 450, B: 1000, C: 1000}
    assert not put(store, fleet(), {**EVEN, A: 500}), "equal settings and weights are no change"


def test_other_factors_are_a_change_of_an_equal_base_snapshot() -> None:
    store = filled()
    snapshots: list[Snapshot] = []
    store.subscribe(snapshots.append)
    before = read(store, None)
    assert put(store, fleet({"same_region": 0.85}), EVEN)
    assert snapshots
    assert read(store, None).versions == before.versions
    assert weights_of(read(store, IN_A)) == {A: 1000, B: 850, C: 1000}


def test_two_stores_give_a_group_equal_versions_in_any_order() -> None:
    one, other = filled(), filled()
    versions = [read(one, node).versions for node in (IN_A, IN_B, FAR)]
    assert versions == [read(other, node).versions for node in (FAR, IN_B, IN_A)][::-1]
    assert len({version[TYPE_ENDPOINT] for version in versions}) == 3


def test_groups_are_bounded_and_those_beyond_go_without_factors(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    store = SnapshotStore(2, registry)
    put(store, fleet(), EVEN)
    snapshots = [read(store, IN_A), read(store, IN_B)]
    for _ in range(2):
        assert read(store, FAR) is store.snapshot
    assert [read(store, IN_A), read(store, IN_B)] == snapshots
    assert registry.get_sample_value("warmroute_xds_ungrouped_reads_total") == 2
    assert registry.get_sample_value("warmroute_xds_node_groups") == 2
    assert [entry.levelno for entry in caplog.records] == [logging.WARNING]


@pytest.mark.untraced
def test_unread_group_gives_its_place_up() -> None:
    """But none that is in use does, or its weights would move to and fro."""
    store = filled(max_groups=2)
    read(store, IN_A)
    for weight in (1, 2, 3):
        put(store, fleet(), {**EVEN, A: weight})
        read(store, IN_B)
        expected = weight > 1
        assert (read(store, FAR) is not store.snapshot) is expected
    assert read(store, IN_B) is not store.snapshot
    assert read(store, IN_A) is store.snapshot


def test_before_the_first_snapshot_nobody_has_any() -> None:
    assert SnapshotStore().snapshot_for(IN_A) is None


def _grouped(group: NodeGroup) -> Snapshot:
    return Snapshot.of([Resource.of("x", TYPE_ENDPOINT, group.cluster.encode())])


def test_cluster_name_is_part_of_a_group() -> None:
    store = SnapshotStore()
    store.set(Snapshot.of([]), _grouped)
    one, other = (read(store, Node(IN_A.locality, name)) for name in ("one", "other"))
    assert one.versions != other.versions


PLACE = st.builds(Locality, *[st.sampled_from(["", "a", "bb"])] * 3)
ROW = st.tuples(
    st.sampled_from(["10.0.0.1", "10.20.30.40", "2001:db8::1"]),
    st.sampled_from([1, 80, 8000, 65535]),
    PLACE,
    st.one_of(st.none(), st.sampled_from([1, 127, 128, 1000, 9999, 10_000])),
    st.sampled_from(["", "unhealthy", "draining"]),
)


@pytest.mark.untraced
@given(st.lists(ROW, max_size=12, unique_by=lambda row: row[:2]))
def test_joined_bytes_are_what_protobuf_writes(
    rows: list[tuple[str, int, Locality, int | None, str]],
) -> None:
    """The whole goes through the parser and the writer unchanged, and says what it should."""
    entries: list[dict[str, object]] = []
    weights, marked = {}, {"": set(), "unhealthy": set(), "draining": set()}
    for host, port, place, weight, mark in rows:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        where = {"region": place.region, "zone": place.zone, "sub_zone": place.sub_zone}
        entries.append({"address": address, "locality": where})
        marked[mark].add((host, port, address))
        if weight is not None:
            weights[address] = weight
    fleet_of = _membership(entries)
    marks = [frozenset(address for _, _, address in marked[kind]) for kind in ("unhealthy", "draining")]
    (resource,) = load_assignments(fleet_of, weights, *marks)
    message = endpoint_pb2.ClusterLoadAssignment.FromString(resource.body.value)
    assert message.SerializeToString(deterministic=True) == resource.body.value
    (assignment,) = assignments(fleet_of, weights, *marks)
    sent = [
        (entry.endpoint.address.socket_address, entry.load_balancing_weight.value, entry.health_status)
        for group in message.endpoints
        for entry in group.lb_endpoints
    ]
    assert [weight for _, weight, _ in sent] == assignment.weights.tolist()
    for place_of, weight, status in sent:
        key = (place_of.address, place_of.port_value)
        kinds = {kind for kind, rows in marked.items() if key in {entry[:2] for entry in rows}}
        assert kinds == {{1: "", 2: "unhealthy", 3: "draining"}[status]}
        assert weight == next((w for h, p, _, w, _ in rows if (h, p) == key and w is not None), weight)
    assert all(group.load_balancing_weight.value == 1 for group in message.endpoints)
    assert all(group.HasField("locality") for group in message.endpoints)


def _membership(entries: list[dict[str, object]]) -> Membership:
    settings = parse_settings(
        yaml.safe_dump(
            {
                "pools": [{"name": "llm", "endpoints": entries}],
                "listeners": [{"name": "l1", "address": "127.0.0.1:10000", "pool": "llm"}],
            }
        )
    )
    return membership(settings)
