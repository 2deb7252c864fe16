"""The scale bench measures what it says: each client hears of each push, of both servers, in equal bytes."""

from __future__ import annotations

import pytest

from bench.xds_fleet import Fleet, names_by_type
from bench.xds_scale import KINDS, Measured, paired, result_of, xds_scale
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE
from warmroute.demo import processes


def test_each_change_moves_one_weight_and_only_endpoints() -> None:
    fleet = Fleet(3)
    versions = [fleet.snapshot(number).versions for number in range(5)]
    assert len({by_type[TYPE_ENDPOINT] for by_type in versions}) == 5
    for type_url in (TYPE_CLUSTER, TYPE_LISTENER, TYPE_ROUTE):
        assert len({by_type[type_url] for by_type in versions}) == 1


def test_a_client_names_endpoints_and_routes_only() -> None:
    names = names_by_type(Fleet(2).snapshot(0))
    assert names == {TYPE_CLUSTER: [], TYPE_ENDPOINT: ["engines"], TYPE_LISTENER: [], TYPE_ROUTE: ["front"]}
    assert next(iter(names)) == TYPE_CLUSTER


def test_receipts_belong_to_the_last_push_before_them() -> None:
    measured = Measured()
    pushes = [{"set_at": at, "cpu_seconds": 1.0, "build_cpu_seconds": 0.5} for at in (10.0, 20.0)]
    measured.take(pushes, [[10.1, 5], [10.4, 5], [20.2, 5], [20.3, 5]])
    assert measured.receipt_seconds == pytest.approx([0.1, 0.4, 0.2, 0.3])
    assert measured.last_receipt_seconds == pytest.approx([0.4, 0.3])


def test_turns_are_compared_with_their_neighbours() -> None:
    """A host that slows down half-way slows both; the ratio of the turns stays."""
    assert paired([2.0] * 4 + [6.0] * 4, [1.0] * 4 + [3.0] * 4) == pytest.approx([2.0, 2.0])


def test_the_targets_are_ratios_of_neighbours() -> None:
    costs = {"ours": 1.4, "grpcio": 2.8, "bare": 1.0}
    measured = {kind: Measured([cost], [0.1], [0.1], [0.1], {7}) for kind, cost in costs.items()}
    result, (over_bare, over_grpcio) = result_of(measured, 2)
    assert result["cpu_ratio_with_build"] == pytest.approx(1.5)
    assert over_bare.value == pytest.approx(1.4)
    assert not over_bare.met
    assert over_grpcio.value == pytest.approx(0.5)
    assert over_grpcio.met


@pytest.mark.parametrize("variant", ["sotw", "delta"])
def test_a_small_run_reaches_every_client_with_equal_bytes(variant: str) -> None:
    measured = processes.run(xds_scale(endpoints=20, clients=3, turns=1, variant=variant))
    for kind in KINDS:
        figures = measured[kind]
        assert len(figures.cpu_seconds) == 4
        assert len(figures.receipt_seconds) == 12
        assert min(figures.receipt_seconds) > 0
    sizes = [max(figures.response_bytes) for figures in measured.values()]
    assert max(sizes) - min(sizes) < 10
