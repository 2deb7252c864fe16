"""Headers that pass by us: what others have set survives, what clients forge goes, hops' own stay there."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from multidict import CIMultiDict

from ext_proc.pick import Decision, PickResult, Reason, Refusal
from fleet.names import HEADER_ATTEMPTS, HEADER_SERVED, REMOVED_REQUEST_HEADERS
from tests.envoy.foreign import DUPLEX, MODES, Foreign, Way, filter_of, foreign

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envoy.conftest import World

PRE = "type.googleapis.com/envoy."
JSON = {"content-type": "application/json"}
BODY = b'{"model": "m", "prompt": "how are you?"}'
ENGINES_OWN = [
    ("x-ratelimit-remaining-tokens", "149984"),
    ("x-ratelimit-reset-tokens", "6m0s"),
    ("set-cookie", "a=1"),
    ("set-cookie", "b=2"),
]
METADATA = {"matched": "0.50", "reason": "warm", "prefix": "0123456789abcdef"}
BUCKET = {"max_tokens": 100_000, "tokens_per_fill": 100_000, "fill_interval": "1s"}
ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
RATE_LIMIT = filter_of(
    "local_ratelimit",
    "local_ratelimit.v3.LocalRateLimit",
    stat_prefix="limit",
    token_bucket=BUCKET,
    filter_enabled=ALWAYS,
    filter_enforced=ALWAYS,
    enable_x_ratelimit_headers="DRAFT_VERSION_03",
    request_headers_to_add_when_not_enforced=[],
)
QUOTA = filter_of(
    "header_mutation",
    "header_mutation.v3.HeaderMutation",
    mutations={
        "request_mutations": [{"append": {"header": {"key": "x-ratelimit-tenant", "value": "t1"}}}],
        "response_mutations": [{"append": {"header": {"key": "x-quota-left", "value": "7"}}}],
    },
)


def ours(seen: dict[str, Any]) -> list[str]:
    """Routing headers that the engine saw."""
    return [name for name, _ in seen["headers"] if name in REMOVED_REQUEST_HEADERS]


# Before Envoys that other people configure.


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def limited() -> AsyncIterator[Foreign]:
    """A rate limit, and a filter that sets headers, before ext_proc, in each mode."""
    before = (RATE_LIMIT, QUOTA)
    ways = [Way(mode, mode, response=DUPLEX if mode == DUPLEX else "NONE", before=before) for mode in MODES]
    async with foreign(ways) as made:
        yield made


@pytest.mark.parametrize("mode", MODES)
async def test_rate_limit_headers_survive(limited: Foreign, mode: str) -> None:
    """Those that a filter before ours has set, towards the engine and the client, and the engine's own."""
    limited.engines.answers[:] = ENGINES_OWN
    async with limited.http.post(limited.url(mode), data=BODY, headers=JSON) as response:
        seen = dict((await response.json())["headers"])
        told = response.headers
    assert response.status == 200
    assert seen["x-ratelimit-tenant"] == "t1"
    for name in ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-quota-left"):
        assert len(told.getall(name)) == 1, name
    assert [(name, value) for name, value in ENGINES_OWN if value not in told.getall(name)] == []


