"""Leading parts of bodies, as Envoy's ext_authz filter sends them: one call, one answer, a pick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from ext_proc.pick.result import Refusal
from ext_proc.processor import RequestStream
from ext_proc.protocol import leading
from ext_proc.protocol.reply import refusal_reply
from ext_proc.server import LEADING_SERVICE
from fleet.envoy_api.service.auth.v3 import external_auth_pb2 as auth
from fleet.names import (
    DESTINATION_KEY,
    DESTINATION_NAMESPACE,
    LEADING_BYTES,
    LEADING_CLUSTER,
    LEADING_LISTENER,
    METADATA_NAMESPACE,
    METADATA_POOL,
)
from fleet.names import (
    pool_of as pool_name,
)
from fleet.settings import parse_settings
from tests.ext_proc.fake_envoy import answer
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.transports import TRANSPORTS, serving
from tests.ext_proc.worlds import chat, pool_of, view_of

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 4096
SEVERAL = """
pools: [{name: p, models: [m]}, {name: q, models: [n], aliases: {gpt: n}}]
listeners: [{name: l, address: "127.0.0.1:1", pools: [p, q]}]
"""


def check(body: bytes, headers: dict[str, str] | None = None, **route: str) -> bytes:
    """Return a request as Envoy sends it; the body is cut as Envoy cuts it."""
    request = auth.CheckRequest()
    http = request.attributes.request.http
    http.raw_body = body[:LIMIT]
    usual = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}
    for name, value in {**usual, **(headers or {})}.items():
        http.header_map.headers.add(key=name, raw_value=value.encode())
    extensions = {LEADING_CLUSTER: "p", LEADING_BYTES: str(LIMIT), **route}
    request.attributes.context_extensions.update(extensions)
    return request.SerializeToString()


@pytest.mark.parametrize(("size", "ends"), [(1, True), (LIMIT - 1, True), (LIMIT, False), (LIMIT + 1, False)])
def test_a_full_part_counts_as_cut_off(size: int, ends: bool) -> None:
    """Whatever a client says of itself in the header that Envoy adds for it."""
    _, body = leading.decode(
        check(b"x" * size, {"x-envoy-auth-partial-body": str(not ends).lower()}), 1_000_000
    )
    assert (len(body.request_body.body), body.request_body.end_of_stream) == (min(size, LIMIT), ends)


def test_a_long_body_is_no_rest() -> None:
    big = auth.CheckRequest.FromString(check(b"{}"))
    big.attributes.request.http.raw_body = b"x" * 3_000_000
    _, body = leading.decode(big.SerializeToString(), 3_000_000)
    assert len(body.request_body.body) == 3_000_000


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff",
        check(b"{}", leading_bytes="many"),
        check(b"x" * LIMIT),
        check(b"{}", {f"x-{number}": "x" * 60_000 for number in range(10)}),
    ],
)
def test_what_is_not_ours_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        leading.decode(data, LIMIT - 1)


@pytest.mark.parametrize("may_refuse", [True, False])
def test_a_refusal_needs_the_settings(may_refuse: bool) -> None:
    reply = refusal_reply(Refusal(429, "later", 2.0))
    response = auth.CheckResponse.FromString(leading.encode([reply], may_refuse=may_refuse))
    assert (response.status.code != 0, response.denied_response.status.code) == (
        (True, 429) if may_refuse else (False, 0)
    )
    if may_refuse:
        fields = {option.header.key: option.header.value for option in response.denied_response.headers}
        assert fields == {"content-type": "application/json", "retry-after": "2"}


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("route", ["p", "q", "q/http1"])
@pytest.mark.parametrize("model", ["m", "n", "gpt", "nobody", None])
def test_picks_stay_in_the_pool_of_the_route(several: bool, route: str, model: str | None) -> None:
    """In that of the mark where the answer has one, otherwise in that of Envoy's route."""
    members = [pool_of("p"), pool_of("q", models=("n",), base=1)]
    stage = Stage()
    stage.world.store.publish(view_of(*members))
    stage.service.reconfigure(parse_settings(SEVERAL, environ={}))
    more = {LEADING_LISTENER: "l"} if several else {}
    stream, replies = RequestStream(stage.service, lasts=False), list[bytes]()
    for part in leading.decode(
        check(chat("word " * 5000, model), None, **{LEADING_CLUSTER: route}, **more), 1_000_000
    ):
        replies += [reply.SerializeToString() for reply in answer(stream, part)]
    stream.close()
    fields = auth.CheckResponse.FromString(leading.encode(replies, may_refuse=False)).dynamic_metadata
    shown = json_format.MessageToDict(fields)
    pool = shown[METADATA_NAMESPACE].get(METADATA_POOL, pool_name(route))
    chosen = {"m": "p", "n": "q", "gpt": "q"}.get(model or "", pool_name(route))
    assert pool == (chosen if several else pool_name(route))
    named = shown.get(DESTINATION_NAMESPACE, {}).get(DESTINATION_KEY, "")
    ends = {end.address for member in members if member.name == pool for end in member.endpoints}
    assert set(filter(None, named.split(","))) <= ends
    assert bool(named) or model not in {"m", "n"} or not several


@pytest.mark.io
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_one_call_is_one_pick(tmp_path: Path, transport: str) -> None:
    """It ends with its answer, so the request does not count as in flight; unreadable ones get no answer."""
    stage, address = Stage(), f"unix:{tmp_path}/s"
    async with serving(stage.service, address, transport), grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(f"/{LEADING_SERVICE}/Check")
        for body, more in ((chat("hi"), {}), (chat("word " * 5000), {}), (b"not JSON", {"x": "y"})):
            response = auth.CheckResponse.FromString(await call(check(body, more), timeout=10))
            assert response.status.code == 0
            fields = response.dynamic_metadata.fields
            picked = DESTINATION_NAMESPACE in fields
            assert picked is (body != b"not JSON")
            if picked:
                assert fields[DESTINATION_NAMESPACE].struct_value.fields[DESTINATION_KEY].string_value
            assert "reason" in fields[METADATA_NAMESPACE].struct_value.fields
        assert await call(b"\xff\xff", timeout=10) is None
    assert stage.picks("cold") + stage.picks("warm") == 2
    assert (stage.in_flight(), stage.value("warmroute_ext_proc_streams")) == (0, 0)
