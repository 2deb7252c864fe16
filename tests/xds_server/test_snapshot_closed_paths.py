"""Expressions of closed paths match each spelling of them and no other path."""

from __future__ import annotations

import json
import re

import pytest

from fleet.engine_paths import ALL_ADMIN_PATHS
from fleet.envoy_api.config.route.v3 import route_components_pb2
from fleet.settings import ListenerSettings, parse_settings
from xds_server.envoy.closed_paths import closed, closed_routes, regexes

EXPRESSIONS = [re.compile(regex.replace(r"\C", ".")) for regex in regexes(ALL_ADMIN_PATHS)]


def is_closed(path: str) -> bool:
    return any(expression.fullmatch(path) for expression in EXPRESSIONS)


def listener_of(*open_paths: str) -> ListenerSettings:
    listener = {"name": "l", "address": "127.0.0.1:1", "pool": "p", "open_paths": open_paths}
    return parse_settings(json.dumps({"pools": [{"name": "p"}], "listeners": [listener]})).listeners[0]


@pytest.mark.parametrize("path", ALL_ADMIN_PATHS)
def test_each_spelling_is_closed_and_no_neighbour(path: str) -> None:
    path = path.replace("*", "any-model.v1")
    for spelt in (path, path.upper(), f"{path}/", path.replace("/", "//"), path.replace("/", "%2F%2f")):
        assert is_closed(spelt)
    assert is_closed(f"{path}below/it") == path.endswith("/")
    short = path.rstrip("/")[:-1]
    assert is_closed(short) == (short in ALL_ADMIN_PATHS)
    assert is_closed(path[1:]) is False


@pytest.mark.parametrize("path", ["/v1/models", "/v2/models//unload", "/v2/models/m/infer", "/", ""])
def test_paths_of_requests_are_open(path: str) -> None:
    assert not is_closed(path)


def test_programs_are_few_and_within_envoys_limit() -> None:
    """Envoy refuses programs of more than 100 instructions, and a letter is one."""
    longest = max(len(re.findall(r"\[..\]", regex)) for regex in regexes(ALL_ADMIN_PATHS))
    assert longest < 92
    assert len(EXPRESSIONS) < len(ALL_ADMIN_PATHS) / 3


def test_open_paths_have_no_route() -> None:
    assert closed(listener_of()) == ALL_ADMIN_PATHS
    assert closed(listener_of("*")) == ()
    opened = closed(listener_of("/metrics"))
    assert set(ALL_ADMIN_PATHS) - set(opened) == {"/metrics"}
    for route in closed_routes(listener_of("/metrics")):
        made = route_components_pb2.Route.FromString(bytes(route))
        assert made.direct_response.status == 403
        assert json.loads(made.direct_response.body.inline_string)["error"]["code"] == "path_closed"
        assert made.response_headers_to_add[0].header.value == "application/json"
