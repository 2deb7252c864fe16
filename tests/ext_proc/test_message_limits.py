"""What a peer of ext_proc sends costs no more than its limits say, and no request fails by them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bench.abuse import ext_proc_messages as abuse
from ext_proc.pick.subset import _MOST_ENTRIES, Subsets
from ext_proc.protocol.attributes import CONTENT_TYPE, LOOKED_HEADERS, MAX_SUBSET, NO_MORE, subset_of
from ext_proc.protocol.message import MAX_REST_BYTES, _rest_bytes, decode
from ext_proc.protocol.reply import budget_of
from fleet.envoy_api.config.core.v3 import base_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import DESTINATION_KEY, REMOVED_REQUEST_HEADERS
from fleet.service.serving import MAX_MESSAGE_BYTES
from tests.ext_proc.fake_envoy import body_message, headers_message, with_mode
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.transports import TRANSPORTS, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize("kind", abuse.KINDS)
def test_large_rest_is_refused_before_reading(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = abuse.KINDS[kind](600_000)
    assert len(data) > MAX_REST_BYTES
    monkeypatch.setattr("ext_proc.protocol.message.pb.ProcessingRequest", None)
    with pytest.raises(DecodeError, match="bytes without the body"):
        decode(data)


def test_a_body_may_be_as_long_as_a_message() -> None:
    whole = body_message(bytes(MAX_REST_BYTES * 4), end_of_stream=True)
    assert decode(whole.SerializeToString()) == whole
    assert MAX_MESSAGE_BYTES > 100 * MAX_REST_BYTES


def message_of(headers: list[str], body: bytes, end: bool, which: str) -> Any:
    sent: dict[str, Any] = {"observability_mode": end}
    if which.endswith("body"):
        sent[which] = pb.HttpBody(body=body, end_of_stream=end)
    else:
        values = [base_pb2.HeaderValue(key=key) for key in headers]
        sent[which] = pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=values))
    return pb.ProcessingRequest(**sent)


def messages() -> st.SearchStrategy[Any]:
    text = st.text("abc", max_size=200)
    return st.builds(
        message_of,
        st.lists(text, max_size=5),
        st.binary(max_size=500),
        st.booleans(),
        st.sampled_from(["request_body", "response_body", "request_headers", "response_headers"]),
    )


@given(messages())
def test_rest_is_measured_without_bodies(message: Any) -> None:
    body = len(message.request_body.body) + len(message.response_body.body)
    assert _rest_bytes(message.SerializeToString()) == message.ByteSize() - body


@given(st.binary(max_size=200))
def test_measuring_ends_whatever_is_sent(data: bytes) -> None:
    assert _rest_bytes(data) <= len(data)


class CountedHeaders:
    """Headers without an end, and how many were looked at."""

    def __init__(self, name: str) -> None:
        self.looked = 0
        self._one = base_pb2.HeaderValue(key=name, raw_value=b"x")

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.looked += 1
            yield self._one


def test_so_many_headers_are_looked_at_and_joined_once() -> None:
    headers, told = CountedHeaders(CONTENT_TYPE), dict[str, str]()
    sent: Any = SimpleNamespace(headers=headers)
    NO_MORE.read_headers(sent, told)
    assert told == {CONTENT_TYPE: ",".join("x" * LOOKED_HEADERS)}
    assert headers.looked == LOOKED_HEADERS


@pytest.mark.parametrize("before", [0, 101, 5000])
def test_routing_headers_are_removed_behind_many_others(before: int) -> None:
    sent = base_pb2.HeaderMap(headers=[base_pb2.HeaderValue(key="a", raw_value=b"b")] * before)
    sent.headers.add(key=DESTINATION_KEY, raw_value=b"10.0.0.1:80")
    room = budget_of(sent)
    assert DESTINATION_KEY in room.removed
    assert (room.removed == REMOVED_REQUEST_HEADERS) == (before == 0)
    assert (room.headers < 0) == (before > 100)


@pytest.mark.parametrize("kind", ["commas", "allowed"])
def test_so_many_endpoints_may_be_allowed(kind: str) -> None:
    allowed = subset_of(decode(abuse.KINDS[kind](20_000)).metadata_context)
    assert allowed is not None
    assert len(allowed) == (0 if kind == "commas" else MAX_SUBSET)


def test_sets_of_endpoints_are_kept_by_all_their_entries() -> None:
    subsets = Subsets()
    first = subsets(("a:1",))
    assert subsets(("a:1",)) is first
    for number in range(100):
        subsets((f"b:{number}",) * 4096)
        assert subsets(("a:1",)) is first, "what is asked for again and again stays"
    assert sum(map(len, subsets._kept)) <= _MOST_ENTRIES
    assert len(subsets._kept) > 10


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_message_over_the_limit_costs_its_pick_alone(tmp_path: Path, transport: str) -> None:
    """The stream ends with OK, for which Envoy goes on without us."""
    stage, address = Stage(sample_ratio=0.0), f"unix:{tmp_path}/s"
    async with serving(stage.service, address, transport), grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(abuse.METHOD)()
        await call.write(abuse.empty(500_000))
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        honest = channel.stream_stream(abuse.METHOD)()
        await honest.write(with_mode(headers_message(), "BUFFERED").SerializeToString())
        assert pb.ProcessingResponse.FromString(await honest.read()).HasField("request_headers")
        honest.cancel()
        assert stage.value("warmroute_ext_proc_unreadable_messages_total") == 1
        async with asyncio.timeout(60):
            assert await abuse.attack(address, "empty", 500_000, most_bytes=3_000_000, seconds=60.0) > 0
        assert stage.value("warmroute_ext_proc_unreadable_messages_total") == 4
        assert not stage.value("warmroute_ext_proc_faults_total", kind="DecodeError")
