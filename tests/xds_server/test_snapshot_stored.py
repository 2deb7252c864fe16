"""Routes, filter and hash policies of stored state and of sessions; pure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.envoy_api.extensions.filters.http.ext_proc.v3 import ext_proc_pb2
from fleet.errors import SettingsError
from fleet.names import STORED_FILTER
from fleet.settings import Settings, parse_settings
from xds_server.envoy import stored
from xds_server.envoy.listeners import listeners, request_attributes
from xds_server.envoy.routes import routes


def made(**pick: Any) -> Settings:
    written = {
        "pools": [{"name": "p"}],
        "listeners": [{"name": "l", "address": "127.0.0.1:1", "pool": "p", "session_header": "x-chat"}],
        "ext_proc": {"pick": pick},
    }
    return parse_settings(json.dumps(written))


def routed(settings: Settings) -> list[Any]:
    (resource,) = routes(settings)
    return list(route_pb2.RouteConfiguration.FromString(resource.body.value).virtual_hosts[0].routes)


def test_without_stored_names_no_answer_is_copied() -> None:
    on, off = made(), made(stored_names=0)
    copied = [route for route in routed(on) if STORED_FILTER in route.typed_per_filter_config]
    assert [route.name for route in copied] == ["json", "json-leading", "content-type"]
    assert all(route.match.WhichOneof("path_specifier") == "safe_regex" for route in copied)
    assert STORED_FILTER.encode() in listeners(on)[0].body.value
    assert not any(STORED_FILTER in route.typed_per_filter_config for route in routed(off))
    assert STORED_FILTER.encode() not in listeners(off)[0].body.value
    assert "stored" not in {route.name for route in routed(off)}


def test_copies_change_nothing_and_hold_up_no_answer() -> None:
    (made_filter,) = stored.filters("l", made())
    assert made_filter.disabled, "where no route switches it on"
    assert made_filter.typed_config is not None
    config = ext_proc_pb2.ExternalProcessor.FromString(made_filter.typed_config.value)
    assert config.observability_mode
    assert config.failure_mode_allow
    assert config.disable_immediate_response
    assert 0 < config.deferred_close_timeout.ToTimedelta().total_seconds() <= 0.1


def test_the_first_session_header_decides_without_ext_proc() -> None:
    settings = made(sessions={"headers": ["x-run"], "agents": ["codex"]})
    policies = next(route for route in routed(settings) if route.name == "json").route.hash_policy
    assert [policy.header.header_name for policy in policies] == [
        "x-chat",
        "x-run",
        "session-id",
        "session_id",
    ]
    assert all(policy.terminal for policy in policies)
    none = made(sessions={"agents": []})
    assert request_attributes(none.listeners[0], none)[2] == "request.headers['x-chat']"


@pytest.mark.parametrize(
    "pick",
    [
        {"sessions": {"agents": ["nobody"]}},
        {"sessions": {"agents": ["codex", "codex"]}},
        {"sessions": {"headers": ["Host"]}},
        {"sessions": {"fields": [""]}},
        {"sessions": {"mode": "firm"}},
        {"stripped_lines": ["a"]},
        {"stripped_lines": ['say "hello"']},
        {"stripped_lines": [" trace-id:"]},
        {"stored_names": -1},
    ],
    ids=str,
)
def test_impossible_names_are_refused(pick: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(pick))):
        made(**pick)
