"""Engines' paths of administration: closed at a listener, however they are spelt."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fleet.engine_paths import ALL_ADMIN_PATHS

pytestmark = [pytest.mark.asyncio, pytest.mark.io]

SPELLINGS = (
    "/sleep",
    "/sleep?level=2",
    "/sleep/",
    "//sleep",
    "/SLEEP",
    "/Sleep//",
    "/%73leep",
    "/%53LEEP",
    "/%2fsleep",
    "/sleep%2F",
    "/./sleep",
    "/v1/../sleep",
    "/v1/%2e%2e/sleep",
    "/v1%2Fload_lora_adapter",
    "/v1//unload%5Flora_adapter",
    "/v2/repository/models/m/unload",
    "/v2/models/m/trace/setting",
    "/slots/0?action=erase",
    "http://engine/reset_prefix_cache",
)
OTHERS = (
    "/v1/chat/completions",
    "/v1/models",
    "/health",
    "/sleepy",
    "/v1/sleep/x",
    "/v2/models/m/infer",
    "/x//y",
)


async def ask(world: Any, target: str, listener: str = "main", method: str = "POST") -> tuple[int, bytes]:
    """Send a path byte for byte, and return status and body."""
    host, port = world.url(listener, "").removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"{method} {target} HTTP/1.1\r\nhost: engine\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(10):
        header = await reader.readuntil(b"\r\n\r\n")
        length = int(header.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        body = await reader.readexactly(length)  # Envoy ends the connection a second later.
    writer.close()
    return int(header.split()[1]), body


@pytest.mark.parametrize("target", SPELLINGS)
async def test_no_spelling_of_a_closed_path_passes(world: Any, target: str) -> None:
    for method in ("GET", "POST"):
        status, body = await ask(world, target, method=method)
        assert status == 403
        assert json.loads(body)["error"]["code"] == "path_closed"
    assert not world.engines.served


async def test_every_listed_path_is_closed(world: Any) -> None:
    """Envoy has accepted the expressions, and each path is in one of them."""
    for path in ALL_ADMIN_PATHS:
        assert (await ask(world, path.replace("*", "m")))[0] == 403, path
    assert not world.engines.served


async def test_other_paths_pass_as_they_came(world: Any) -> None:
    for target in OTHERS:
        status, body = await ask(world, target)
        assert status == 200
        assert target in body.decode()


async def test_settings_open_all_paths_or_single_ones(world: Any) -> None:
    assert (await ask(world, "/%73leep", "quiet"))[0] == 200
    assert (await ask(world, "/metrics", "roomy", "GET"))[0] == 200
    assert (await ask(world, "/sleep", "roomy"))[0] == 403
