"""The signal path without I/O: from pages and access logs to weights in the store."""

from __future__ import annotations

import json

from prometheus_client import CollectorRegistry

from fleet.settings.load import parse_settings
from fleet.settings.membership import membership
from warmroute.replay.signal_path import SignalPath

PAGE = """vllm:kv_cache_usage_perc{engine="0"} %s
vllm:num_requests_waiting{engine="0"} %s
vllm:num_requests_running{engine="0"} 4
vllm:prompt_tokens_total{engine="0"} %s
"""


def test_fuller_engine_gets_less_weight() -> None:
    addresses = ["10.0.0.1:8000", "10.0.0.2:8000"]
    pool = {"name": "p", "engine": "vllm", "endpoints": [{"address": address} for address in addresses]}
    listener = {"name": "l", "address": "127.0.0.1:9", "pool": "p"}
    settings = parse_settings(json.dumps({"pools": [pool], "listeners": [listener]}))
    path = SignalPath(settings, membership(settings), CollectorRegistry())
    for second in range(60):
        now = float(second)
        for address, used, queue in zip(addresses, (0.9, 0.1), (20, 0), strict=True):
            page = PAGE % (used, queue, second * 1000)
            path.put(address, path.read(address, page.encode(), now), now)
        view = path.tick(now)
    assert path.store.view is view
    assert view.weights == path.weights
    assert view.weights[addresses[0]] < view.weights[addresses[1]]
    assert view.signals["memory_used_ratio"].tolist() == [0.9, 0.1]
