"""Which endpoints are served: a pure state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.endpoint import Endpoint, Pool
from fleet.settings import JoiningSettings
from xds_server.endpoints.gate import BLINK_SECONDS, SILENT_ANSWERS, Gate, ProbeResult, State

if TYPE_CHECKING:
    from collections.abc import Iterable

JOINING = JoiningSettings(slow_start_seconds=10, slow_start_from=0.2, drain_seconds=5)
A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


class Driven:
    """A gate with one pool, and time."""

    def __init__(self, joining: JoiningSettings = JOINING) -> None:
        self.gate = Gate()
        self.joining = joining
        self.now = 100.0

    def find(self, *addresses: str, presumed: Iterable[str] = (), trusted: Iterable[str] = ()) -> None:
        pool = Pool("p", tuple(Endpoint(address, "p") for address in addresses))
        self.gate.update((pool,), {"p": self.joining}, self.now, presumed=set(presumed), trusted=set(trusted))

    def result(self, address: str, result: ProbeResult = ProbeResult.READY) -> bool:
        return self.gate.record(address, result, self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.gate.advance(self.now)

    @property
    def served(self) -> set[str]:
        """Those who may get new requests."""
        return {e.address for pool in self.gate.serving() for e in pool.endpoints} - self.gate.leaving()

    @property
    def listed(self) -> list[str]:
        return [e.address for pool in self.gate.serving() for e in pool.endpoints]

    @property
    def ramp(self) -> dict[str, float]:
        return self.gate.ramp(self.now)


@pytest.fixture
def driven() -> Driven:
    """A is admitted and past its slow start; B is new."""
    entry = Driven()
    entry.find(A, trusted=[A])
    entry.find(A, B)
    return entry


def test_new_endpoint_waits_for_its_probe_then_ramps(driven: Driven) -> None:
    assert driven.served == {A}
    assert not driven.result(B, ProbeResult.NOT_READY)
    assert not driven.result(B, ProbeResult.UNKNOWN)
    assert driven.served == {A}
    assert driven.result(B)
    assert driven.served == {A, B}
    assert driven.ramp == {B: pytest.approx(0.2)}
    driven.pass_time(5)
    assert driven.ramp == {B: pytest.approx(0.6)}
    driven.pass_time(5)
    assert driven.ramp == {}


def test_once_let_in_a_probe_takes_nobody_out(driven: Driven) -> None:
    driven.result(B)
    assert not driven.result(B, ProbeResult.NOT_READY)
    assert driven.served == {A, B}
    assert driven.gate.probing() == []


def test_one_that_leaves_is_drained_and_then_gone(driven: Driven) -> None:
    driven.result(B)
    driven.find(B)
    assert driven.served == {B}
    assert set(driven.listed) == {A, B}
    assert driven.gate.leaving() == {A}
    driven.pass_time(4.9)
    assert driven.gate.leaving() == {A}
    driven.pass_time(0.1)
    assert driven.listed == [B]


def test_one_that_was_never_served_is_gone_at_once(driven: Driven) -> None:
    driven.find(A)
    assert driven.listed == [A]
    assert driven.gate.counts()[State.LEAVING] == 0


def test_endpoint_back_while_draining_keeps_its_state(driven: Driven) -> None:
    driven.result(B)
    driven.pass_time(20)
    driven.find(A)
    driven.pass_time(3)
    driven.find(A, B)
    assert driven.served == {A, B}
    assert driven.ramp == {}


def test_slow_start_survives_a_short_absence(driven: Driven) -> None:
    driven.result(B)
    driven.find(A)
    driven.pass_time(2.5)
    driven.find(A, B)
    assert driven.ramp == {B: pytest.approx(0.4)}


def test_long_absence_makes_an_endpoint_new() -> None:
    driven = Driven(JOINING.model_copy(update={"drain_seconds": 3600.0}))
    driven.find(A, B, trusted=[A, B])
    driven.find(A)
    driven.pass_time(BLINK_SECONDS + 1)
    driven.find(A, B)
    assert driven.served == {A}
    driven.result(B)
    assert driven.ramp == {B: pytest.approx(0.2)}


def test_all_are_served_while_none_is_admitted() -> None:
    driven = Driven()
    driven.find(A, B)
    driven.result(A, ProbeResult.NOT_READY)
    driven.result(B, ProbeResult.NOT_READY)
    assert driven.served == {A, B}
    driven.result(B)
    assert driven.served == {B}


def test_all_are_served_while_admitted_ones_are_unfit(driven: Driven) -> None:
    """A is let in and fails; B's model may answer although its probe has not yet."""
    assert driven.gate.judge(frozenset({A}))
    assert driven.served == {A, B}
    assert driven.gate.refused() == frozenset(), "nothing speaks against B"
    driven.result(B, ProbeResult.NOT_READY)
    assert driven.gate.refused() == {B}
    driven.result(B, ProbeResult.UNKNOWN)
    assert driven.gate.refused() == frozenset()
    assert driven.gate.judge(frozenset())
    assert driven.served == {A}
    driven.result(B)
    assert not driven.gate.judge(frozenset({A})), "nobody waits"
    assert driven.served == {A, B}


