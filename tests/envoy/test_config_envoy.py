"""The real Envoy takes the configuration whole, and nothing in it is on its way out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from warmroute.demo.envoy import EnvoyProcess, envoy_binary
from warmroute.demo.processes import BenchError

DEPLOY = Path(__file__).parents[2] / "deploy" / "envoy"


async def test_nothing_is_rejected_or_deprecated(world: Any) -> None:
    """Every update was taken, and no field that Envoy will drop is used."""
    stats = await world.envoy.stats()
    rejected = {
        name: value
        for name, value in stats.items()
        if name.endswith((".update_rejected", ".listener_create_failure", ".update_failure")) and value
    }
    assert rejected == {}
    assert stats["listener_manager.total_listeners_active"] == len(world.settings.listeners)
    assert stats["runtime.deprecated_feature_use"] == 0
    assert "deprecated" not in world.envoy.log


async def test_no_timeout_cuts_a_stream(world: Any) -> None:
    """What Envoy really holds: no route timeout, no stream duration, the operator's idle timeout."""
    dump = await world.envoy.config_dump()
    text = json.dumps(dump)
    routes = [route for route in _found(dump, "route") if isinstance(route, dict) and "cluster" in route]
    assert len(routes) >= 3 * len(world.settings.listeners)
    # That of a WebSocket route ends with the handshake.
    assert {route["timeout"] for route in routes if "upgrade_configs" not in route} == {"0s"}
    assert set(_found(dump, "stream_idle_timeout")) == {"3600s"}
    for name in ("max_stream_duration", "request_timeout", "max_connection_duration"):
        assert f'"{name}"' not in text


async def test_pools_have_no_limit_that_a_busy_fleet_meets(world: Any) -> None:
    """1,024 is Envoy's default for connections, pending requests and requests."""
    clusters = await world.envoy.clusters()
    assert {"live", "warmroute_ext_proc"} <= set(clusters)
    dump = await world.envoy.config_dump()
    thresholds = [entry for held in _found(dump, "thresholds") for entry in held]
    assert len(thresholds) == len(world.settings.pools) + 1
    for entry in thresholds:
        assert {
            entry[name] >= 100_000 for name in ("max_connections", "max_pending_requests", "max_requests")
        } == {True}


@pytest.mark.parametrize("name", ["sidecar", "front-proxy"])
async def test_shipped_bootstrap_is_valid(name: Any) -> None:
    """`deploy/envoy` as it stands passes Envoy's own validation."""
    validation = await asyncio.create_subprocess_exec(
        str(envoy_binary()),
        *("--mode", "validate", "--config-path", str(DEPLOY / f"{name}.yaml"), "--disable-hot-restart"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await validation.communicate()
    assert validation.returncode == 0, output.decode()


async def test_envoy_that_cannot_start_says_why() -> None:
    """The harness reports Envoy's own words and leaves nothing behind."""
    process = EnvoyProcess({"static_resources": {"clusters": [{"name": "x", "no_such_field": 1}]}})
    with pytest.raises(BenchError, match="no_such_field"):
        async with process:
            pass
    assert not process._child.running


def _found(tree: object, key: str) -> list[Any]:
    if isinstance(tree, dict):
        own = [tree[key]] if key in tree else []
        return own + [held for value in tree.values() for held in _found(value, key)]
    if isinstance(tree, list):
        return [held for value in tree for held in _found(value, key)]
    return []
