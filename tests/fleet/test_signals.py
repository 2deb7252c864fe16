"""The table of signals: the border of its numbers, age, order, and that nobody writes to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.columns import fill_unknown, lower_median
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.signals import (
    PICK_SIGNALS,
    SHARES,
    SIGNALS,
    SignalTable,
    Source,
    checked,
    rows_of,
    valid_values,
)
from fleet.store import FleetView
from testing.signals import Load, Signal, load_of, loads_of, table_of

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
LOADS = {
    A: Load(queue_depth=Signal(1.0, 0.0, "scrape"), running=Signal(2.0, 8.0, "scrape")),
    B: Load(gpu_health_score=Signal(0.4, 5.0, "nvml")),
}
MEMBERSHIP = Membership((Pool("p", (Endpoint(A, "p"), Endpoint(B, "p"))),))


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, -0.1, 1e16, 1e308])
def test_senseless_number_is_unknown(value: float | None) -> None:
    assert math.isnan(checked("queue_depth", value))
    assert valid_values({"queue_depth": value, "running": 0}) == {"running": 0.0}


def test_zero_is_a_value() -> None:
    assert checked("queue_depth", 0) == 0.0


@pytest.mark.parametrize("name", sorted(SHARES))
def test_share_above_one_is_unknown(name: str) -> None:
    """Beyond what rounding explains it may be a percentage. Power and counts may be above 1."""
    assert checked(name, 1.005) == 1.0
    assert math.isnan(checked(name, 2.0))
    assert checked("gpu_power_ratio", 1.2) == 1.2


def test_signals_are_named_once() -> None:
    assert set(PICK_SIGNALS) | SHARES <= set(SIGNALS)
    assert len(set(PICK_SIGNALS)) == len(PICK_SIGNALS)


def test_table_keeps_value_age_and_source() -> None:
    table = table_of([A, B, C], LOADS)
    assert loads_of(table) == {**LOADS, C: Load()}
    assert table["queue_depth"].tolist() == pytest.approx([1.0, math.nan, math.nan], nan_ok=True)
    assert table.at("running")[0] == 8.0
    assert table.endpoint_values(1) == {"gpu_health_score": 0.4}
    assert table.endpoint_values(2) == {}


def test_table_cannot_be_written() -> None:
    table = table_of([A], LOADS)
    for array in (
        table.values,
        table.observed_at,
        table.sources,
        table["queue_depth"],
        table.part(0, 1).values,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_old_signals_become_unknown_one_by_one() -> None:
    table = table_of([A], LOADS)
    assert loads_of(table.fresh(4.0)) == {A: Load(running=Signal(2.0, 8.0, "scrape"))}
    assert loads_of(table.fresh(0.0)) == {A: LOADS[A]}


def test_arranged_keeps_values_and_adds_unknown() -> None:
    table = table_of([A, B], LOADS)
    assert loads_of(table.arranged((C, B))) == {C: Load(), B: LOADS[B]}
    assert table.arranged((A, B)) is table
    assert len(SignalTable.unknown(()).arranged((A,))) == 1


def test_part_is_a_slice_of_endpoints() -> None:
    part = table_of([A, B, C], LOADS).part(1, 3)
    assert loads_of(part) == {B: LOADS[B], C: Load()}


def test_row_is_replaced_in_a_copy() -> None:
    table = table_of([A], LOADS)
    assert load_of(table.with_row("queue_depth", np.array([7.0])), A).queue_depth.value == 7.0
    assert load_of(table, A) == LOADS[A]


def test_same_observations_looks_at_values_and_times() -> None:
    """Of the chosen rows; unknown equals unknown."""
    rows = rows_of(["queue_depth", "running"])
    table = table_of([A, B], LOADS)
    assert table.same_observations(table_of([A, B], {A: LOADS[A]}), rows)
    for other in (Signal(2.0, 0.0, "scrape"), Signal(1.0, 1.0, "scrape"), None):
        changed = {A: Load(queue_depth=other, running=Signal(2.0, 8.0, "scrape"))}
        assert not table.same_observations(table_of([A, B], changed), rows)


def test_view_checks_the_order_of_its_signals() -> None:
    assert FleetView(MEMBERSHIP, {}, table_of([A, B], LOADS)).signals["queue_depth"][0] == 1.0
    assert FleetView(MEMBERSHIP).signals.addresses == (A, B)
    for addresses in ([B, A], [A], [A, B, C]):
        with pytest.raises(ValueError, match="in another order"):
            FleetView(MEMBERSHIP, {}, table_of(addresses, LOADS))


def test_sources_have_their_labels() -> None:
    """Metrics and traces show them."""
    labels = ["none", "scrape", "access_log", "traffic", "probe", "faded", "nvml", "dcgm", "control"]
    assert [source.label for source in Source] == [*labels, "forecast"]


@given(st.lists(st.none() | st.floats(0, 1e9), max_size=9))
def test_unknown_counts_as_the_mean(values: list[float | None]) -> None:
    column = np.array([math.nan if value is None else value for value in values])
    numbers = [value for value in values if value is not None]
    filled = fill_unknown(column, 5.0)
    mean = sum(numbers) / len(numbers) if numbers else 5.0
    assert filled.tolist() == pytest.approx([mean if value is None else value for value in values])


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([3.0, 1.0, 2.0], 2.0),
        ([3.0, 1.0], 1.0),
        ([math.nan, 4.0], 4.0),
        ([math.nan], math.nan),
        ([], math.nan),
    ],
)
def test_lower_median_ignores_unknown(values: list[float], median: float) -> None:
    assert lower_median(np.array(values)) == pytest.approx(median, nan_ok=True)
