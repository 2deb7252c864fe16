"""Factors by zone and by link: what is near, what is far, and that unknown is neither."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.endpoint import Locality
from fleet.settings import LinkSettings, TopologySettings
from xds_server.weights.topology import LINK_FACTORS, Places, Topology, nearer_weighs_more

ZONES = {"same_sub_zone": 0.98, "same_zone": 0.95, "same_region": 0.9, "elsewhere": 0.8}
"""All different, so that no level passes for another."""
HERE = Locality("eu", "a", "h1")


def link(start: str, end: str, kind: str) -> LinkSettings:
    return LinkSettings.model_validate({"from": start, "to": end, "link": kind})


def factors(client: Locality, *places: Locality, links: tuple[LinkSettings, ...] = ()) -> list[float]:
    topology = Topology(TopologySettings(**ZONES, links=links))
    return topology.factors(client, Places.of(places)).tolist()


def test_the_first_level_that_differs_decides() -> None:
    near = (HERE, Locality("eu", "a", "h2"), Locality("eu", "b", "h1"), Locality("us", "a", "h1"))
    assert factors(HERE, *near) == [0.98, 0.95, 0.9, 0.8]


@pytest.mark.parametrize(
    ("client", "place", "factor"),
    [
        (Locality(), HERE, 1.0),
        (HERE, Locality(), 1.0),
        (Locality("eu"), HERE, 1.0),
        (Locality("us"), HERE, 0.8),
        (Locality("eu", "b"), HERE, 0.9),
        (Locality("eu", "a"), HERE, 1.0),
        (Locality(zone="b"), HERE, 0.9),
        (Locality(zone="b"), Locality("eu"), 1.0),
        (Locality(sub_zone="h2"), HERE, 0.95),
        (Locality(sub_zone="h1"), HERE, 0.98),
    ],
)
def test_unknown_level_says_nothing(client: Locality, place: Locality, factor: float) -> None:
    assert factors(client, place) == [factor]
    assert factors(place, client) == [factor]


def test_no_place_has_no_factor() -> None:
    assert factors(HERE) == []


def test_links_override_zones_both_ways() -> None:
    there = Locality("us", "b", "h2")
    links = (link("h1", "h2", "PXB"),)
    assert factors(HERE, there, links=links) == [LINK_FACTORS["PXB"]]
    assert factors(there, HERE, links=links) == [LINK_FACTORS["PXB"]]
    assert factors(HERE, Locality("us", "b", "h3"), Locality("us", "b"), links=links) == [0.8, 0.8]


@pytest.mark.parametrize("turned", [False, True])
def test_each_direction_may_have_its_own_link(turned: bool) -> None:
    links = (link("h1", "h2", "PIX"), link("h2", "h1", "SYS"))
    there = Locality("eu", "a", "h2")
    links = links[::-1] if turned else links
    assert factors(HERE, there, links=links) == [LINK_FACTORS["PIX"]]
    assert factors(there, HERE, links=links) == [LINK_FACTORS["SYS"]]


def test_a_link_within_a_sub_zone_counts_too() -> None:
    assert factors(HERE, HERE, links=(link("h1", "h1", "SYS"),)) == [LINK_FACTORS["SYS"]]


def test_the_table_falls_from_one_to_the_least_factor() -> None:
    table = list(LINK_FACTORS.values())
    assert table == sorted(set(table), reverse=True)
    assert (table[0], table[-1]) == (1.0, 0.8)
    assert set(LINK_FACTORS) == set(LinkSettings.model_fields["link"].annotation.__args__)  # type: ignore[union-attr]


NAMES = st.sampled_from(["", "a", "b", "c"])
PLACE = st.builds(Locality, NAMES, NAMES, NAMES)


@st.composite
def topologies(draw: Any) -> TopologySettings:
    steps = sorted(draw(st.tuples(*[st.floats(0.8, 1.0)] * 4)), reverse=True)
    pairs = draw(st.lists(st.tuples(*[st.sampled_from("abc")] * 2), unique=True, max_size=4))
    links = tuple(link(start, end, draw(st.sampled_from([*LINK_FACTORS]))) for start, end in pairs)
    return TopologySettings(**dict(zip(ZONES, steps, strict=True)), links=links)


@given(topologies(), PLACE, st.lists(PLACE, max_size=8))
def test_factors_stay_in_range_and_are_independent(
    settings: TopologySettings, client: Locality, places: list[Locality]
) -> None:
    topology = Topology(settings)
    result = topology.factors(client, Places.of(places))
    assert result.shape == (len(places),)
    assert ((result >= 0.8) & (result <= 1.0)).all()
    assert [float(topology.factors(client, Places.of([place]))[0]) for place in places] == result.tolist()


@given(topologies(), PLACE, PLACE)
def test_without_links_distance_is_the_same_both_ways(
    settings: TopologySettings, one: Locality, other: Locality
) -> None:
    topology = Topology(settings.model_copy(update={"links": ()}))
    there, back = topology.factors(one, Places.of([other])), topology.factors(other, Places.of([one]))
    assert there.tolist() == back.tolist()


@given(st.lists(st.tuples(st.integers(1, 10_000), st.floats(0.8, 1.0)), min_size=1))
def test_weights_stay_what_eds_may_carry(rows: list[tuple[int, float]]) -> None:
    weights, factors = (np.array(column) for column in zip(*rows, strict=True))
    result = nearer_weighs_more(weights, factors)
    assert ((result >= 1) & (result <= 10_000)).all()
    assert (np.abs(result - weights * factors) <= 0.5).all()
