"""Pools whose engines speak HTTP/2 alone: what happens to one of them never sends the others HTTP/1.1."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from tests.envoy.conftest import eventually
from tests.envoy.site import site
from tests.envoy.sockets import HANDSHAKE, PATH, masked
from tests.envoy.two_tongues import TwoTongues

if TYPE_CHECKING:
    from pathlib import Path

    from tests.envoy.site import Site


async def _plain(held: Site, pool: str) -> tuple[int, str]:
    """A request without an upgrade on the path of upgrades: its status, and how the engine was asked."""
    async with held.client.get(f"http://{held.addresses[pool]}{PATH}") as response:
        return response.status, (await response.json())["over"] if response.status == 200 else ""


@pytest.mark.parametrize("protocol", ["h2", "auto"])
async def test_engine_killed_under_load_harms_no_other(tmp_path: Path, protocol: str) -> None:
    """Requests in flight end with it, as with Envoy alone; all that come later are served, over HTTP/2."""
    async with contextlib.AsyncExitStack() as stack:
        pools: dict[str, tuple[str, list[str]]] = {}
        engines: dict[str, list[TwoTongues]] = {}
        for name in ("only", "both"):
            made = engines[name] = [await stack.enter_async_context(TwoTongues()) for _ in range(2)]
            for engine in made:
                engine.speaks_http1 = name == "both"
            pools[name] = (protocol, [engine.address for engine in made])
        held = await stack.enter_async_context(site(tmp_path, pools))
        for name in pools:
            await held.reaches(name, "HTTP/2")
        assert await _plain(held, "only") == (200, "HTTP/2")
        assert await _plain(held, "both") == (200, "HTTP/1.1")

        release = asyncio.Event()
        everybody = [engine for made in engines.values() for engine in made]
        for engine in everybody:
            engine.holding = release
        in_flight = [asyncio.create_task(held.over(name)) for name in pools for _ in range(16)]
        await eventually(lambda: sum(engine.waiting for engine in everybody) >= len(in_flight), "in flight")
        for dying, _ in engines.values():
            dying.die()
        release.set()
        lost = [task for task in await asyncio.gather(*in_flight) if task != "HTTP/2"]
        assert len(lost) >= 6, "so many in each pool would have been enough to move it"

        held.statuses.clear()
        for _ in range(12):
            assert {await held.over(name) for name in pools} == {"HTTP/2"}
            assert (await _plain(held, "only"))[0] == (await _plain(held, "both"))[0] == 200
            await asyncio.sleep(0.1)
        assert held.bad()["moved"] == []


async def test_websockets_reach_http2_engines_by_extended_connect(tmp_path: Path) -> None:
    """From a client of HTTP/1.1; with Envoy's own configuration for it they would."""
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(TwoTongues())
        engine.speaks_http1 = False
        held = await stack.enter_async_context(site(tmp_path, {"only": ("h2", [engine.address])}))
        host, port = held.addresses["only"].split(":")
        for path in (PATH, "/elsewhere"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write("\r\n".join([f"GET {path} HTTP/1.1", "host: engine", *HANDSHAKE, "", ""]).encode())
            async with asyncio.timeout(60):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
                writer.write(masked(b"hello"))
                assert await reader.readexactly(11) == masked(b"hello")
            writer.close()


async def test_a_bad_engine_moves_nobody_who_may_not_speak_http1(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own requests fail as with Envoy alone; the log names the pool, and that of one that has moved."""
    caplog.set_level(logging.INFO)
    async with contextlib.AsyncExitStack() as stack:
        bad, good, old = [await stack.enter_async_context(TwoTongues(m)) for m in ("goaway", "good", "none")]
        good.speaks_http1 = False
        pools: dict[str, tuple[str, list[str]]] = {
            "stays": ("h2", [bad.address, good.address]),
            "old": ("h2", [old.address]),
        }
        held = await stack.enter_async_context(site(tmp_path, pools))
        await held.reaches("old", "HTTP/1.1")
        await eventually(lambda: held.bad()["held"] == ["stays"], "known to be bad, and staying")
        assert (held.bad()["moved"], {await held.over("stays") for _ in range(8)} <= {"HTTP/2", "503"}) == (
            ["old"],
            True,
        )
        warned: list[Any] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert any(text.startswith("pool old goes by HTTP/1.1") for text in warned)
        assert any(text.startswith("pool stays stays with HTTP/2") for text in warned)

        bad.manner = "good"
        await eventually(lambda: held.bad()["held"] == [], "it speaks well again")
        good.speaks_http1 = True
        await eventually(lambda: "stays" in held.bad()["fallback_over_http1"], "asked again")
