"""Traces with the real Envoy: a weight update up to its ACK, and a request that continues its client's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp

from bench import trace
from bench.trace_figures import result_of
from fleet.names import HEADER_REASON
from testing.spans import OtlpReceiver
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings, running_cluster

if TYPE_CHECKING:
    import pytest

    from testing.spans import Span

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_changed_signal_is_one_trace_up_to_envoys_ack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trace, "_LOST_SECONDS", 60.0)
    monkeypatch.setattr(trace, "_ARRIVE_SECONDS", 60.0)
    async with OtlpReceiver() as receiver:
        measured = await trace.measure(receiver, changes=3, tick=0.05, scrape=0.05)
        result, wanted = result_of(measured, 0.05, 0.05)
        unmet = [entry for entry in wanted if not entry.met and not entry.name.startswith("signal_to_ack")]
        assert unmet == [], result
        assert result["changes_with_a_complete_trace"] == 3
        assert {
            span.attributes["warmroute.node"] for span in measured.spans if span.name.endswith("ack")
        } == {"bench"}
        assert receiver.service_names == {"warmroute"}


async def test_a_request_continues_its_clients_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the prompt is in it."""
    prompt = "a very secret prompt " * 50
    async with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        settings = ClusterSettings(
            "serve",
            2,
            EngineSettings(speed_up=50),
            {"telemetry": {"traces": "otlp", "pick_sample_ratio": 0.0}, "limits": {"drain_seconds": 0.1}},
        )
        async with running_cluster(settings) as cluster, aiohttp.ClientSession() as client:
            body = {"model": "smol", "messages": [{"role": "user", "content": prompt}], "max_tokens": 2}
            url = f"http://{cluster.address}/v1/chat/completions"
            served = ""
            for headers in ({}, {"traceparent": CLIENT}):
                served = await _picked(client, url, body, headers)
            pick = await _arrived(receiver, "warmroute.pick")
            request = await _arrived(receiver, "warmroute.request", below=pick)
            request_id = pick.attributes["warmroute.request_id"]
            async with client.get(
                f"http://{cluster.admin_address}/api/v1/decisions", params={"request": request_id}
            ) as response:
                (told,) = (await response.json())["picks"]
            await _override(client, cluster, served)
        spans = await receiver.spans()
    assert [span.name for span in spans].count("warmroute.pick") == 1, "the other request asked for none"
    assert (pick.trace_id, pick.parent_id) == (CLIENT[3:35], CLIENT[36:52])
    assert pick.attributes["warmroute.endpoint"] == served == told["endpoint"]
    assert (request.trace_id, request.parent_id) == (pick.trace_id, pick.span_id)
    assert request.attributes["warmroute.endpoint"] == request.attributes["warmroute.picked"] == served
    assert request.attributes["warmroute.expected_seconds"] >= 0
    assert request.attributes["warmroute.first_byte_seconds"] > 0
    assert request.attributes["http.response.status_code"] == 200
    assert request.start <= pick.start, "it covers the request from its arrival at Envoy"
    assert told["trace"] == f"00-{pick.trace_id}-{pick.span_id}-01"
    assert {name for name, _ in pick.events} == {"candidate"}
    assert "secret" not in repr(spans)


async def _override(client: aiohttp.ClientSession, cluster: Cluster, address: str) -> None:
    """An operator's word is in force at once, is told as such, and can be taken back."""
    api = f"http://{cluster.admin_address}/api/v1"
    for weight in (7, None):
        change = {"weights": {address: weight}, "expires_seconds": 60}
        async with client.post(f"{api}/update_weights", json=change) as response:
            answer = await response.json()
        assert response.status == 200, answer
        assert answer["kept_over_restart"]
        shown = answer["weights"][address]
        assert (shown["weight"] == 7, shown["reason"] == "override") == (weight == 7, weight == 7)
        assert (shown["overridden_until"] is None) is (weight is None)
        async with client.get(f"{api}/decisions", params={"endpoint": address}) as response:
            told = await response.json()
        assert told["weights"][0]["weight"] == told["verdict"]["weight"] == shown["weight"]
    async with client.post(f"{api}/update_weights", data=b"{}") as response:
        assert response.status == 415


async def _picked(
    client: aiohttp.ClientSession, url: str, body: dict[str, Any], headers: dict[str, str]
) -> str:
    """Ask until ext_proc has had its say, which a stalled one has not; return who has served."""
    async with asyncio.timeout(60):
        while True:
            async with client.post(url, json=body, headers=headers) as response:
                assert response.status == 200
                if HEADER_REASON in response.headers:
                    return response.headers["x-warmroute-served"]
            await asyncio.sleep(0.05)


async def _arrived(receiver: OtlpReceiver, name: str, below: Span | None = None) -> Span:
    async with asyncio.timeout(60):
        while True:
            for span in await receiver.spans():
                if span.name == name and (below is None or span.parent_id == below.span_id):
                    return span
            await asyncio.sleep(0.05)
