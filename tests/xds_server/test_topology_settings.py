"""What the settings of nearness may be, and how they are refused."""

from __future__ import annotations

import pytest
import yaml

from fleet.errors import SettingsError
from fleet.settings import Settings, parse_settings
from xds_server.weights.topology import LINK_FACTORS


def settings(topology: object) -> Settings:
    return parse_settings(
        yaml.safe_dump(
            {
                "pools": [{"name": "llm"}],
                "listeners": [{"name": "front", "address": "127.0.0.1:10000", "pool": "llm"}],
                "weights": {"topology": topology},
            }
        )
    )


def test_defaults_do_not_rise_with_distance() -> None:
    topology = settings({}).weights.topology
    assert (topology.same_sub_zone, topology.same_zone, topology.same_region, topology.elsewhere) == (
        1.0,
        1.0,
        0.9,
        0.8,
    )
    assert topology.links == ()


@pytest.mark.parametrize("link", LINK_FACTORS)
def test_each_link_of_the_table_is_taken(link: str) -> None:
    (entry,) = settings({"links": [{"from": "h1", "to": "h2", "link": link}]}).weights.topology.links
    assert (entry.from_, entry.to, entry.link) == ("h1", "h2", link)


def test_both_directions_may_differ() -> None:
    links = [{"from": "h1", "to": "h2", "link": "PIX"}, {"from": "h2", "to": "h1", "link": "SYS"}]
    assert len(settings({"links": links}).weights.topology.links) == 2


TWICE = [{"from": "h1", "to": "h2", "link": "PIX"}, {"from": "h1", "to": "h2", "link": "SYS"}]


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({"elsewhere": 0.79}, ("weights.topology.elsewhere: 0.79", "0.8")),
        ({"same_zone": 1.01}, ("weights.topology.same_zone: 1.01", "allowed")),
        ({"same_region": 0.85, "elsewhere": 0.9}, ("topology.elsewhere: 0.9; allowed", "same_region = 0.85")),
        ({"same_sub_zone": 0.95}, ("topology.same_zone: 1.0; allowed", "same_sub_zone = 0.95")),
        ({"links": TWICE}, ("topology.links[1]: SYS from 'h1' to 'h2'; allowed", "it is PIX already")),
        ({"links": [TWICE[0], dict(TWICE[0])]}, ("topology.links[1]: PIX from 'h1' to 'h2'; allowed",)),
        ({"links": [{**TWICE[0], "link": "NV4"}]}, ("topology.links[0].link: 'NV4'; allowed", "'NVLINK'")),
        ({"links": [{**TWICE[0], "from": ""}]}, ("topology.links[0].from: ''; allowed",)),
        ({"links": [{**TWICE[0], "through": "h3"}]}, ("links[0].through: unknown field", "from, link, to")),
        ({"links": [{"to": "h2", "link": "PIX"}]}, ("topology.links[0].from: missing",)),
    ],
)
def test_contradiction_is_refused_with_path_and_allowed_value(
    topology: object, words: tuple[str, ...]
) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(topology)
    assert len(caught.value.problems) == 1
    for word in words:
        assert word in caught.value.problems[0]
