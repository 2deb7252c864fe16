"""Who may be chosen: models, reachability, and a body that names no model."""

from __future__ import annotations

import pytest

from ext_proc.pick import LoadColumns, PoolShape, PoolState, Reason
from ext_proc.pick.context import FilterContext
from ext_proc.pick.filters import filtered
from ext_proc.prompt.decode import Unreadable
from fleet.endpoint import Endpoint, Pool
from fleet.settings.picks import PickSettings
from testing.signals import Load, Signal, table_of


def pool(*models: tuple[str, ...]) -> Pool:
    return Pool("p", tuple(Endpoint(f"h:{n}", "p", served) for n, served in enumerate(models)))


def columns_of(shape: PoolShape, loads: dict[str, Load]) -> LoadColumns:
    return LoadColumns.of(shape, table_of(shape.addresses, loads), {}, {})


def candidates(of: Pool, model: str, loads: dict[str, Load] | None = None) -> tuple[str, ...] | None:
    shape = PoolShape.of(of)
    settings = PickSettings()
    found = filtered(FilterContext(shape, columns_of(shape, loads or {}), settings, model), settings.filters)
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


UNFIT = [
    {"reachable": 0.0},
    {"ready": 0.0},
    {"stalled": 1.0},
    {"gpu_health_score": 0.4},
    {"gpu_health_score": 0.0},
    {"trust_ratio": 0.49},
]
FIT = [
    {},
    {"reachable": 1.0},
    {"stalled": 0.0},
    {"gpu_health_score": 0.9},
    {"trust_ratio": 0.5},
    {"error_ratio": 1.0},
]


def told(signals: dict[str, float]) -> Load:
    return Load(**{name: Signal(value, 0.0, "x") for name, value in signals.items()})


@pytest.mark.parametrize("signals", UNFIT)
def test_one_that_is_known_not_to_serve_well_is_left_out(signals: dict[str, float]) -> None:
    loads = {"h:0": told(signals)}
    assert candidates(pool(("a",), ("a",), ("a",)), "a", loads) == ("h:1", "h:2")


@pytest.mark.parametrize("signals", FIT)
def test_what_is_unknown_or_tolerable_leaves_nobody_out(signals: dict[str, float]) -> None:
    """Errors make an endpoint dearer; only what they do to trust takes it away."""
    loads = {"h:0": told(signals)}
    assert candidates(pool(("a",), ("a",)), "a", loads) == ("h:0", "h:1")


@pytest.mark.parametrize("signals", UNFIT)
def test_when_everybody_would_be_left_out_nobody_is(signals: dict[str, float]) -> None:
    loads = dict.fromkeys(("h:0", "h:1"), told(signals))
    assert candidates(pool(("a",), ("a",)), "a", loads) == ("h:0", "h:1")


def test_distrusted_endpoints_go_before_unable_ones() -> None:
    loads = {"h:0": told({"reachable": 0.0}), "h:1": told({"trust_ratio": 0.1})}
    assert candidates(pool(("a",), ("a",)), "a", loads) == ("h:1",)


def test_only_domains_that_tell_endpoints_apart_count() -> None:
    """One of a single endpoint or of all does not, so a pool of single-engine nodes costs nothing."""

    def shape(*domains: tuple[str, ...]) -> tuple[int, ...]:
        ends = [Endpoint(f"h:{n}", "p", fault_domains=held) for n, held in enumerate(domains)]
        return PoolShape.of(Pool("p", tuple(ends))).domains

    assert shape(("n1", "site"), ("n2", "site"), ("n3", "site")) == ()
    one, two, three = shape(("n1", "site"), ("n1", "site"), ("n2", "site"))
    assert one & two
    assert not one & three


@pytest.mark.parametrize(
    ("served", "named", "complete", "meant"),
    [
        ([("a",), ("a",)], None, True, "a"),
        ([("a",), ("a",)], None, False, "a"),
        ([("a",), ("a",)], "b", False, "b"),
        ([("a", "b"), ("a", "b")], None, True, ""),
        ([("a", "b"), ("a", "b")], None, False, "a"),
        ([("a", "b"), ("a",)], None, False, None),
        ([("a",), ("b",)], None, False, None),
        ([(), ()], None, True, ""),
        ([(), ()], None, False, ""),
        ([(), ("a",)], None, False, None),
    ],
)
def test_the_model_of_a_body_that_names_none(
    served: list[tuple[str, ...]], named: str | None, complete: bool, meant: str | None
) -> None:
    assert PoolShape.of(pool(*served)).model_of(named, complete=complete) == meant


def test_models_that_clients_make_up_do_not_grow_the_table() -> None:
    state = PoolState(pool(("a",), ()))
    state.refresh(columns_of(state.shape, {}), PickSettings(), 0.0)
    first = state.profile("made up 0")
    assert first is not None
    assert all(state.profile(f"made up {n}") is first for n in range(100))
    assert state.profile("a") is not first


def test_every_way_to_be_unreadable_has_its_reason() -> None:
    assert {Reason(reason.value) for reason in Unreadable}


def shape(*served: tuple[tuple[str, ...], tuple[str, ...]]) -> PoolShape:
    """A pool by each endpoint's models, and those that its engine lists as its own."""
    return PoolShape.of(
        Pool(
            "p",
            tuple(
                Endpoint(f"10.0.0.{number}:80", "p", models, own_names=own)
                for number, (models, own) in enumerate(served)
            ),
        )
    )


def test_own_names_of_an_engine_are_one_model() -> None:
    both, two = ("m", "alias"), ("m", "alias", "lora")
    assert shape((both, both), (both, both)).aliases == {"alias": "m"}
    assert not shape((both, both)).several
    assert shape((both, both)).only_model == "m"
    assert (shape((two, both)).aliases, shape((two, both)).several) == ({"alias": "m"}, True)


def test_names_stay_apart_unless_all_engines_agree() -> None:
    both = ("m", "alias")
    for made in (shape((both, ())), shape((both, both), (both, ())), shape((both, both), (("alias",), ()))):
        assert (made.aliases, made.several) == ({}, True)
