"""Routes and filters of listeners with several pools; pure."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from envoy_data_plane.envoy.extensions.filters.http.rbac.v3 import RbacPerRoute

from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.models import Place, tables
from fleet.names import (
    JSON_ROUTE,
    LEADING_FILTER,
    LEADING_LISTENER,
    LEADING_ROUTE,
    METADATA_NAMESPACE,
    METADATA_POOL,
)
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from xds_server.envoy import leading, stored
from xds_server.envoy.listeners import listeners
from xds_server.envoy.routes import routes

if TYPE_CHECKING:
    from fleet.settings import Settings


def settings_of(**listener: Any) -> Settings:
    pools = [{"name": name, "endpoints": [{"address": f"10.0.0.{ord(name)}:80"}]} for name in "abc"]
    pools[0]["models"] = ["m"]
    entry = {"name": "l", "address": "127.0.0.1:1", **listener}
    return parse_settings(json.dumps({"pools": pools, "listeners": [entry]}), environ={})


def routed(settings: Settings) -> list[Any]:
    (resource,) = routes(settings, tables=tables(settings, membership(settings)))
    return list(route_pb2.RouteConfiguration.FromString(resource.body.value).virtual_hosts[0].routes)


def matchers(route: Any) -> list[tuple[str, list[str], str]]:
    """Return namespace, keys and exact value of each matcher of metadata."""
    return [
        (entry.filter, [part.key for part in entry.path], entry.value.string_match.exact)
        for entry in route.match.dynamic_metadata
    ]


def test_one_pool_has_no_part_of_the_choice() -> None:
    for more in ({}, {"unknown_models": "refuse"}):
        settings = settings_of(pool="a", **more)
        assert not any(matchers(route) for route in routed(settings))
        for route in routed(settings):
            assert LEADING_LISTENER.encode() not in route.typed_per_filter_config[LEADING_FILTER].value
        assert len(leading.filters(settings.listeners[0], settings)) == 1
        assert b"set_filter_state" not in listeners(settings)[0].body.value


def test_choices_of_ext_proc_come_first() -> None:
    """In routes for each pool, the default pool's included: a header may have named another one."""
    made = [route for route in routed(settings_of(pools=["b", "a", "c"])) if matchers(route)]
    chosen = [route for route in made if "rbac" not in matchers(route)[0][0]]
    assert chosen == made[: len(chosen)]
    places = {
        LEADING_ROUTE: (LEADING_FILTER, [METADATA_NAMESPACE, METADATA_POOL]),
        JSON_ROUTE: (METADATA_NAMESPACE, [METADATA_POOL]),
        stored.ROUTE: (METADATA_NAMESPACE, [METADATA_POOL]),
    }
    assert {(route.name, route.route.cluster, repr(matchers(route))) for route in chosen} == {
        (name, pool, repr([(*place, pool)])) for name, place in places.items() for pool in "abc"
    }


def test_routes_hold_each_name_once() -> None:
    """However many routes and pools there are; without names, Envoy gets no map, which it would refuse."""

    def size(names: int, pools: str = "ab") -> int:
        settings = settings_of(pools=[*pools])
        several = tables(settings, membership(settings))["l"]
        places = {f"model-{number}": Place("b", "n") for number in range(names)}
        table = dataclasses.replace(several, places=places)
        (resource,) = routes(settings, tables={"l": table})
        return len(resource.body.value)

    assert 0 < size(200) - size(100) < 100 * 600
    assert size(200, "abc") - size(100, "abc") == size(200) - size(100)
    assert b"RBACPerRoute" not in routes(settings_of(pools=["a", "b"]))[0].body.value


def test_escapes_in_a_name_take_no_path_of_another() -> None:
    """An engine that lists `org%2Fm` would get the requests for `org/m` of a pool ahead of its own."""
    settings = settings_of(pools=["a", "b", "c"])
    places = {"org/m": Place("b", "org/m"), "m:1": Place("a", "m:1")}
    listed = ("org%2Fm", "m%3A1", "org%2F", "50%", "a%2Fb")
    several = tables(settings, membership(settings))["l"]
    table = dataclasses.replace(several, places={**places, **{name: Place("c", name) for name in listed}})
    (resource,) = routes(settings, tables={"l": table})
    config = route_pb2.RouteConfiguration.FromString(resource.body.value)
    per_route = config.virtual_hosts[0].typed_per_filter_config["warmroute.pool"].value
    made: Any = RbacPerRoute.parse(per_route)
    entries = made.rbac.shadow_matcher.matcher_tree.prefix_match_map.map
    pools = {key: match.action.name for key, match in entries.items()}
    assert pools["org%2Fm\n"] == pools["org/m\n"] == "b"
    assert "m%3A1\n" not in pools
    assert "org%2F\n" not in pools
    assert pools["org%252Fm\n"] == pools["50%\n"] == pools["a%2Fb\n"] == "c"
