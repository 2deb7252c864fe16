"""The endpoint-picker protocol on a real Envoy: subsets, who must be told somebody, routes by our headers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.envoy.foreign import DUPLEX, MODES, Foreign, Way, foreign
from tests.envoy.test_modes_matrix import BODY, JSON, READING, ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SETTINGS: dict[str, Any] = {"clear_route_cache": True, "name_always": True, "pick": {"fallbacks": 0}}
WAYS = [
    Way("plain", "BUFFERED"),
    Way("two", "BUFFERED", subset=["0", "1"]),
    *(Way(f"{mode}-one", mode, subset=["1"]) for mode in MODES),
    *(Way(f"{mode}-host", mode, subset=["127.0.0.1"]) for mode in MODES),
    *(Way(f"{mode}-none", mode, allow=False, subset=["10.9.9.9", "127.0.0.1:1"]) for mode in MODES),
    *(Way(f"{mode}-mute", mode, subset=[], extra={"disable_immediate_response": True}) for mode in MODES),
    *(Way(f"{mode}-original", mode, allow=False, cluster="original") for mode in MODES),
    *(Way(f"{mode}-routed", mode, routed_by="x-warmroute-endpoint") for mode in MODES),
]
REQUESTS = [("POST", BODY), ("POST", b"no JSON"), ("POST", b""), ("GET", None)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def always() -> AsyncIterator[Foreign]:
    """Names somebody always, and clears the route cache."""
    async with foreign(WAYS, **SETTINGS) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plain() -> AsyncIterator[Foreign]:
    """As it comes."""
    async with foreign(WAYS) as made:
        yield made


@pytest.mark.parametrize("mode", MODES)
async def test_never_outside_of_the_subset(plain: Foreign, mode: str) -> None:
    """Whatever the request; an address without a port allows every port."""
    for method, body in REQUESTS:
        for _ in range(3):
            response, seen = await ask(plain, f"{mode}-one", body, method)
            assert (response.status, seen["address"]) == (200, plain.pool[1])
        response, seen = await ask(plain, f"{mode}-host", body, method)
        assert (response.status, seen["address"]) == (200, plain.newest.endpoints[0])


async def test_a_subset_holds_under_load_and_shares_it(plain: Foreign) -> None:
    """One prompt over and over, forty at a time: nobody outside gets one, and nobody inside most."""
    gate, counts = asyncio.Semaphore(40), Counter[str]()

    async def once() -> None:
        async with gate:
            response, seen = await ask(plain, "two")
            counts[seen["address"] if response.status == 200 else response.status] += 1

    await asyncio.gather(*(once() for _ in range(400)))
    assert sorted(counts) == sorted(plain.pool[:2])
    assert max(counts.values()) <= 1.5 * 200


@pytest.mark.parametrize("mode", MODES)
async def test_an_empty_subset_is_a_503(plain: Foreign, mode: str) -> None:
    """JSON in OpenAI's form, with Retry-After; and no engine sees the request."""
    plain.engines.served.clear()
    for method, body in REQUESTS:
        response, seen = await ask(plain, f"{mode}-none", body, method)
        assert (response.status, response.content_type) == (503, "application/json")
        assert response.headers["retry-after"] == "1"
        assert seen["error"]["code"] == "no_endpoint_ready"
    assert not plain.engines.served


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != DUPLEX])
async def test_whoever_forbids_answers_gets_none(plain: Foreign, mode: str) -> None:
    """`disable_immediate_response`, as our own listeners have it: the request goes on by weights."""
    for method, body in REQUESTS:
        assert (await ask(plain, f"{mode}-mute", body, method))[0].status == 200


async def test_full_duplex_must_not_forbid_answers(plain: Foreign) -> None:
    """There Envoy 1.40 fails the request whose answer it drops: the documents say so."""
    assert (await ask(plain, f"{DUPLEX}-mute"))[0].status == 500


@pytest.mark.parametrize("mode", MODES)
async def test_a_cluster_that_cannot_choose_is_always_told_somebody(always: Foreign, mode: str) -> None:
    """ORIGINAL_DST by our header: one address, in every mode, for every request."""
    for method, body in REQUESTS:
        response, seen = await ask(always, f"{mode}-original", body, method)
        assert (response.status, seen["address"]) == (200, always.newest.endpoints[0])


async def test_a_cluster_that_cannot_choose_fails_without_that(plain: Foreign) -> None:
    """What the setting is for: nothing named, or a list, is no address."""
    assert (await ask(plain, "BUFFERED-original", None, "GET"))[0].status == 503
    assert (await ask(plain, "BUFFERED-original"))[0].status == 503


@pytest.mark.parametrize("mode", MODES)
async def test_routes_match_on_our_headers_once_the_cache_is_cleared(
    always: Foreign, plain: Foreign, mode: str
) -> None:
    """The route to `other`, the last engine, matches on a header that is there only after our reply."""
    response, seen = await ask(always, f"{mode}-routed")
    assert (response.status, seen["address"]) == (200, always.pool[-1])
    if mode in READING:
        response, seen = await ask(plain, f"{mode}-routed")
        assert (response.status, seen["address"]) == (200, plain.newest.endpoints[0]), "a cached route stays"


async def test_streamed_mode_is_warned_of(plain: Foreign, caplog: pytest.LogCaptureFixture) -> None:
    """Loudly, once: a pick by the body cannot take effect there."""
    assert plain.service is not None
    plain.service.processor._warned_streamed = False
    for _ in range(3):
        async with plain.http.post(plain.url("STREAMED-one"), data=BODY, headers=JSON) as response:
            await response.read()
    assert ["STREAMED" in record.message for record in caplog.records if record.levelname == "WARNING"] == [
        True
    ]
