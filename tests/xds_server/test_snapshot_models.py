"""Routes and filters of listeners with several pools; pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.models import tables
from fleet.names import LEADING_FILTER, LEADING_LISTENER, LEADING_ROUTE, METADATA_NAMESPACE, METADATA_POOL
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from xds_server.envoy import leading
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


def test_marks_of_leading_parts_come_first() -> None:
    """One route for each pool, the default pool's included: a header may have named another one."""
    made = [route for route in routed(settings_of(pools=["b", "a", "c"])) if route.HasField("route")]
    marked = [
        route for route in made if route.match.dynamic_metadata[:1] and matchers(route)[0][0] != "warmroute"
    ]
    assert marked == made[: len(marked)]
    assert {route.name for route in marked} == {LEADING_ROUTE}
    keys = [METADATA_NAMESPACE, METADATA_POOL]
    assert {(route.route.cluster, *map(repr, matchers(route))) for route in marked} == {
        (pool, repr((LEADING_FILTER, keys, f"\n{pool}"))) for pool in "abc"
    }


def test_a_pool_without_models_has_no_alternatives() -> None:
    """Envoy refuses a whole route configuration with an alternative of one value."""
    values = [
        entry.value
        for route in routed(settings_of(pools=["a", "b"]))
        for entry in route.match.dynamic_metadata
    ]
    assert values
    assert not any(value.HasField("or_match") and len(value.or_match.value_matchers) < 2 for value in values)
