"""Which pool a model's name leads to, and what `warmroute check` says of names that lead nowhere."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from fleet.codec import decode_membership, encode_membership
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.errors import SettingsError
from fleet.models import ModelTable, chooses, has_aliases, tables
from fleet.settings import Settings, parse_settings
from fleet.settings.membership import membership
from fleet.settings.model_check import model_findings


def settings_of(*pools: dict[str, Any], **listener: Any) -> Settings:
    made = [
        {"name": chr(97 + n), "endpoints": [{"address": f"10.0.0.{n + 1}:80"}], **pool}
        for n, pool in enumerate(pools)
    ]
    entry = {"name": "l", "address": "127.0.0.1:9000", "pools": [pool["name"] for pool in made], **listener}
    return parse_settings(json.dumps({"pools": made, "listeners": [entry]}), environ={})


def table_of(settings: Settings, *listed: str) -> ModelTable:
    members = membership(settings)
    pools = [*members.pools]
    last = pools[-1]
    ends = tuple(dataclasses.replace(end, listed=listed) for end in last.endpoints)
    pools[-1] = Pool(last.name, ends)
    return tables(settings, Membership(tuple(pools)))["l"]


def test_first_pool_has_a_name_and_aliases_lead_to_models() -> None:
    settings = settings_of({"models": ["m", "n"]}, {"models": ["n", "o"], "aliases": {"gpt": "o"}})
    table = table_of(settings, "lora", "m")
    assert {name: tuple(place) for name, place in table.places.items()} == {
        "m": ("a", "m"),
        "n": ("a", "n"),
        "o": ("b", "o"),
        "gpt": ("b", "o"),
        "lora": ("b", "lora"),
    }
    assert table.names == {"a": ("m", "n"), "b": ("o", "gpt", "lora")}


def test_pool_names_the_default_among_pools() -> None:
    settings = settings_of({}, {}, {}, pool="b")
    assert (settings.listeners[0].pool, settings.listeners[0].pools) == ("b", ("b", "a", "c"))
    assert settings_of({}, {}).listeners[0].pool == "a"
    assert settings_of({}, pools=[], pool="a").listeners[0].pools == ("a",)


@pytest.mark.parametrize(
    "listener", [{"pools": []}, {"pool": "c"}, {"pools": ["a", "x"]}, {"pools": ["a", "a"]}]
)
def test_pools_that_do_not_agree_are_refused(listener: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="pool"):
        settings_of({}, {}, **listener)


def test_one_pool_needs_no_table() -> None:
    settings = settings_of({"models": ["m"]})
    assert not chooses(settings.listeners[0], settings)
    assert tables(settings, membership(settings)) is tables(settings, Membership())
    aliased, refusing = settings_of({"aliases": {"x": "m"}}), settings_of({}, unknown_models="refuse")
    for other in (aliased, refusing):
        assert chooses(other.listeners[0], other)
        assert has_aliases(other.listeners[0], other) == (other is aliased)


def test_listed_names_reach_workers() -> None:
    members = membership(settings_of({"models": ["m"]}))
    end = dataclasses.replace(members.endpoints[0], listed=("lora",), metrics_url="", node="")
    sent = encode_membership(Membership((Pool("a", (end,)),))).membership
    assert decode_membership(sent).endpoints[0].listed == ("lora",)


@pytest.mark.parametrize(
    ("pools", "listener", "part"),
    [
        (({"models": ["m"]}, {"models": ["m"]}), {}, "pools[1].models: 'm' is also in pool 'a'"),
        (
            ({"models": ["m"]}, {"models": ["n"], "aliases": {"m": "n"}}),
            {},
            "pools[1].aliases: 'm' is also in",
        ),
        (({"models": ["m"], "aliases": {"x": "y"}},), {}, "'x' stands for 'y', which the pool does not name"),
        (({"models": ["m", "n"], "aliases": {"m": "n"}},), {}, "'m' is a model of the pool itself"),
        (({"models": ["m"]}, {}), {}, "pool 'b' names no models, so only what its engines list"),
        (({},), {"unknown_models": "refuse"}, "a model that no engine lists gets 404"),
        (({},), {"show_decision": True, "address": "192.0.2.1:80"}, "which prompts others have sent"),
    ],
)
def test_check_warns(pools: tuple[dict[str, Any], ...], listener: dict[str, Any], part: str) -> None:
    (finding,) = model_findings(settings_of(*pools, **listener))
    assert part in finding.text
    assert "; allowed: " in finding.text
    assert not finding.grave


def test_check_is_silent_about_sound_settings() -> None:
    assert not model_findings(settings_of({"models": ["m"], "aliases": {"x": "m"}}, {"models": ["n"]}))
    assert not model_findings(settings_of({}, show_decision=True))


def test_decisions_show_on_loopback_only() -> None:
    shown = {
        address: settings_of({}, address=address).listeners[0].shows_decision
        for address in ("127.0.0.1:80", "[::1]:80", "0.0.0.0:80", "192.0.2.1:80")
    }
    assert shown == {"127.0.0.1:80": True, "[::1]:80": True, "0.0.0.0:80": False, "192.0.2.1:80": False}


def test_only_listed_paths_can_be_opened() -> None:
    assert settings_of({}, open_paths=["/metrics", "*"]).listeners[0].open_paths == ("/metrics", "*")
    with pytest.raises(SettingsError, match="closed by default"):
        settings_of({}, open_paths=["/v1/models"])
    with pytest.raises(SettingsError, match="did you mean /sleep"):
        settings_of({}, open_paths=["/slep"])


def test_endpoints_without_new_names_leave_the_tables() -> None:
    settings = settings_of({"models": ["m"]}, {"models": ["n"]})

    def made(*endpoints: Endpoint) -> object:
        return tables(settings, Membership((Pool("a", endpoints),)))

    one, two = (Endpoint(f"10.0.0.{n}:80", "a", ("m",)) for n in (1, 2))
    assert made(one) is made(one, two)
    assert made(one) is not made(dataclasses.replace(one, listed=("x",)))
