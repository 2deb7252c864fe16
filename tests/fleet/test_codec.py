"""What xds_server tells an ext_proc worker arrives as it was, on the worker's own clock."""

import math

import pytest

from fleet.codec import (
    decode_loads,
    decode_membership,
    decode_traffic,
    encode_loads,
    encode_membership,
    encode_traffic,
)
from fleet.endpoint import Endpoint, Locality, Membership, Pool
from fleet.errors import PeerError
from fleet.load import Load, Signal, fresh, same_values, signal
from fleet.store import FleetView, Traffic

A = Endpoint("10.0.0.1:8000", "chat", ("m",), "vllm", "http://x/metrics", Locality("r", "z", "s"))
B = Endpoint("10.0.0.2:8000", "chat")
MEMBERSHIP = Membership((Pool("chat", (A, B)), Pool("empty")))


def test_membership_survives_without_the_metrics_url() -> None:
    told = decode_membership(encode_membership(MEMBERSHIP).membership)
    assert [pool.name for pool in told.pools] == ["chat", "empty"]
    assert told.endpoints[0].locality == A.locality
    assert told.endpoints[0].models == ("m",)
    assert told.endpoints[0].metrics_url == ""
    assert told.endpoints[1] == B


def test_loads_keep_their_age_and_unknown_stays_unknown() -> None:
    load = Load(queue_depth=Signal(0.0, 90.0, "scrape"), memory_used_ratio=Signal(0.5, 99.5, "scrape"))
    view = FleetView(MEMBERSHIP, {A.address: 7}, {A.address: load}, {B.address: 3})
    told = decode_loads(encode_loads(view, now=100.0).loads, MEMBERSHIP, now=5.0)
    assert told.weights == {A.address: 7}
    assert told.in_flight_elsewhere == {B.address: 3}
    held = told.loads[A.address]
    assert held.queue_depth == Signal(0.0, -5.0, "scrape")
    assert held.memory_used_ratio == Signal(0.5, 4.5, "scrape")
    assert held.latency_p99_seconds is None
    assert told.loads[B.address] == Load()


def test_loads_for_another_membership_are_the_peers_fault() -> None:
    update = encode_loads(FleetView(MEMBERSHIP), now=0.0)
    with pytest.raises(PeerError, match="2 loads for 1 endpoints"):
        decode_loads(update.loads, Membership((Pool("chat", (A,)),)), now=0.0)


def test_a_number_that_is_not_finite_does_not_cross_the_border() -> None:
    update = encode_loads(FleetView(MEMBERSHIP, {}, {A.address: Load()}), now=0.0)
    update.loads.endpoints[0].queue_depth.value = math.nan
    update.loads.endpoints[0].running.value = -1.0
    told = decode_loads(update.loads, MEMBERSHIP, now=0.0)
    assert told.loads[A.address] == Load()


def test_traffic_survives_and_unknown_latency_stays_unknown() -> None:
    seen = [Traffic("a:1", 2, 10, 8, 1.5), Traffic("b:1", 0, 0, 0)]
    assert decode_traffic(encode_traffic(seen).report) == seen
    odd = encode_traffic([Traffic("a:1", 0, 1, 1, math.inf)])
    assert decode_traffic(odd.report)[0].duration_p99_seconds is None


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, -0.1])
def test_what_is_no_number_is_unknown(value: float | None) -> None:
    assert signal(value, 0.0, "x") is None


def test_zero_is_known() -> None:
    assert signal(0, 1.0, "x") == Signal(0.0, 1.0, "x")


def test_old_signals_become_unknown_one_by_one() -> None:
    load = Load(queue_depth=Signal(1, 0.0, "x"), running=Signal(1, 8.0, "x"))
    assert fresh(load, 9.0, 5.0) == Load(running=Signal(1, 8.0, "x"))
    assert fresh(load, 4.0, 5.0) is load


def test_loads_that_say_the_same_differ_in_age_only() -> None:
    """Unknown is not 0, and another source that tells the same number says nothing new."""
    one = Load(queue_depth=Signal(0.0, 1.0, "x"), running=Signal(2.0, 1.0, "x"))
    later = Load(queue_depth=Signal(0.0, 9.0, "x"), running=Signal(2.0, 9.0, "y"))
    assert same_values(one, later)
    assert not same_values(one, Load(running=Signal(2.0, 1.0, "x")))
    assert not same_values(one, Load(queue_depth=Signal(0.0, 1.0, "x"), running=Signal(3.0, 1.0, "x")))
