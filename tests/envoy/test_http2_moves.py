"""The loop closed: engines that speak HTTP/2 badly are found by the access log, moved, and tried again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Any

from fleet.settings import parse_settings
from testing.certificates import Authority
from tests.envoy.site import site
from tests.envoy.two_tongues import TwoTongues

if TYPE_CHECKING:
    from pathlib import Path


async def test_engines_are_moved_and_come_back(tmp_path: Path) -> None:
    """Each way of speaking badly, in a pool of its own; the others are not touched."""
    async with contextlib.AsyncExitStack() as stack:

        async def engine(manner: Any = "good") -> TwoTongues:
            return await stack.enter_async_context(TwoTongues(manner))

        turning, looping = await engine(), await engine()
        pools = {
            "turning": ("h2", [turning.address]),
            "looping": ("h2", [looping.address]),
            "steady": ("h2", [(await engine()).address]),
            "auto": ("auto", [(await engine()).address for _ in range(2)]),
            "mixed": ("auto", [(await engine(manner)).address for manner in ("good", "none")]),
        }
        held = await stack.enter_async_context(site(tmp_path, pools))
        for pool in ("turning", "looping", "steady"):
            assert await held.over(pool) == "HTTP/2"
        await held.reaches("auto", "HTTP/2")
        assert {await held.over("mixed") for _ in range(12)} == {"HTTP/1.1"}
        assert set(held.statuses) == {200}, "nobody is tried with a client's request"

        turning.manner, turning.well_for_probes = "garbage", True
        looping.manner = "goaway"
        await asyncio.gather(held.reaches("turning", "HTTP/1.1"), held.reaches("looping", "HTTP/1.1"))
        failed = [status for status in held.statuses if status != 200]
        assert set(failed) <= {502, 503}
        assert "looping" in held.bad()["moved"]

        held.statuses.clear()
        turning.manner = "good"
        await held.reaches("turning", "HTTP/2")
        assert looping.address in held.bad()["bad"], "it was asked, and is bad still"
        assert {await held.over("looping") for _ in range(4)} == {"HTTP/1.1"}
        looping.manner = "good"
        await held.reaches("looping", "HTTP/2")
        assert set(held.statuses) == {200}, "neither trials nor returns cost a request"
        assert await held.over("steady") == "HTTP/2"
        assert {await held.over("mixed") for _ in range(12)} == {"HTTP/1.1"}


async def test_tls_agrees_on_the_protocol(tmp_path: Path) -> None:
    """`auto` takes what each engine offers, and a pool that breaks it moves and is tried with requests."""
    authority = Authority(tmp_path, "engines")
    pair = authority.issue("engine", "engines.test")

    def context(*offered: str) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(pair.certificate_file, pair.key_file)
        made.set_alpn_protocols(list(offered))
        return made

    async with contextlib.AsyncExitStack() as stack:

        async def engine(*offered: str) -> TwoTongues:
            return await stack.enter_async_context(TwoTongues(context=context(*offered)))

        both, old, two = await engine("h2", "http/1.1"), await engine("http/1.1"), await engine("h2")
        pools = {
            name: (protocol, [held.address])
            for name, protocol, held in (("auto", "auto", both), ("old", "auto", old), ("two", "h2", two))
        }
        tls = {"ca_file": str(authority.file), "sni": "engines.test"}
        held = await stack.enter_async_context(site(tmp_path, pools, tls=tls))
        assert await held.over("auto") == "HTTP/2"
        assert await held.over("old") == "HTTP/1.1"
        assert await held.over("two") == "HTTP/2"
        both.manner = "garbage"
        await held.reaches("auto", "HTTP/1.1")
        both.manner = "good"
        await held.reaches("auto", "HTTP/2")


async def test_settings_that_change_the_protocol_fail_no_request(tmp_path: Path) -> None:
    """The pool's cluster is built anew, under load, with the same endpoints."""
    async with contextlib.AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(TwoTongues()) for _ in range(2)]
        addresses = [engine.address for engine in engines]
        held = await stack.enter_async_context(site(tmp_path, {"pool": ("http1", addresses)}))
        ended = asyncio.Event()

        async def ask() -> None:
            while not ended.is_set():
                await held.over("pool")

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        engines[0].slow_seconds = 0.05
        for protocol, seen in (("h2", "HTTP/2"), ("http1", "HTTP/1.1"), ("auto", "HTTP/2")):
            held.written["pools"][0]["protocol"] = protocol
            await held.server.apply(parse_settings(json.dumps(held.written)))
            over_http1 = held.bad()["upgrades_over_http1"]
            assert over_http1 == ([] if protocol == "http1" else ["pool"]), "known before routes change"
            await held.reaches("pool", seen)
        ended.set()
        await asyncio.gather(*asking)
        assert set(held.statuses) == {200}
