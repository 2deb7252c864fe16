"""What xds_server tells an ext_proc worker arrives as it was, on the worker's own clock."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from fleet.codec import (
    decode_in_flight,
    decode_loads,
    decode_membership,
    decode_prefill,
    decode_traffic,
    encode_in_flight,
    encode_loads,
    encode_membership,
    encode_traffic,
)
from fleet.endpoint import Endpoint, Locality, Membership, Pool
from fleet.errors import PeerError
from fleet.ranks import RANK_SIGNALS, PoolRanks
from fleet.signals import PICK_SIGNALS
from fleet.store import FleetView, Traffic
from fleet.wire import control_pb2
from testing.signals import Load, Signal, load_of, view_with

A = Endpoint("10.0.0.1:8000", "chat", ("m",), "vllm", "http://x/metrics", Locality("r", "z", "s"))
B = Endpoint("10.0.0.2:8000", "chat")
MEMBERSHIP = Membership((Pool("chat", (A, B)), Pool("empty")))
QUEUE = Load(queue_depth=Signal(1.0, 0.0, "x"))


def test_membership_survives_without_the_metrics_url() -> None:
    decoded = decode_membership(encode_membership(MEMBERSHIP).membership)
    assert [pool.name for pool in decoded.pools] == ["chat", "empty"]
    assert decoded.endpoints[0].locality == A.locality
    assert decoded.endpoints[0].models == ("m",)
    assert decoded.endpoints[0].metrics_url == ""
    assert decoded.endpoints[1] == B


def test_loads_keep_their_age_and_unknown_stays_unknown() -> None:
    load = Load(queue_depth=Signal(0.0, 90.0, "scrape"), memory_used_ratio=Signal(0.5, 99.5, "scrape"))
    view = view_with(
        MEMBERSHIP,
        {A.address: 7},
        {A.address: load},
        sampling_ratio_floor=0.25,
        overridden=frozenset({B.address}),
    )
    decoded = decode_loads(encode_loads(view, now=100.0).loads, MEMBERSHIP, now=5.0)
    assert decoded.weights == {A.address: 7}
    assert decoded.sampling_ratio_floor == 0.25
    assert decoded.overridden == {B.address}
    load = load_of(decoded.signals, A.address)
    assert load.queue_depth is not None
    assert load.queue_depth[:2] == (0.0, -5.0)
    assert load.memory_used_ratio is not None
    assert load.memory_used_ratio[:2] == (0.5, 4.5)
    assert load.latency_p99_seconds is None
    assert load_of(decoded.signals, B.address) == Load()
    assert decoded.signals.addresses == (A.address, B.address)
    assert load.queue_depth.source == "control"


def test_every_signal_that_picks_look_at_arrives() -> None:
    load = Load(**{name: Signal(float(n), 10.0, "x") for n, name in enumerate(PICK_SIGNALS)})
    view = view_with(MEMBERSHIP, {}, {B.address: load})
    decoded = load_of(decode_loads(encode_loads(view, 11.0).loads, MEMBERSHIP, 11.0).signals, B.address)
    assert {name: getattr(decoded, name)[:2] for name in PICK_SIGNALS} == {
        name: (float(n), 10.0) for n, name in enumerate(PICK_SIGNALS)
    }


def test_a_signal_that_nobody_tells_has_no_column() -> None:
    view = view_with(MEMBERSHIP, {}, {A.address: Load(queue_depth=Signal(1.0, 0.0, "x"))})
    assert [column.name for column in encode_loads(view, 0.0).loads.signals] == ["queue_depth"]


def test_columns_are_forwarded_as_columns() -> None:
    """A view that is encoded again loses nothing."""
    view = view_with(MEMBERSHIP, {}, {A.address: Load(queue_depth=Signal(3.0, 8.0, "x"))})
    once = decode_loads(encode_loads(view, 10.0).loads, MEMBERSHIP, 20.0)
    twice = decode_loads(encode_loads(once, 21.0).loads, MEMBERSHIP, 30.0)
    load = load_of(twice.signals, A.address).queue_depth
    assert load is not None
    assert load[:2] == (3.0, 27.0)


def test_requests_in_flight_elsewhere_arrive_by_address() -> None:
    update = encode_in_flight({B.address: 3, "10.9.9.9:1": 5}, {}, MEMBERSHIP)
    assert decode_in_flight(update.in_flight, MEMBERSHIP) == {B.address: 3}
    with pytest.raises(PeerError, match="2 counts for 0 endpoints"):
        decode_in_flight(update.in_flight, Membership())


def test_loads_for_another_membership_are_the_peers_fault() -> None:
    update = encode_loads(FleetView(MEMBERSHIP), now=0.0)
    with pytest.raises(PeerError, match="2 loads for 1 endpoints"):
        decode_loads(update.loads, Membership((Pool("chat", (A,)),)), now=0.0)


@pytest.mark.parametrize("cut", ["values", "ages_seconds"])
@pytest.mark.parametrize("sent", [b"", b"x", b"x" * 15, b"x" * 24])
def test_a_column_of_another_length_is_the_peers_fault(cut: str, sent: bytes) -> None:
    view = view_with(MEMBERSHIP, {}, {A.address: Load(queue_depth=Signal(1.0, 0.0, "x"))})
    update = encode_loads(view, 0.0)
    setattr(update.loads.signals[0], cut, sent)
    with pytest.raises(PeerError, match="bytes for 2 endpoints"):
        decode_loads(update.loads, MEMBERSHIP, 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e308])
def test_a_number_that_is_none_does_not_cross_the_border(value: float) -> None:
    view = view_with(MEMBERSHIP, {}, dict.fromkeys((A.address, B.address), QUEUE))
    update = encode_loads(view, 0.0)
    update.loads.signals[0].values = struct.pack("<2d", value, 2.0)
    decoded = decode_loads(update.loads, MEMBERSHIP, now=0.0)
    assert load_of(decoded.signals, A.address) == Load()
    assert load_of(decoded.signals, B.address).queue_depth is not None


@pytest.mark.parametrize(("age", "valid"), [(math.nan, False), (math.inf, False), (-5.0, True)])
def test_invalid_age_makes_number_unknown(age: float, valid: bool) -> None:
    update = encode_loads(view_with(MEMBERSHIP, {}, {A.address: QUEUE}), 0.0)
    update.loads.signals[0].ages_seconds = struct.pack("<2d", age, 0.0)
    load = load_of(decode_loads(update.loads, MEMBERSHIP, now=7.0).signals, A.address).queue_depth
    assert (load is not None and load.observed_at == 7.0) is valid


def test_signals_of_a_newer_server_are_passed_over() -> None:
    update = encode_loads(view_with(MEMBERSHIP, {}, {A.address: QUEUE}), 0.0)
    update.loads.signals.add(name="flux_ratio", values=b"?", ages_seconds=b"?")
    assert load_of(decode_loads(update.loads, MEMBERSHIP, 0.0).signals, A.address).queue_depth is not None


@pytest.mark.parametrize(("sent", "kept"), [(math.nan, 0.0), (-1.0, 0.0), (7.0, 1.0), (0.5, 0.5)])
def test_the_floor_of_sampling_is_a_share(sent: float, kept: float) -> None:
    update = encode_loads(FleetView(MEMBERSHIP), 0.0)
    update.loads.sampling_ratio_floor = sent
    assert decode_loads(update.loads, MEMBERSHIP, 0.0).sampling_ratio_floor == kept


@given(st.binary(max_size=300))
def test_any_bytes_raise_only_peer_errors(sent: bytes) -> None:
    update = control_pb2.FleetUpdate()
    try:
        update.ParseFromString(sent)
        decode_loads(update.loads, MEMBERSHIP, 0.0)
        decode_in_flight(update.in_flight, MEMBERSHIP)
    except (DecodeError, PeerError):
        return


def test_traffic_survives_and_unknown_latency_stays_unknown() -> None:
    traffic = [Traffic("a:1", 2, 10, 8, 1.5, 0.25), Traffic("b:1", 0, 0, 0)]
    pools = Membership((Pool("p", (Endpoint("a:1", pool="p"), Endpoint("b:1", pool="p"))),))
    assert decode_traffic(encode_traffic(traffic).report, pools) == traffic
    odd = encode_traffic([Traffic("a:1", 0, 1, 1, math.inf, math.nan)])
    assert decode_traffic(odd.report, pools) == [Traffic("a:1", 0, 1, 1)]


def test_overridden_endpoint_must_exist() -> None:
    update = encode_loads(FleetView(MEMBERSHIP), 0.0)
    update.loads.overridden.append(2)
    with pytest.raises(PeerError):
        decode_loads(update.loads, MEMBERSHIP, 0.0)


def test_prefill_elsewhere_arrives_where_it_is_sent() -> None:
    sent = encode_in_flight({A.address: 1}, {B.address: 2.5}, MEMBERSHIP).in_flight
    assert decode_prefill(sent, MEMBERSHIP) == {A.address: 0.0, B.address: 2.5}
    assert not decode_prefill(encode_in_flight({A.address: 1}, {}, MEMBERSHIP).in_flight, MEMBERSHIP)
    sent.prefill_seconds_total[0] = math.nan
    assert decode_prefill(sent, MEMBERSHIP) == {B.address: 2.5}
    with pytest.raises(PeerError, match="2 sums of prefill for 0 endpoints"):
        decode_prefill(sent, Membership())


def test_ranks_of_pools_arrive_as_they_were() -> None:
    values = np.arange(len(RANK_SIGNALS) * 2 * 3, dtype=np.float64).reshape(len(RANK_SIGNALS), 2, 3)
    values[0, 0, 0] = np.nan
    view = view_with(MEMBERSHIP, {}, {}, ranks={"chat": PoolRanks(named=True, values=values)})
    decoded = decode_loads(encode_loads(view, 0.0).loads, MEMBERSHIP, 0.0).ranks
    assert (decoded.keys(), decoded["chat"].named, decoded["chat"].count) == ({"chat"}, True, 3)
    assert np.array_equal(decoded["chat"].values, values, equal_nan=True)


@pytest.mark.parametrize(
    "wrong", [{"pool": "other"}, {"count": 1}, {"count": 257}, {"count": 4}], ids=lambda wrong: str(wrong)
)
def test_ranks_that_fit_no_pool_are_refused(wrong: dict[str, Any]) -> None:
    values = np.zeros((len(RANK_SIGNALS), 2, 3))
    view = view_with(MEMBERSHIP, {}, {}, ranks={"chat": PoolRanks(named=True, values=values)})
    update = encode_loads(view, 0.0)
    update.loads.ranks[0].MergeFrom(control_pb2.PoolRanks(**wrong))
    with pytest.raises(PeerError):
        decode_loads(update.loads, MEMBERSHIP, 0.0)
