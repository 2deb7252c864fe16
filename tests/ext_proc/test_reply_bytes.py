"""Replies that are spliced from bytes equal those that protobuf would build."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.pick import PickResult, Reason
from ext_proc.protocol.reply import PIECE_BYTES, UNCHANGED, HeaderBudget, body_reply, echo, headers_reply
from fleet.envoy_api.config.core.v3 import base_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import DESTINATION_KEY, REMOVED_REQUEST_HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGESTS = st.integers(0, 2**64 - 1)
ENDPOINTS = st.lists(st.from_regex(r"10\.0\.[0-9]{1,3}\.1:80", fullmatch=True), max_size=20).map(tuple)
RESULTS = st.builds(
    PickResult,
    ENDPOINTS,
    st.sampled_from(Reason),
    st.floats(0, 1),
    st.sampled_from(("", "0123456789abcdef")),
    st.none() | st.floats(0, 1e6),
    st.none(),
    DIGESTS,
    DIGESTS,
    DIGESTS,
)
MORE = st.dictionaries(st.sampled_from(("trace", "idempotency", "blocks")), st.text(max_size=300))


def metadata_of(result: PickResult, more: Mapping[str, str], *, crowded: bool) -> dict[str, Any]:
    """Return what Envoy is to read, by namespace."""
    first, ours = result.endpoints[:1], {"trace": more["trace"]} if "trace" in more else {}
    if first and result.expected_seconds is not None:
        ours["expected"] = f"{result.expected_seconds:.6f}"
    if first and result.prompt:
        ours["prompt"], ours["request"] = f"{result.prompt:016x}", f"{result.request:016x}"
        ours["serial"] = f"{result.serial:016x}"
    if not crowded:
        ours |= {"reason": result.reason.value, **more}
        ours |= {"prefix": result.prefix} if result.prefix else {}
        ours |= {"endpoint": first[0], "matched": f"{result.matched_share:.2f}"} if first else {}
    named = {"envoy.lb": {DESTINATION_KEY: ",".join(result.endpoints)}} if first else {}
    return {**named, "warmroute": ours}


@given(RESULTS, MORE, st.booleans())
def test_body_reply_equals_protobufs(result: PickResult, more: Mapping[str, str], crowded: bool) -> None:
    expected = pb.ProcessingResponse()
    expected.request_body.response.SetInParent()
    expected.dynamic_metadata.update(metadata_of(result, more, crowded=crowded))
    reply = body_reply(result, None, more, clear_route_cache=True, crowded=crowded)
    assert pb.ProcessingResponse.FromString(reply) == expected


@pytest.mark.parametrize("share", [-0.0, math.nan, 12.5])
@pytest.mark.parametrize("serial", [1, 2**64 + 1])
def test_body_reply_is_whole_for_any_number(share: float, serial: int) -> None:
    """A number out of its range costs its own value only, not the reply."""
    result = PickResult(("10.0.0.1:80",), Reason.COLD, share, prompt=1, request=2, serial=serial)
    reply = pb.ProcessingResponse.FromString(body_reply(result, None, clear_route_cache=False))
    ours = reply.dynamic_metadata.fields["warmroute"].struct_value.fields
    assert ours["matched"].string_value == f"{share:.2f}"
    assert ours["serial"].string_value == f"{1:016x}"


@given(RESULTS, st.integers(0, 200), st.booleans(), st.booleans())
def test_headers_reply_equals_protobufs(result: PickResult, room: int, clear: bool, reroute: bool) -> None:
    expected = pb.ProcessingResponse()
    response = expected.request_headers.response
    headers = (
        {DESTINATION_KEY: ",".join(result.endpoints), "x-warmroute-endpoint": result.endpoints[0]}
        if (result.endpoints)
        else {}
    )
    left = room
    for name, value in headers.items():
        left -= len(name) + len(value)
        if left < 0:
            break
        option = response.header_mutation.set_headers.add(
            append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
        )
        option.header.key, option.header.raw_value = name, value.encode()
    names = {option.header.key for option in response.header_mutation.set_headers}
    response.header_mutation.remove_headers.extend(
        name for name in REMOVED_REQUEST_HEADERS if name not in names
    )
    response.clear_route_cache = reroute or (clear and bool(names))
    expected.dynamic_metadata.update(metadata_of(result, {}, crowded=True))
    reply = headers_reply(result, HeaderBudget(2, room), clear_route_cache=clear, reroute=reroute)
    assert pb.ProcessingResponse.FromString(reply) == expected


@pytest.mark.parametrize("kind", UNCHANGED)
def test_unchanged_reply_equals_protobufs(kind: str) -> None:
    expected = pb.ProcessingResponse()
    getattr(expected, kind).SetInParent()
    if not kind.endswith("trailers"):
        getattr(expected, kind).response.SetInParent()
    assert UNCHANGED[kind] == expected.SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 127, 128, PIECE_BYTES, 3 * PIECE_BYTES + 1])
def test_echo_joins_to_the_body(size: int) -> None:
    body, result = bytes(size), PickResult(("10.0.0.1:80",), Reason.COLD)
    replies = [pb.ProcessingResponse.FromString(each) for each in echo("request_body", body, True, result)]
    pieces = [reply.request_body.response.body_mutation.streamed_response for reply in replies]
    assert b"".join(piece.body for piece in pieces) == body
    assert [piece.end_of_stream for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert [reply.HasField("dynamic_metadata") for reply in replies] == [True] + [False] * (len(pieces) - 1)
