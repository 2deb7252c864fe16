"""Who may be chosen: models, reachability, and a body that names no model."""

from __future__ import annotations

import pytest

from ext_proc.pick import PICKERS, Candidates, LoadColumns, PoolShape, PoolState, Reason
from ext_proc.prompt.decode import Unreadable
from fleet.endpoint import Endpoint, Pool
from fleet.load import Load, Signal
from fleet.settings.picks import PickSettings


def pool(*models: tuple[str, ...]) -> Pool:
    return Pool("p", tuple(Endpoint(f"h:{n}", "p", served) for n, served in enumerate(models)))


def candidates(of: Pool, model: str, loads: dict[str, Load] | None = None) -> tuple[str, ...] | None:
    shape = PoolShape.of(of)
    found = Candidates.of(shape, LoadColumns.of(shape, loads or {}, {}, {}), model)
    return None if found is None else found.addresses


@pytest.mark.parametrize(
    ("model", "expected"),
    [("a", ("h:0", "h:2")), ("b", ("h:1", "h:2")), ("other", ("h:2",)), ("", ("h:2",))],
)
def test_endpoints_serve_what_they_name_or_everything(model: str, expected: tuple[str, ...]) -> None:
    assert candidates(pool(("a",), ("b",), ()), model) == expected


def test_a_model_that_nobody_serves_has_no_candidates() -> None:
    assert candidates(pool(("a",), ("b",)), "c") is None


def reachable(value: float) -> Load:
    return Load(reachable=Signal(value, 0.0, "scrape"))


def test_an_unreachable_endpoint_is_left_out() -> None:
    loads = {"h:0": reachable(0), "h:1": reachable(1)}
    assert candidates(pool(("a",), ("a",), ("a",)), "a", loads) == ("h:1", "h:2")


def test_when_none_is_reachable_all_are_candidates() -> None:
    loads = {"h:0": reachable(0), "h:1": reachable(0)}
    assert candidates(pool(("a",), ("a",)), "a", loads) == ("h:0", "h:1")


@pytest.mark.parametrize(
    ("served", "named", "complete", "meant"),
    [
        ([("a",), ("a",)], None, True, "a"),
        ([("a",), ("a",)], None, False, "a"),
        ([("a",), ("a",)], "b", False, "b"),
        ([("a", "b"), ("a", "b")], None, True, ""),
        ([("a", "b"), ("a", "b")], None, False, None),
        ([("a",), ("b",)], None, False, None),
        ([(), ()], None, True, ""),
        ([(), ()], None, False, None),
    ],
)
def test_the_model_of_a_body_that_names_none(
    served: list[tuple[str, ...]], named: str | None, complete: bool, meant: str | None
) -> None:
    assert PoolShape.of(pool(*served)).model_of(named, complete=complete) == meant


def test_models_that_clients_make_up_do_not_grow_the_table() -> None:
    state = PoolState(pool(("a",), ()))
    state.refresh({}, {}, {}, PickSettings())
    first = state.picker("made up 0")
    assert first is not None
    assert all(state.picker(f"made up {n}") is first for n in range(100))
    assert state.picker("a") is not first


def test_every_strategy_in_the_settings_is_registered() -> None:
    allowed = PickSettings.model_fields["strategy"].annotation
    assert set(PICKERS) == set(allowed.__args__)


def test_every_way_to_be_unreadable_has_its_reason() -> None:
    assert {Reason(reason.value) for reason in Unreadable}