def test_unadmitted_but_served_endpoints_drain() -> None:
    driven = Driven()
    driven.find(A, B)
    driven.find(B)
    assert driven.gate.leaving() == {A}
    driven.find(A, B)
    assert driven.gate.leaving() == frozenset()
    assert {endpoint.address for endpoint in driven.gate.probing()} == {A, B}


def test_empty_pool_drains_completely() -> None:
    driven = Driven()
    driven.find(A, trusted=[A])
    driven.find()
    assert (driven.served, driven.listed) == (set(), [A])
    driven.pass_time(5)
    assert driven.listed == []


def test_first_sync_is_served_before_its_probes() -> None:
    driven = Driven()
    driven.find(A, B, C, presumed=[A, B, C])
    assert driven.served == {A, B, C}
    assert driven.gate.untried()
    driven.result(A)
    driven.result(B, ProbeResult.UNKNOWN)
    driven.result(C, ProbeResult.NOT_READY)
    assert not driven.gate.untried()
    assert driven.served == {A, B}, "no answer in time is no word against an engine under load"
    assert driven.ramp == {}
    driven.result(C)
    assert driven.ramp == {C: pytest.approx(0.2)}, "what came up after us starts slowly"


def test_presumed_endpoint_without_connection_is_kept_out() -> None:
    """Not before a peer is well: until then the network may be the cause."""
    driven = Driven()
    driven.find(A, B, presumed=[A, B])
    for address in (A, B) * 3:
        driven.result(address, ProbeResult.NO_CONNECTION)
    assert not driven.gate.untried()
    assert driven.served == {A, B}
    driven.result(A)
    driven.result(B, ProbeResult.NO_CONNECTION)
    assert driven.served == {A, B}, "this probe may have begun before A was well"
    driven.result(B, ProbeResult.NO_CONNECTION)
    assert driven.served == {A}
    driven.result(B, ProbeResult.UNKNOWN)
    assert driven.served == {A}
    driven.result(B)
    assert driven.ramp == {B: pytest.approx(0.2)}


def test_presumed_endpoints_of_a_late_network_do_not_ramp() -> None:
    driven = Driven()
    driven.find(A, B, presumed=[A, B])
    for address in (A, B):
        driven.result(address, ProbeResult.NO_CONNECTION)
    driven.result(A)
    driven.result(B, ProbeResult.UNKNOWN)
    assert (driven.served, driven.ramp) == ({A, B}, {})


def test_silent_engine_is_admitted_after_some_answers(driven: Driven) -> None:
    for _ in range(SILENT_ANSWERS - 1):
        driven.result(B, ProbeResult.SILENT)
    driven.result(B, ProbeResult.NOT_READY)
    for _ in range(SILENT_ANSWERS - 1):
        driven.result(B, ProbeResult.SILENT)
    assert driven.served == {A}
    driven.result(B, ProbeResult.SILENT)
    assert driven.served == {A, B}


