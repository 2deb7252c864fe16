"""The product's ext_proc behind Envoys that other people have configured: modes, bodies, chunkings."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio

from ext_proc.pick import Decision, PickResult, Reason, Refusal
from fleet.names import DESTINATION_KEY, REMOVED_REQUEST_HEADERS
from tests.envoy import foreign as others
from tests.envoy.conftest import eventually
from tests.envoy.foreign import DUPLEX, MODES, Foreign, Way, foreign

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READING = ["BUFFERED", "BUFFERED_PARTIAL", DUPLEX]
"""Modes in which a pick by the body can be obeyed."""
WAYS = [
    *(Way(f"{mode}-{allow}", mode, allow=allow) for mode in MODES for allow in (True, False)),
    Way("gateway", DUPLEX, allow=False, response=DUPLEX),
    Way("gateway-buffered", "BUFFERED", allow=False, response="BUFFERED"),
    Way("gateway-partial", "BUFFERED_PARTIAL", response="BUFFERED_PARTIAL"),
    Way("streamed-response", "STREAMED", response="STREAMED"),
    Way("quick", "STREAMED", extra={"send_body_without_waiting_for_header_response": True}),
    Way("observed", "STREAMED", response="STREAMED", extra={"observability_mode": True}),
    *(Way(f"{mode}-header", mode, cluster="by_header") for mode in MODES),
    *(Way(f"{mode}-slow", mode, allow=False, extra={"message_timeout": "2s"}) for mode in MODES),
    *(Way(f"{mode}-upgrade", mode, extra={"allow_mode_override": True}) for mode in MODES),
]
OTHERS = [way for way in WAYS if not way.name.endswith(("-header", "-slow"))]
CARRIED = [
    *(pytest.param("lane", way, id=way.name) for way in OTHERS),
    *(
        pytest.param("grpcio", way, id=f"{way.name}-grpcio")
        for way in OTHERS
        if way.name.endswith("-False") or way.name == "gateway"
    ),
]
"""Every way on the lane, each mode on grpcio too."""
BODY = json.dumps({"model": "m", "prompt": "Grüße, 世界 🦙 " * 300}, ensure_ascii=False).encode()
BODIES = {
    "none": None,
    "empty": b"",
    "small": b'{"model":"m","prompt":"hi"}',
    "multi-byte": BODY,
    "cut": BODY[: len(BODY) // 2],
    "no JSON": b"\xff\x00\xfe" * 99,
    "gzip": gzip.compress(BODY),
    "large": json.dumps({"model": "m", "prompt": "x" * 700_000}).encode(),
}
JSON = {"content-type": "application/json"}
PAUSES = ["0", "0.6"]
"""In seconds, between the pieces of an upload: all of them together last longer than a message may."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(request: pytest.FixtureRequest) -> AsyncIterator[Foreign]:
    """On the lane, or on the transport that the test names."""
    async with foreign(WAYS, transport=getattr(request, "param", "lane")) as made:
        yield made


async def chunks(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def ask(
    world: Foreign, way: str, body: Any = BODY, method: str = "POST", **options: Any
) -> tuple[Any, Any]:
    """Send a request; returns the response, with its text read, and what the engine saw."""
    options.setdefault("headers", JSON)
    path = options.pop("path", "/v1/chat/completions")
    # A connection of its own: Envoy closes some after what it calls an error.
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http,
        http.request(method, world.url(way, path), data=body, **options) as response,
    ):
        text = await response.text()
    with contextlib.suppress(ValueError):
        return response, json.loads(text)
    return response, {"text": text}


def shown(seen: dict[str, Any]) -> dict[str, str]:
    """Routing headers that the engine saw."""
    return {name: value for name, value in seen["headers"] if name in REMOVED_REQUEST_HEADERS}


