"""Keys of requests that may be repeated, and duplicates in flight: a real worker behind the real Envoy."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from ext_proc.idempotency.key import idempotency_key
from ext_proc.idempotency.shared import SharedClaims
from fleet.names import HEADER_IDEMPOTENCY
from testing.stream_server import running_server, url_of
from tests.envoy.workers import picks, worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envoy.conftest import World

PATH = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "how are you?"}]}
PATIENCE_SECONDS = 10.0
"""For a store beside us: this process is stalled at times, and that is no fault of the store."""
SLA = {
    "first_token_p95_seconds": 5.0,
    "tolerated_error_ratio": 0.15,
    "base_round_trip_seconds": 0.02,
    "repeats": "keyed",
}


def may_refuse(settings: dict[str, Any]) -> None:
    """Let Envoy take a 409 from ext_proc, and repeat what has a key."""
    settings["ext_proc"]["idempotency"] = {"enabled": True, "duplicates": "reject"}
    settings["limits"] = {"drain_seconds": 0.1}
    for pool in settings["pools"]:
        if pool["name"] == "retrying":
            pool.pop("retry_on")
            pool["sla"] = SLA


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def made(worlds: Any) -> AsyncIterator[World]:
    async with worlds(adapt=may_refuse) as made:
        yield made
        assert not made.ads.nacks


def hold(world: World) -> None:
    """Let the engines of the slow pool answer nothing before `release` is set."""
    world.engines.release = asyncio.Event()
    world.engines.held.update(world.pools["marked"])


async def at_once(world: World, bodies: list[Any], headers: list[dict[str, str]] | None = None) -> list[Any]:
    """Ask the slow pool for all of these at the same time: it answers when all have come or are refused."""
    hold(world)
    told = headers or [{} for _ in bodies]
    before = world.engines.served.total()
    asked = [
        asyncio.create_task(world.post(body, listener="marked", path=PATH, headers=held))
        for body, held in zip(bodies, told, strict=True)
    ]

    def together() -> bool:
        ended = sum(task.done() for task in asked)
        return world.engines.served.total() - before + ended >= len(asked)

    try:
        await world.eventually(together, "all at once")
    finally:
        world.engines.release.set()
        world.engines.held.clear()
    return await asyncio.gather(*asked)


def statuses(answers: list[Any]) -> list[int]:
    return sorted(answer.status for answer in answers)


async def test_engines_see_the_key_at_the_first_try_and_at_the_retry(made: World) -> None:
    """The same in both, made of method, path, tenant and body; the client's own passes on beside it."""
    headers = {"idempotency-key": "theirs", HEADER_IDEMPOTENCY: "forged"}
    key = idempotency_key("POST", PATH, json.dumps(BODY).encode(), "", "theirs")
    async with worker(made):
        refusing = made.pools["retrying"][0]
        made.engines.statuses[refusing] = 503

        async def repeated() -> bool:
            made.engines.newest.clear()
            answer = await made.post(BODY, listener="retrying", path=PATH, headers=headers)
            assert answer.status == 200
            return answer.headers["x-warmroute-attempts"] == "2"

        await made.eventually(repeated, "a retry")
        (first, first_headers), (second, second_headers) = made.engines.newest
        assert first == refusing
        assert second != refusing
        for held in (first_headers, second_headers):
            assert held.getall(HEADER_IDEMPOTENCY) == [key]
            assert held.getall("idempotency-key") == ["theirs"]


async def test_a_duplicate_in_flight_is_told_to_come_back(made: World) -> None:
    async with worker(made) as registry:
        answers = await at_once(made, [BODY] * 3)
        assert statuses(answers) == [200, 409, 409]
        for answer in answers:
            if answer.status == 409:
                assert answer.seen["error"]["code"] == "duplicate_request"
                assert answer.headers["Retry-After"] == "1"
        assert picks(registry)["duplicate"] == 2
        assert registry.get_sample_value("warmroute_duplicates_total") == 2
        await made.eventually(
            lambda: registry.get_sample_value("warmroute_idempotency_in_flight") == 0, "ended"
        )
        assert statuses(await at_once(made, [BODY])) == [200]


async def test_what_clients_tell_apart_is_no_duplicate(made: World) -> None:
    """By their key, by a field of the body, or because it is a stream."""
    async with worker(made) as registry:
        named = [{"idempotency-key": name} for name in "abc"]
        answers = await at_once(made, [BODY] * 3, named)
        answers += await at_once(made, [{**BODY, "seed": seed} for seed in range(3)])
        answers += await at_once(made, [{**BODY, "stream": True}] * 3)
        assert set(statuses(answers)) == {200}
        streamed = [held for _, held in made.engines.newest][-3:]
        assert not [held for held in streamed if HEADER_IDEMPOTENCY in held], "off for streams by default"
        assert registry.get_sample_value("warmroute_idempotency_keys_total") == 6


async def test_equal_requests_that_no_client_has_named_are_all_served(made: World) -> None:
    """Two clients may ask the same at the same time and both mean it."""
    async with worker(made, duplicates="named"):
        assert statuses(await at_once(made, [BODY] * 4)) == [200] * 4
        assert statuses(await at_once(made, [BODY] * 2, [{"idempotency-key": "a"}] * 2)) == [200, 409]


async def test_by_default_there_is_no_key_and_nobody_is_refused(world: World) -> None:
    async with worker(world):
        theirs = [{"idempotency-key": "a"}] * 3
        assert statuses(await at_once(world, [BODY] * 3, theirs)) == [200] * 3
        assert not [held for _, held in world.engines.newest if HEADER_IDEMPOTENCY in held]
        assert {held["idempotency-key"] for _, held in list(world.engines.newest)[-3:]} == {"a"}


async def test_a_client_that_has_left_blocks_nobody(made: World) -> None:
    async with worker(made):
        hold(made)
        before = made.engines.served.total()
        leaving = asyncio.create_task(made.post(BODY, listener="marked", path=PATH))
        await made.eventually(lambda: made.engines.served.total() > before, "in flight")
        assert statuses(await at_once(made, [BODY])) == [409]
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await made.eventually(lambda: served_by(made), "the first one has ended")


async def test_workers_share_a_store_and_its_absence_refuses_nothing(made: World) -> None:
    directory = Path(tempfile.mkdtemp(prefix="warmroute-test-"))
    url = SecretStr(url_of(directory))
    try:
        async with (
            running_server(directory) as server,
            worker(made, url=url, timeout_seconds=PATIENCE_SECONDS) as registry,
        ):
            more = {"url": url, "timeout_seconds": PATIENCE_SECONDS}
            idempotency = made.settings.ext_proc.idempotency.model_copy(update=more)
            other = SharedClaims(idempotency, "another worker", lambda: None)
            key = idempotency_key("POST", PATH, json.dumps(BODY).encode())
            assert await other.claim(key, 1)
            assert statuses(await at_once(made, [BODY])) == [409]
            other.release(key, 1)
            await made.eventually(lambda: served_by(made), "free again")
            assert statuses(await at_once(made, [BODY] * 2)) == [200, 409], "this worker knows its own"
            await other.close()
            server.kill()
            assert statuses(await at_once(made, [{**BODY, "seed": seed} for seed in range(4)])) == [200] * 4
            assert (registry.get_sample_value("warmroute_duplicates_unchecked_total") or 0) >= 4
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def served_by(world: World) -> bool:
    return statuses(await at_once(world, [BODY])) == [200]