@pytest.mark.parametrize("mode", MODES)
async def test_rate_limit_headers_survive_a_refusal(
    limited: Foreign, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told to come back later still learns how much is left."""
    assert limited.service is not None
    refused = PickResult.refuse(Reason.SHED, Refusal(429, "later", 3.0))
    monkeypatch.setattr(limited.service.processor.director, "pick", lambda *_, **__: Decision(refused))
    async with limited.http.post(limited.url(mode), data=BODY, headers=JSON) as response:
        assert (await response.json())["error"]["code"] == "overloaded"
    assert response.status == 429
    for name in ("x-ratelimit-limit", "x-ratelimit-remaining", "x-quota-left", "retry-after", "content-type"):
        assert len(response.headers.getall(name)) == 1, name


# Before our own.


async def test_our_headers_replace_those_of_the_engine(world: World) -> None:
    """Of each name there is one, and it is ours; all else of the answer passes, repeated headers too."""
    picked = world.pools["live"][1]
    world.ext_proc.pick, world.ext_proc.metadata = picked, {"endpoint": picked, **METADATA}
    forged = [HEADER_SERVED, HEADER_ATTEMPTS, "x-warmroute-endpoint", "x-warmroute-reason"]
    world.engines.answers[:] = [*ENGINES_OWN, *((name, "forged") for name in forged)]
    async with world.http.post(world.url(), data=BODY, headers=JSON) as response:
        told = response.headers
    for name in forged:
        assert len(told.getall(name)) == 1, name
        assert told[name] != "forged"
    assert [(name, value) for name, value in ENGINES_OWN if value not in told.getall(name)] == []


FORGED = ["10.0.0.1:1", "10.0.0.1:1,{target}", "{target}"]


@pytest.mark.parametrize("forged", FORGED, ids=["unknown", "list", "known"])
@pytest.mark.parametrize("body", [BODY, b"\xff{", BODY + b" " * 1_100_000], ids=["json", "broken", "large"])
async def test_forged_headers_go_whatever_the_body(world: World, forged: str, body: bytes) -> None:
    target = world.pools["live"][0]
    headers: CIMultiDict[str] = CIMultiDict(JSON)
    for name in REMOVED_REQUEST_HEADERS:
        headers.add(name.title(), forged.format(target=target))
        headers.add(name, "second")
    answers = [await world.post(data=body, headers=headers) for _ in range(12)]
    assert {answer.status for answer in answers} == {200}
    assert [ours(answer.seen) for answer in answers] == [[]] * 12
    assert {answer.engine for answer in answers} - {target}, "all on the forged target"


async def test_forged_headers_go_while_ext_proc_is_away(world: World) -> None:
    """Failing open is no way in either, neither at the moment of the failure nor later."""
    target = world.pools["live"][0]
    headers = {**JSON, **dict.fromkeys(REMOVED_REQUEST_HEADERS, target)}
    await world.ext_proc.kill()
    try:
        answers = [await world.post(data=BODY, headers=headers) for _ in range(12)]
        await world.ext_proc_health(healthy=False)
        answers += [await world.post(data=BODY, headers=headers) for _ in range(12)]
    finally:
        await world.ext_proc.start()
        await world.ext_proc_health(healthy=True)
    assert {answer.status for answer in answers} == {200}
    assert [ours(answer.seen) for answer in answers] == [[]] * 24
    assert {answer.engine for answer in answers} - {target}, "all on the forged target"


HOPS_OWN = {
    "connection": "keep-alive, x-secret, x-warmroute-endpoint, x-warmroute-reason",
    "keep-alive": "timeout=5",
    "proxy-connection": "keep-alive",
    "te": "gzip",
    "x-secret": "1",
    "x-warmroute-endpoint": "10.0.0.1:1",
}


async def raw(
    world: World, headers: dict[str, str], body: bytes = BODY
) -> tuple[str, dict[str, Any], list[Any]]:
    """Send a request as it is, and return the answer's head, its body and the attributes ext_proc got."""
    host, port = world.url(path="").removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"{name}: {value}" for name, value in {**JSON, **headers}.items()]
    head = "\r\n".join(["POST /v1/x HTTP/1.1", "host: x", f"content-length: {len(body)}", *lines, "", ""])
    world.ext_proc.messages.clear()
    try:
        writer.write(head.encode() + body)
        answer = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode().lower()
        length = next(line for line in answer.splitlines() if line.startswith("content-length: "))
        text = await asyncio.wait_for(reader.readexactly(int(length.partition(": ")[2])), 10)
    finally:
        writer.close()
        await writer.wait_closed()
    return answer, json.loads(text), list(world.ext_proc.messages)


async def test_a_hops_own_headers_do_not_cross(world: World) -> None:
    """Neither way; and naming one of ours in `connection` does not take it from the engine."""
    picked = world.pools["live"][1]
    world.ext_proc.pick, world.ext_proc.metadata = picked, {"endpoint": picked, **METADATA}
    world.engines.answers[:] = [("keep-alive", "timeout=9"), ("connection", "keep-alive")]
    answer, seen, messages = await raw(world, HOPS_OWN)
    assert answer.startswith("http/1.1 200 ")
    told = dict(seen["headers"])
    assert {name for name in HOPS_OWN if name in told} == {"x-warmroute-endpoint"}
    assert [value for name, value in seen["headers"] if name == "x-warmroute-endpoint"] == [picked]
    assert told["x-warmroute-reason"] == "warm"
    assert "keep-alive" not in answer
    assert len(messages) == 1


async def test_an_offer_of_h2c_is_answered_as_without_it(world: World) -> None:
    """It is no upgrade that Envoy makes: the body is read, the pick counts, and the offer goes no further."""
    picked = world.pools["live"][1]
    world.ext_proc.pick = picked
    offer = {"connection": "upgrade, http2-settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP__"}
    answer, seen, messages = await raw(world, offer)
    assert answer.startswith("http/1.1 200 ")
    assert seen["address"] == picked
    assert not {"connection", "upgrade", "http2-settings"} & dict(seen["headers"]).keys()
    assert [message.bytes for message in messages] == [len(BODY)]