@pytest.mark.parametrize(("world", "way"), CARRIED, indirect=["world"])
async def test_every_body_reaches_the_engine_as_it_was(world: Foreign, way: Way) -> None:
    """Whole, in random pieces or byte by byte; picked where the mode allows; what clients forge is gone."""
    limit = await world.stat(way.name, "rejected_header_mutations")
    for name, body in BODIES.items():
        for size in (0, 1, 8191):
            if size and (not body or (size == 1 and len(body) > 300)):
                continue
            data = body if body is None or not size else chunks(body, size)
            headers = {**JSON, DESTINATION_KEY: world.pool[2], "X-Warmroute-Endpoint": "1.2.3.4:5"}
            if name == "gzip":
                headers["content-encoding"] = "gzip"
            response, seen = await ask(
                world, way.name, data, "GET" if body is None else "POST", headers=headers
            )
            assert response.status == 200, (name, size)
            # The engine here decodes what is told to be encoded: both arrive as they were.
            whole = BODY if name == "gzip" else body or b""
            assert seen["sha256"] == hashlib.sha256(whole).hexdigest(), (name, size, seen["bytes"])
            if way.name == "observed":
                continue
            pick = world.newest
            if way.mode in READING and name in {"small", "multi-byte", "large"}:
                assert seen["address"] == pick.endpoints[0], (name, size, pick)
                assert shown(seen)[DESTINATION_KEY] == ",".join(pick.endpoints)
            if not pick.endpoints:
                assert shown(seen) == {}, (name, size)
    assert await world.stat(way.name, "rejected_header_mutations") == limit
    for counter in ("spurious_msgs_received", "streams_failed", "failure_mode_allowed", "message_timeouts"):
        assert await world.stat(way.name, counter) == 0, counter


UPLOAD = (
    b"--b\r\ncontent-disposition: form-data; name=file\r\n\r\n" + bytes(range(256)) * 12_000 + b"\r\n--b--"
)
NO_JSON = {
    "HEAD": (None, {}),
    "OPTIONS": (None, {}),
    "DELETE": (None, {}),
    "multipart": (UPLOAD, {"content-type": "multipart/form-data; boundary=b"}),
    "octets": (UPLOAD, {"content-type": "application/octet-stream"}),
    "form": (b"prompt=hi&model=m", {"content-type": "application/x-www-form-urlencoded"}),
}


@pytest.mark.parametrize("mode", MODES)
async def test_what_has_no_json_in_it_passes_and_is_steered_by_nobody(world: Foreign, mode: str) -> None:
    """Nothing waits for a body that does not come, and an upload of 3 MB is held by nobody."""
    forged = {DESTINATION_KEY: world.pool[2], "x-warmroute-prefix": "1,2"}
    for name, (body, headers) in NO_JSON.items():
        if mode == "BUFFERED" and body is UPLOAD:
            continue  # Envoy itself answers 413 to what is larger than its buffer.
        method = name if body is None else "POST"
        response, seen = await ask(
            world, f"{mode}-False", body and io.BytesIO(body), method, headers={**headers, **forged}
        )
        assert response.status == 200, name
        if name == "HEAD":
            continue
        assert seen["sha256"] == hashlib.sha256(body or b"").hexdigest(), name
        assert shown(seen) == {}, name
        assert world.newest.endpoints == (), name


