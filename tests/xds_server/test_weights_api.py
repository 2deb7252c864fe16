"""What operators see of weights, and how they override them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fleet.endpoint import Endpoint, Locality, Membership, Pool
from fleet.service.admin import ApiError, Query
from fleet.settings import SignalSettings, TopologySettings, WeightSettings
from testing.signals import Load, Signal
from tests.xds_server.tables import weigh
from xds_server.admin.decisions import WeightDecisions
from xds_server.admin.weights_api import WeightsApi, WeightSources
from xds_server.snapshot.snapshot import NodeGroup
from xds_server.state.override import OverrideBook, OverrideFile
from xds_server.weights.weigh import Weigher

NOW = 1_700_000_000.0
A, B = "10.0.0.1:80", "10.0.0.2:80"
MEMBERSHIP = Membership(
    (
        Pool(
            "p",
            (
                Endpoint(A, "p", locality=Locality("eu", "a")),
                Endpoint(B, "p", locality=Locality("eu", "b")),
            ),
        ),
    )
)


class Stage:
    """A real weigher that a recomputation runs."""

    def __init__(self, *, versioned: bool = True) -> None:
        self.weigher = Weigher(WeightSettings(), SignalSettings())
        self.book = OverrideBook()
        self.wall = NOW
        self.ticks = 0
        self.groups: tuple[NodeGroup, ...] = ()
        self.leaving = frozenset[str]()
        sources = WeightSources(
            verdicts=self.weigher.verdicts,
            verdict=self.weigher.verdict,
            signals=self.weigher.signals,
            membership=lambda: MEMBERSHIP,
            leaving=lambda: self.leaving,
            version=lambda: f"v{self.ticks}" if versioned else None,
            recompute=self.tick,
            groups=lambda: self.groups,
            topology=TopologySettings,
        )
        self.api = WeightsApi(sources, self.book, OverrideFile(self.book, None), lambda: self.wall)
        self.decisions = WeightDecisions(3, lambda: self.wall, self.api.endpoint)
        self.tick()

    def tick(self) -> None:
        self.ticks += 1
        loads = {A: Load(memory_used_ratio=Signal(0.5, 1.0, "scrape"))}
        update = weigh(self.weigher, MEMBERSHIP, loads, 1.0, overrides=self.book.active(self.wall))
        list(self.decisions.note(update, f"v{self.ticks}"))

    async def refused(self, body: Any) -> tuple[str, str, int]:
        before = self.api.weights()
        with pytest.raises(ApiError) as error:
            await self.api.update(body)
        assert self.api.weights() == before
        return error.value.path, error.value.text, error.value.status


def test_each_endpoint_is_shown_with_its_verdict() -> None:
    shown = Stage().api.weights()
    assert shown["version"] == "v1"
    assert set(shown["weights"]) == {A, B}
    one = shown["weights"][A]
    assert one["weight"] >= 1
    assert one["pool"] == "p"
    assert one["overridden_until"] is None
    assert one["by_place"] == {}
    assert one["reason"]


async def test_empty_object_recomputes() -> None:
    stage = Stage()
    answer = await stage.api.update({})
    assert stage.ticks == 2
    assert answer["version"] == "v2"
    assert "kept_over_restart" not in answer


def test_drain_of_a_gone_address_has_no_effect() -> None:
    stage = Stage()
    stage.book.set({A: 0, "10.0.0.8:80": 0, "10.0.0.9:80": 0}, NOW + 60.0)
    stage.leaving = frozenset({"10.0.0.8:80"})
    drained = {entry["endpoint"]: entry["in_force"] for entry in stage.api.weights()["drained"]}
    assert drained == {A: False, "10.0.0.8:80": True, "10.0.0.9:80": None}


async def test_override_starts_at_once_and_expires() -> None:
    stage = Stage()
    before = stage.api.weights()["weights"][A]["weight"]
    answer = await stage.api.update({"weights": {A: 7}, "expires_seconds": 60})
    shown = answer["weights"][A]
    assert (shown["weight"], shown["reason"]) == (7, "override")
    assert shown["overridden_until"] == "2023-11-14T22:14:20.000+00:00"
    assert answer["kept_over_restart"] is False
    stage.wall += 60
    stage.tick()
    assert stage.api.weights()["weights"][A]["weight"] == before


@pytest.mark.parametrize("weights", [{A: None}, None])
async def test_null_clears(weights: Any) -> None:
    stage = Stage()
    await stage.api.update({"weights": {A: 7}, "expires_seconds": 60})
    answer = await stage.api.update({"weights": weights})
    assert answer["weights"][A]["weight"] != 7
    assert len(stage.book) == 0


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], ""),
        ("x", ""),
        (None, ""),
        ({"weight": {}}, "weight"),
        ({"weights": []}, "weights"),
        ({"weights": {"10.0.0.9:80": 1}, "expires_seconds": 1}, "weights.10.0.0.9:80"),
        ({"weights": {"10.0.0.9:80": None}}, "weights.10.0.0.9:80"),
        *(
            ({"weights": {A: value}, "expires_seconds": 1}, f"weights.{A}")
            for value in (-1, 10_001, 1.5, True, "1", [])
        ),
        *(
            ({"weights": {A: 1}, "expires_seconds": value}, "expires_seconds")
            for value in (0, -1, 86_401, True, "1", None, float("nan"))
        ),
        ({"weights": {A: 1}}, "expires_seconds"),
        ({"expires_seconds": 1}, "expires_seconds"),
    ],
    ids=str,
)
async def test_wrong_body_names_the_field_and_changes_nothing(body: Any, path: str) -> None:
    stage = Stage()
    view = await stage.refused(body)
    assert (view[0], view[2]) == (path, 400)
    assert stage.ticks == 1


async def test_before_the_first_weights_there_is_nothing_to_override() -> None:
    assert (await Stage(versioned=False).refused({}))[2] == 503


def test_places_of_envoys_show_their_factors() -> None:
    stage = Stage()
    stage.groups = tuple(NodeGroup(Locality("eu", "a"), cluster) for cluster in ("one", "two"))
    shown = stage.api.weights()["weights"]
    assert shown[A]["by_place"] == {"eu/a": 1.0}
    factor = shown[B]["by_place"]["eu/a"]
    assert 0.8 <= factor < 1.0
    assert shown[A]["weight_by_place"] == {"eu/a": shown[A]["weight"]}
    assert shown[B]["weight_by_place"] == {"eu/a": round(shown[B]["weight"] * factor)}
    verdict = stage.decisions.view(Query(endpoint=B))["verdict"]
    assert {name: verdict[name] for name in shown[B]} == shown[B]


def test_a_place_as_far_from_all_endpoints_has_the_base_weights() -> None:
    stage = Stage()
    stage.groups = (NodeGroup(Locality("us", "c"), "far"),)
    for verdict in stage.api.weights()["weights"].values():
        assert verdict["by_place"] == {"us/c": 1.0}
        assert verdict["weight_by_place"] == {"us/c": verdict["weight"]}


def test_a_verdict_shows_signals_with_age_and_source() -> None:
    signals = Stage().decisions.view(Query(endpoint=A))["verdict"]["signals"]
    assert signals["memory_used_ratio"] == {"value": 0.5, "age_seconds": 0.0, "source": "scrape"}
    assert signals["queue_depth"] is None
    assert Stage().decisions.view(Query(endpoint="10.0.0.9:80"))["verdict"] is None


async def test_changes_are_remembered_newest_first_and_bounded() -> None:
    stage = Stage()
    for weight in (5, 6):
        await stage.api.update({"weights": {A: weight}, "expires_seconds": 60})
    view = stage.decisions.view(Query())
    assert [(entry["address"], entry["weight"]) for entry in view["weights"][:2]] == [(A, 6), (A, 5)]
    assert len(view["weights"]) == 3, "the ring holds three"
    assert view["weights"][0]["before"] == 5
    assert view["weights"][0]["signals"] == {"memory_used_ratio": 0.5}
    assert view["verdict"] is None
    of_b = stage.decisions.view(Query(endpoint=B))
    assert {entry["address"] for entry in of_b["weights"]} == {B}
    assert of_b["verdict"]["address"] == B
    assert len(stage.decisions.view(Query(limit=1))["weights"]) == 1
    assert stage.decisions.view(Query(request="r"))["weights"] == []


async def test_changes_of_an_interrupted_tick_are_remembered() -> None:
    stage = Stage()
    decisions = WeightDecisions(300, lambda: stage.wall, stage.api.endpoint)
    first = weigh(Weigher(WeightSettings(), SignalSettings()), MEMBERSHIP, {}, 1.0)
    decisions.note(dataclasses.replace(first, changes=tuple(first.changes) * 100), "v1")
    stage.wall += 1
    list(decisions.note(first, "v2"))
    versions = [entry["version"] for entry in decisions.view(Query(limit=300))["weights"]]
    assert versions == ["v2"] * 2 + ["v1"] * 200
