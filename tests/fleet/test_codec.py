"""What xds_server tells an ext_proc worker arrives as it was, on the worker's own clock."""

import math
import struct

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from fleet.codec import (
    decode_in_flight,
    decode_loads,
    decode_membership,
    decode_traffic,
    encode_in_flight,
    encode_loads,
    encode_membership,
    encode_traffic,
)
from fleet.endpoint import Endpoint, Locality, Membership, Pool
from fleet.errors import PeerError
from fleet.signals import PICK_SIGNALS
from fleet.store import FleetView, Traffic
from fleet.wire import control_pb2
from testing.signals import Load, Signal, load_of, view_with

A = Endpoint("10.0.0.1:8000", "chat", ("m",), "vllm", "http://x/metrics", Locality("r", "z", "s"))
B = Endpoint("10.0.0.2:8000", "chat")
MEMBERSHIP = Membership((Pool("chat", (A, B)), Pool("empty")))
QUEUE = Load(queue_depth=Signal(1.0, 0.0, "x"))


def test_membership_survives_without_the_metrics_url() -> None:
    told = decode_membership(encode_membership(MEMBERSHIP).membership)
    assert [pool.name for pool in told.pools] == ["chat", "empty"]
    assert told.endpoints[0].locality == A.locality
    assert told.endpoints[0].models == ("m",)
    assert told.endpoints[0].metrics_url == ""
    assert told.endpoints[1] == B


def test_loads_keep_their_age_and_unknown_stays_unknown() -> None:
    load = Load(queue_depth=Signal(0.0, 90.0, "scrape"), memory_used_ratio=Signal(0.5, 99.5, "scrape"))
    view = view_with(
        MEMBERSHIP,
        {A.address: 7},
        {A.address: load},
        sampling_ratio_floor=0.25,
        overridden=frozenset({B.address}),
    )
    told = decode_loads(encode_loads(view, now=100.0).loads, MEMBERSHIP, now=5.0)
    assert told.weights == {A.address: 7}
    assert told.sampling_ratio_floor == 0.25
    assert told.overridden == {B.address}
    held = load_of(told.signals, A.address)
    assert held.queue_depth is not None
    assert held.queue_depth[:2] == (0.0, -5.0)
    assert held.memory_used_ratio is not None
    assert held.memory_used_ratio[:2] == (0.5, 4.5)
    assert held.latency_p99_seconds is None
    assert load_of(told.signals, B.address) == Load()
    assert told.signals.addresses == (A.address, B.address)
    assert held.queue_depth.source == "control"


def test_every_signal_that_picks_look_at_arrives() -> None:
    load = Load(**{name: Signal(float(n), 10.0, "x") for n, name in enumerate(PICK_SIGNALS)})
    view = view_with(MEMBERSHIP, {}, {B.address: load})
    told = load_of(decode_loads(encode_loads(view, 11.0).loads, MEMBERSHIP, 11.0).signals, B.address)
    assert {name: getattr(told, name)[:2] for name in PICK_SIGNALS} == {
        name: (float(n), 10.0) for n, name in enumerate(PICK_SIGNALS)
    }


def test_a_signal_that_nobody_tells_has_no_column() -> None:
    view = view_with(MEMBERSHIP, {}, {A.address: Load(queue_depth=Signal(1.0, 0.0, "x"))})
    assert [column.name for column in encode_loads(view, 0.0).loads.signals] == ["queue_depth"]


def test_what_comes_as_columns_goes_on_as_columns() -> None:
    """A view that was told, told on: nothing is lost on the way."""
    view = view_with(MEMBERSHIP, {}, {A.address: Load(queue_depth=Signal(3.0, 8.0, "x"))})
    once = decode_loads(encode_loads(view, 10.0).loads, MEMBERSHIP, 20.0)
    twice = decode_loads(encode_loads(once, 21.0).loads, MEMBERSHIP, 30.0)
    held = load_of(twice.signals, A.address).queue_depth
    assert held is not None
    assert held[:2] == (3.0, 27.0)


def test_requests_in_flight_elsewhere_arrive_by_address() -> None:
    update = encode_in_flight({B.address: 3, "10.9.9.9:1": 5}, MEMBERSHIP)
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


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_a_number_that_is_none_does_not_cross_the_border(value: float) -> None:
    view = view_with(MEMBERSHIP, {}, dict.fromkeys((A.address, B.address), QUEUE))
    update = encode_loads(view, 0.0)
    update.loads.signals[0].values = struct.pack("<2d", value, 2.0)
    told = decode_loads(update.loads, MEMBERSHIP, now=0.0)
    assert load_of(told.signals, A.address) == Load()
    assert load_of(told.signals, B.address).queue_depth is not None


@pytest.mark.parametrize(("age", "known"), [(math.nan, False), (math.inf, False), (-5.0, True)])
def test_an_age_that_is_none_makes_the_number_unknown_and_none_lies_ahead(age: float, known: bool) -> None:
    update = encode_loads(view_with(MEMBERSHIP, {}, {A.address: QUEUE}), 0.0)
    update.loads.signals[0].ages_seconds = struct.pack("<2d", age, 0.0)
    held = load_of(decode_loads(update.loads, MEMBERSHIP, now=7.0).signals, A.address).queue_depth
    assert (held is not None and held.observed_at == 7.0) is known


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
def test_whatever_bytes_a_peer_sends_nothing_but_its_own_fault_comes_of_it(sent: bytes) -> None:
    update = control_pb2.FleetUpdate()
    try:
        update.ParseFromString(sent)
        decode_loads(update.loads, MEMBERSHIP, 0.0)
        decode_in_flight(update.in_flight, MEMBERSHIP)
    except (DecodeError, PeerError):
        return


def test_traffic_survives_and_unknown_latency_stays_unknown() -> None:
    seen = [Traffic("a:1", 2, 10, 8, 1.5, 0.25), Traffic("b:1", 0, 0, 0)]
    pools = Membership((Pool("p", (Endpoint("a:1", pool="p"), Endpoint("b:1", pool="p"))),))
    assert decode_traffic(encode_traffic(seen).report, pools) == seen
    odd = encode_traffic([Traffic("a:1", 0, 1, 1, math.inf, math.nan)])
    assert decode_traffic(odd.report, pools) == [Traffic("a:1", 0, 1, 1)]


def test_overridden_endpoints_that_are_not_there_are_the_peers_fault() -> None:
    update = encode_loads(FleetView(MEMBERSHIP), 0.0)
    update.loads.overridden.append(2)
    with pytest.raises(PeerError):
        decode_loads(update.loads, MEMBERSHIP, 0.0)
