"""The watch over HTTP/2: a fault of ours costs no engine its next probe; settings wait for first results."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from fleet.settings import parse_settings
from fleet.settings.membership import membership
from xds_server.http2 import watch as watch_module
from xds_server.http2.support import UNREACHED_SECONDS
from xds_server.http2.watch import Http2Watch

if TYPE_CHECKING:
    import pytest

ADDRESS = "127.0.0.1:1"


async def test_faulty_probe_is_counted_and_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = {
        "pools": [{"name": "p", "protocol": "h2", "endpoints": [{"address": ADDRESS}]}],
        "listeners": [{"name": "l", "address": "127.0.0.1:2", "pool": "p"}],
    }
    settings = parse_settings(json.dumps(written))
    registry, now, changes, probes = CollectorRegistry(), [0.0], [0], [0]

    async def faulty(*_: object) -> bool:
        probes[0] += 1
        if probes[0] == 1:
            raise RuntimeError("a fault of ours")
        return True

    async def good(*_: object) -> bool:
        await asyncio.sleep(0)
        return True

    def changed() -> None:
        changes[0] += 1

    monkeypatch.setattr(watch_module, "speaks_http2", faulty)
    monkeypatch.setattr(watch_module, "speaks_http1", good)
    watch = Http2Watch(settings, registry, lambda: now[0], on_change=changed)
    members = membership(settings)
    await watch.first_sync(members, 5.0)
    assert registry.get_sample_value("warmroute_http2_probe_faults_total") == 1.0
    assert (probes, changes, watch.choice.fallback) == ([1], [0], frozenset())

    now[0] = UNREACHED_SECONDS
    await watch.first_sync(members, 5.0)
    assert (probes, changes) == ([2], [1])
    assert watch.tick(members, now[0]).fallback == {"p"}
    await watch.close()