@pytest.mark.parametrize(("world", "way"), CARRIED, indirect=["world"])
async def test_every_response_reaches_the_client_as_it_was(world: Foreign, way: Way) -> None:
    """A token stream is passed on as it comes, whatever of it is shown to us."""
    whole = way.response in {"BUFFERED", "BUFFERED_PARTIAL"}
    world.engines.release = asyncio.Event()
    url = world.url(way.name, "/stream" if whole else "/stream?held=1")
    async with world.http.post(url, data=BODY, headers=JSON) as response:
        if not whole:
            assert await asyncio.wait_for(response.content.readuntil(b"\n\n"), 60) == b"data: first\n\n"
        world.engines.release.set()
        assert (await response.read()).endswith(b"data: last\n\n")
    assert response.status == 200


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("allow", [True, False])
async def test_headers_at_envoys_limits_fail_nobody(world: Foreign, mode: str, allow: bool) -> None:
    """Up to the most that Envoy takes of a client: it would answer 500 to a mutation that goes beyond."""
    way = f"{mode}-{allow}"
    for count in (80, 86, 88, *range(89, 95)):
        headers = {**JSON, **{f"x-{number:03}": "v" for number in range(count)}}
        response, seen = await ask(world, way, headers=headers)
        assert response.status == 200, count
        if mode in READING:
            assert seen["address"] == world.newest.endpoints[0], "metadata tells the pick all the same"
    for size in (58_000, 60_500, 60_800, 61_000):
        headers = {**JSON, **{f"x-{number}": "v" * (size // 10 - 3) for number in range(10)}}
        assert (await ask(world, way, headers=headers))[0].status == 200, size
    assert await world.stat(way, "rejected_header_mutations") == 0


@pytest.mark.parametrize("mode", READING)
async def test_nobody_smuggles_past_the_limits(world: Foreign, mode: str) -> None:
    """Too many headers to change any, and a forged one among them: it fails, and steers nothing."""
    headers = {**JSON, **{f"x-{number:03}": "v" for number in range(92)}, DESTINATION_KEY: world.pool[2]}
    response, _ = await ask(world, f"{mode}-header", headers=headers)
    assert response.status == 500


@pytest.mark.parametrize("mode", MODES)
async def test_a_header_alone_steers_too(world: Foreign, mode: str) -> None:
    """Gateways whose cluster looks at the header; a client's own is not looked at."""
    for target in world.pool:
        headers = {**JSON, DESTINATION_KEY: target}
        response, seen = await ask(world, f"{mode}-header", headers=headers)
        assert response.status == 200
        if mode in READING:
            assert seen["address"] == world.newest.endpoints[0]
    if mode not in READING:
        engines = {(await ask(world, f"{mode}-header", headers=headers))[1]["address"] for _ in range(15)}
        assert engines != {world.pool[-1]}


@pytest.mark.parametrize("mode", READING)
@pytest.mark.parametrize("source", ["True", "header"])
async def test_retries_walk_the_list(world: Foreign, mode: str, source: str) -> None:
    """With the whole body, in the order of the pick."""
    world.engines.failures = 1
    response, seen = await ask(world, f"{mode}-{source}")
    attempts = [address for address, _ in tuple(world.engines.newest)[-2:]]
    assert attempts == list(world.newest.endpoints[:2])
    assert (response.status, seen["address"], seen["bytes"]) == (200, attempts[1], len(BODY))


@pytest.mark.parametrize("mode", MODES)
async def test_upgrades_pass(world: Foreign, mode: str) -> None:
    """Envoy 1.40 hangs while it buffers frames; where it lets us, we ask it not to send them."""
    way = f"{mode}-upgrade" if mode in {"BUFFERED", "BUFFERED_PARTIAL"} else f"{mode}-True"
    forged = {DESTINATION_KEY: world.pool[2], "X-Warmroute-Endpoint": "1.2.3.4:5"}
    for name in {way, f"{mode}-upgrade"}:
        url = world.url(name, "/ws")
        async with world.http.ws_connect(url, protocols=("chat",), headers=forged) as ws:
            assert ws.protocol == "chat"
            seen = json.loads(ws._response.headers["x-seen"])
            assert not {*seen} & {*REMOVED_REQUEST_HEADERS}, "a client's own routing headers are gone"
            await ws.send_str("hi")
            assert await asyncio.wait_for(ws.receive_str(), 60) == "echo hi"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def uploads(world: Foreign) -> dict[tuple[str, str], tuple[int, str]]:
    """Status and digest of uploads in pieces so many seconds apart: in all modes at the same time."""

    async def pieces(after: str) -> AsyncIterator[bytes]:
        for start in range(0, len(BODY), 2000):
            yield BODY[start : start + 2000]
            await asyncio.sleep(float(after))

    async def upload(mode: str, after: str) -> tuple[int, str]:
        response, seen = await ask(world, f"{mode}-slow", pieces(after))
        return response.status, seen["sha256"]

    kinds = [(mode, after) for mode in MODES for after in PAUSES]
    return dict(zip(kinds, await asyncio.gather(*(upload(*kind) for kind in kinds)), strict=True))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("after", PAUSES)
async def test_a_slow_upload_is_waited_for(
    uploads: dict[tuple[str, str], tuple[int, str]], mode: str, after: str
) -> None:
    """Full duplex keeps the headers' reply back all the while, and no timeout of Envoy's minds."""
    assert uploads[mode, after] == (200, hashlib.sha256(BODY).hexdigest())


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("way", "lasting"),
    [
        ("BUFFERED-True", {"POST"}),
        ("BUFFERED_PARTIAL-True", {"POST"}),
        ("STREAMED-True", {"POST"}),
        ("streamed-response", {"GET", "POST"}),
        ("gateway", {"GET", "POST"}),
        ("NONE-True", set()),
        (f"{DUPLEX}-True", set()),
    ],
)
async def test_how_long_a_stream_lasts(world: Foreign, way: str, lasting: set[str], method: str) -> None:
    """As long as the response, unless nothing is processed any more, as `Exchange.lasts` has it."""
    service = world.service
    assert service is not None
    body = None if method == "GET" else BODY
    world.engines.release = asyncio.Event()
    await eventually(lambda: service.processor.streams == 0, "those before have ended")
    url = world.url(way, "/stream?held=1")
    async with world.http.request(method, url, data=body, headers=JSON) as response:
        await response.content.readuntil(b"\n\n")
        await asyncio.sleep(0.1)  # Who is to end has ended by then, mostly: else that is waited for.
        await eventually(lambda: service.processor.streams == int(method in lasting), "as long as it lasts")
        world.engines.release.set()
        await response.read()


@pytest.mark.parametrize(
    "way", ["NONE-True", "BUFFERED-False", "BUFFERED_PARTIAL-True", "STREAMED-False", "gateway"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_refusal_reaches_the_client(
    world: Foreign, way: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every mode, whether or not Envoy lets failures pass: it is no failure."""
    assert world.service is not None
    refusal = PickResult.refuse(Reason.OVER_LIMIT, Refusal(429, "busy", 2.5))
    monkeypatch.setattr(world.service.processor.director, "pick", lambda *_, **__: Decision(refusal))
    response, seen = await ask(world, way, None if method == "GET" else BODY, method)
    assert response.status == 429
    assert response.headers["retry-after"] == "3"
    assert response.content_type == "application/json"
    assert seen["error"] == {
        "message": "busy",
        "type": "rate_limit_error",
        "param": None,
        "code": "overloaded",
    }


@pytest.mark.parametrize("mode", MODES)
async def test_illegal_bytes_of_a_client_harm_nothing(world: Foreign, mode: str) -> None:
    """Header bytes that are no UTF-8, and a model name that looks like headers."""
    host, _, port = world.addresses[f"{mode}-False"].partition(":")
    body = json.dumps({"model": "a\r\nx-admin: 1\x00é", "prompt": "x", "cache_salt": "\n"}).encode()
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            b"POST /v1/x HTTP/1.1\r\nhost: x\r\nconnection: close, x-warmroute-endpoint\r\n"
            b"x-session-id: caf\xe9\r\nx-warmroute-endpoint: 1.2.3.4:5\r\nX-Warmroute-Endpoint: caf\xe9\r\n"
            b"content-type: application/json\r\ncontent-length: "
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )
        answer = await asyncio.wait_for(reader.read(-1), 60)
    finally:
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"x-admin" not in answer.lower()
    assert b"1.2.3.4" not in answer


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def roomy() -> AsyncIterator[Foreign]:
    """Envoys with buffers of 32 MiB."""
    listener = others._listener
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            others,
            "_listener",
            lambda way, address: listener(way, address) | {"per_connection_buffer_limit_bytes": 32 << 20},
        )
        async with foreign([Way(mode, mode, allow=False) for mode in READING]) as made:
            yield made


@pytest.mark.parametrize("mode", READING)
@pytest.mark.parametrize("size", [31 << 10, 33 << 10, 130 << 10, (4 << 20) + 1, 20 << 20])
async def test_sizes_at_which_others_have_failed(roomy: Foreign, mode: str, size: int) -> None:
    """32 KiB of buffer, pieces of 64 KiB, gRPC's 4 MiB: whole, picked and never in one message too many."""
    head, tail = b'{"model":"m","prompt":"', b'"}'
    body = head + b"x" * (size - len(head) - len(tail)) + tail
    response, seen = await ask(roomy, mode, io.BytesIO(body))
    assert response.status == 200
    assert (seen["bytes"], seen["sha256"]) == (size, hashlib.sha256(body).hexdigest())
    assert seen["address"] == roomy.newest.endpoints[0]
    assert roomy.newest.reason in {Reason.COLD, Reason.WARM}
