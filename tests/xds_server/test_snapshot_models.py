"""Routes and filters of listeners with several pools; pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.models import tables
from fleet.settings import parse_settings
from fleet.settings.membership import membership
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


def test_a_pool_without_models_has_no_alternatives() -> None:
    """Envoy refuses a whole route configuration with an alternative of one value."""
    values = [
        entry.value
        for route in routed(settings_of(pools=["a", "b"]))
        for entry in route.match.dynamic_metadata
    ]
    assert values
    assert not any(value.HasField("or_match") and len(value.or_match.value_matchers) < 2 for value in values)