def test_endpoint_without_probe_ramps_at_once() -> None:
    driven = Driven(JOINING.model_copy(update={"probe": "none"}))
    driven.find(A, presumed=[A])
    driven.find(A, B)
    assert driven.served == {A, B}
    assert driven.ramp == {B: pytest.approx(0.2)}
    assert driven.gate.probing() == []


def test_switching_probes_off_admits_the_waiting(driven: Driven) -> None:
    driven.joining = JOINING.model_copy(update={"probe": "none"})
    driven.find(A, B)
    assert driven.served == {A, B}


def test_without_slow_start_nobody_is_held_down() -> None:
    driven = Driven(JOINING.model_copy(update={"slow_start_seconds": 0.0}))
    driven.find(A)
    driven.result(A)
    assert driven.ramp == {}


def test_one_that_moves_to_another_pool_stands_in_one_only() -> None:
    gate, joining = Gate(), {"p": JOINING, "q": JOINING}
    gate.update((Pool("p", (Endpoint(A, "p"),)), Pool("q")), joining, 0.0, trusted={A})
    gate.update((Pool("p"), Pool("q", (Endpoint(A, "q"),))), joining, 1.0)
    assert [[e.address for e in pool.endpoints] for pool in gate.serving()] == [[], [A]]


def test_removed_pool_takes_its_endpoints_along() -> None:
    gate = Gate()
    gate.update((Pool("p", (Endpoint(A, "p"),)),), {"p": JOINING}, 0.0, trusted={A})
    gate.update((Pool("q"),), {"q": JOINING}, 1.0)
    assert gate.serving() == (Pool("q"),)
    assert gate.counts()[State.LEAVING] == 0


def test_changed_fields_keep_the_state(driven: Driven) -> None:
    driven.result(B)
    changed = Endpoint(B, "p", models=("other",))
    driven.gate.update((Pool("p", (Endpoint(A, "p"), changed)),), {"p": JOINING}, driven.now)
    assert changed in driven.gate.serving()[0].endpoints


ADDRESSES = [f"10.0.0.{i}:80" for i in range(4)]
FOUND = st.lists(st.sampled_from(ADDRESSES), unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("find"), FOUND, FOUND),
        st.tuples(st.just("result"), st.sampled_from(ADDRESSES), st.sampled_from(ProbeResult)),
        st.tuples(st.just("wait"), st.floats(0, 50), st.none()),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from(["models", "none"]))
def test_pool_with_endpoints_always_serves_some(steps: list[tuple[str, object, object]], probe: str) -> None:
    """No address twice, nobody let in is taken out by a probe, every factor is above 0 and below 1."""
    driven = Driven(JOINING.model_copy(update={"probe": probe}))
    driven.find()
    endpoints: list[str] = []
    admitted: set[str] = set()
    for kind, first, second in steps:
        if kind == "find":
            endpoints = list(first)  # type: ignore[call-overload]
            driven.find(*endpoints, presumed=second)  # type: ignore[arg-type]
            admitted &= set(endpoints)
        elif kind == "result":
            driven.result(first, second)  # type: ignore[arg-type]
            if first in endpoints and second is ProbeResult.READY:
                admitted.add(first)  # type: ignore[arg-type]
        else:
            driven.pass_time(first)  # type: ignore[arg-type]
        assert bool(driven.served) == bool(endpoints)
        assert driven.served <= set(endpoints)
        assert admitted <= driven.served
        assert len(driven.listed) == len(set(driven.listed))
        assert set(driven.listed) == driven.served | driven.gate.leaving()
        assert all(0 < factor < 1 for factor in driven.ramp.values())


@given(FOUND, st.randoms())
def test_order_of_endpoints_has_no_effect(endpoints: list[str], random: object) -> None:
    shuffled = list(endpoints)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = Driven(), Driven()
    for driven, order in ((first, endpoints), (second, shuffled)):
        driven.find(*order)
        for address in sorted(order)[:2]:
            driven.result(address)
    assert first.served == second.served
    assert first.ramp == second.ramp
