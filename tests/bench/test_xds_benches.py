"""The figures of the other xDS benches: what counts as met, what chance may do, and small runs of each."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from bench.quiet import Quiet, quiet
from bench.quiet import result_of as quiet_result
from bench.signal_to_ack import result_of as ack_result
from bench.weights_honoured import Cell, Pushed, cells, noise
from bench.weights_honoured import result_of as honoured_result
from bench.xds_churn import targets_of as churn_targets
from bench.xds_churn import xds_churn
from warmroute.demo import processes


def met(targets: Any) -> dict[str, bool]:
    return {entry.name: entry.met for entry in targets}


def test_signal_to_ack_may_take_a_tick_and_fifty_milliseconds() -> None:
    assert met(ack_result([0.01] * 98 + [0.099] * 2, 0.05, 0.05)[1]) == {"p99_seconds": True}
    assert met(ack_result([0.01] * 98 + [0.11] * 2, 0.05, 0.05)[1]) == {"p99_seconds": False}


@pytest.mark.parametrize(
    ("quiet_run", "unmet"),
    [
        (Quiet(60, [0, 0, 0, 0], 90, 0, 7, 30, 30, 0), set()),
        (Quiet(60, [0, 0, 1, 0], 90, 0, 0, 30, 30, 0), {"pushes_with_constant_signals"}),
        (Quiet(60, [0, 0, 0, 0], 90, 1, 0, 30, 30, 0), {"unequal_versions"}),
        (Quiet(60, [0, 0, 0, 0], 90, 0, 0, 30, 30, 2), {"unequal_places_in_sequences"}),
        (Quiet(60, [0, 0, 0, 0], 90, 0, 0, 30, 0, 0), {"pushes_of_changes"}),
    ],
)
def test_quiet_needs_silence_equal_versions_and_some_pushes(quiet_run: Quiet, unmet: set[str]) -> None:
    assert {name for name, good in met(quiet_result(quiet_run)[1]).items() if not good} == unmet


def stock(tasks: int, watches: int, clients: int, resident: int) -> dict[str, int]:
    counts = {"tasks": tasks, "watches": watches, "clients": clients, "connections": 0}
    return {**counts, "resident_bytes": resident}


def test_churn_counts_from_idle_and_memory_from_half_way() -> None:
    half = stock(6, 0, 0, 50_000_000)
    result: dict[str, Any] = {"cycles": 1000, "stock": {"idle": stock(6, 0, 0, 1), "half": half, "end": half}}
    assert all(met(churn_targets(result)).values())
    result["stock"]["end"] = stock(7, 1, 0, 51_000_000)
    assert met(churn_targets(result)) == {
        "tasks_left": False,
        "watches_left": False,
        "clients_left": True,
        "connections_left": True,
        "memory_bytes_per_cycle": False,
    }


def test_every_cell_has_clusters_of_its_own() -> None:
    names = list(itertools.chain.from_iterable(cell.clusters for cell in cells()))
    assert len(names) == len(set(names))
    assert {(cell.policy, cell.churn, cell.rate) for cell in cells()} == set(
        itertools.product(("override_host", "round_robin", "least_request"), ("still", "churn"), (5.0, 50.0))
    )


def test_only_ours_must_keep_to_the_weights_that_were_pushed() -> None:
    pushed = Pushed()
    pushed.add({"a": 80, "b": 20})
    pushed.add({"a": 60, "b": 40})
    assert pushed.shares() == pytest.approx({"a": 0.7, "b": 0.3})
    still = {"a": 0.5, "b": 0.5}
    ours = Cell(
        "override_host", "churn", 5.0, served_by_cluster=[Counter(a=300, b=200), Counter(a=400, b=100)]
    )
    theirs = Cell("round_robin", "churn", 5.0, served_by_cluster=[Counter(a=1000)])
    result, targets = honoured_result([ours, theirs], still, pushed)
    assert met(targets) == {"override_host_churn_5_per_second_furthest_off": True, "failures": True}
    assert result["cells"][ours.name]["furthest_off_by_cluster"] == pytest.approx([0.1, 0.1])
    assert result["cells"][theirs.name]["furthest_off"] == pytest.approx(0.3)
    ours.served_by_cluster = [Counter(a=640, b=360)]
    assert not met(honoured_result([ours], still, pushed)[1])["override_host_churn_5_per_second_furthest_off"]


def test_noise_is_that_of_a_binomial() -> None:
    assert noise(0.5, 400) == pytest.approx(0.049)
    assert noise(0.5, 0) == 1.0


def test_a_small_churn_leaves_no_task_and_no_watch() -> None:
    """Memory of so few cycles says nothing, so only what is counted is asserted."""
    result = processes.run(xds_churn(cycles=40, variant="delta"))
    assert {entry.name for entry in churn_targets(result) if entry.met} >= {
        "tasks_left",
        "watches_left",
        "clients_left",
        "connections_left",
    }


@pytest.mark.slow
def test_a_short_quiet_run_sees_the_pushes_that_changes_make() -> None:
    quiet_run = processes.run(quiet(seconds=1.0, changes=2, seed=1))
    assert quiet_run.pushes_of_changes >= 2
    assert len(quiet_run.pushes) == 4
