"""What follows from an SLA, on the real Envoy: what is bounded, what is tried again, and what never is."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ext_proc.pick import Refusal
from ext_proc.protocol.reply import refusal_reply
from fleet.envoy_api.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from fleet.names import HEADER_IDEMPOTENCY
from fleet.settings.sla_policy import KEYED, derive

SLA = {"first_token_p95_seconds": 0.8, "tolerated_error_ratio": 0.15, "base_round_trip_seconds": 0.02}
LATE_SECONDS = 1.0
"""More than any attempt has by this SLA."""


def keyed(first_byte_ms: int | None = None) -> dict[str, str]:
    """What ext_proc says of a request that may be repeated; with a time limit, of one for a stream."""
    told = {"idempotency": "k1", "retry_on": KEYED}
    return told if first_byte_ms is None else {**told, "first_byte_ms": str(first_byte_ms)}


def with_sla(settings: dict[str, Any]) -> None:
    """Give every pool an SLA; `retrying` may also repeat what has a key. `live` stays without."""
    for pool in settings["pools"]:
        pool.pop("retry_on", None)
        if pool["name"] != "live":
            pool["sla"] = dict(SLA)
        if pool["name"] == "ejecting":
            pool["connect_timeout_seconds"] = 0.25
        if pool["name"] == "retrying":
            pool["sla"]["repeats"] = "keyed"
    settings["ext_proc"]["idempotency"] = {"enabled": True, "streaming": True, "duplicates": "reject"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def made(worlds: Any) -> Any:
    async with worlds(adapt=with_sla) as made:
        yield made
        assert not made.ads.nacks


@pytest_asyncio.fixture(loop_scope="session")
async def world(made: Any) -> Any:
    """An Envoy by the SLA, with nothing left over from the test before."""
    made.ext_proc.reset()
    for held in (made.engines.statuses, made.engines.resets, made.engines.served, made.engines.delays):
        held.clear()
    return made


@pytest.fixture
def limit_ms(world: Any) -> int:
    """What an attempt has to answer."""
    pool = next(pool for pool in world.settings.pools if pool.name == "retrying")
    derived = derive(pool, streaming_keys=True)
    assert derived is not None
    assert derived.hedged
    assert derived.answer_ms < 1000 * LATE_SECONDS
    return derived.answer_ms


async def test_a_late_engine_is_waited_for(world: Any) -> None:
    """Envoy is told no limit for what may not be repeated: a 504 would be worse than a late answer."""
    late, other = world.pools["marked"][:2]
    world.engines.delays[late] = LATE_SECONDS
    world.ext_proc.pick = f"{late},{other}"
    answer = await world.post(listener="marked")
    assert (answer.status, answer.engine, answer.headers["x-warmroute-attempts"]) == (200, late, "1")
    assert world.engines.served == {late: 1}


@pytest.mark.parametrize("trouble", ["cut", 503, 500, 429])
@pytest.mark.parametrize("listener", ["marked", "retrying"])
async def test_without_a_key_nothing_that_was_sent_is_repeated(
    world: Any, listener: Any, trouble: Any
) -> None:
    first, other = world.pools[listener][:2]
    if trouble == "cut":
        world.engines.resets.add(first)
    else:
        world.engines.statuses[first] = trouble
    world.ext_proc.pick = f"{first},{other}"
    answer = await world.post(listener=listener)
    assert answer.status == (503 if trouble == "cut" else trouble)
    assert world.engines.served == {first: 1}


async def test_what_no_engine_has_begun_goes_elsewhere(world: Any) -> None:
    dead, alive = world.pools["mixed"][:2]
    world.ext_proc.pick = f"{dead},{alive}"
    answer = await world.post(listener="mixed")
    assert (answer.status, answer.engine, answer.headers["x-warmroute-attempts"]) == (200, alive, "2")


async def test_connecting_is_bounded_and_tried_elsewhere(world: Any) -> None:
    """Where the operator says so. A host that drops packets: its queue of connections is full."""
    alive = world.pools["ejecting"][1]
    with contextlib.ExitStack() as held:
        hole = held.enter_context(socket.socket())
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(3):
            caller = held.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(hole.getsockname())
        address = f"127.0.0.1:{hole.getsockname()[1]}"
        settings = world.settings
        pool = next(pool for pool in settings.pools if pool.name == "ejecting")
        endpoint = pool.endpoints[0].model_copy(update={"address": address})
        wider = pool.model_copy(update={"endpoints": (*pool.endpoints, endpoint)})
        world.settings = settings.model_copy(
            update={"pools": tuple(wider if entry is pool else entry for entry in settings.pools)}
        )
        try:
            world.set_weights({})
            await world.eds_health("ejecting", address, healthy=True)
            world.ext_proc.pick = f"{address},{alive}"
            answer = await world.post(listener="ejecting")
            assert (answer.status, answer.engine, answer.headers["x-warmroute-attempts"]) == (200, alive, "2")
        finally:
            world.settings = settings
            world.set_weights({})
            await world.eds_absent("ejecting", address)


@pytest.mark.parametrize("trouble", ["cut", 503])
async def test_with_a_key_what_has_no_answer_goes_to_the_next_engine(world: Any, trouble: Any) -> None:
    """It carries the same key, so that who keeps keys computes once."""
    first, other = world.pools["retrying"][:2]
    if trouble == "cut":
        world.engines.resets.add(first)
    else:
        world.engines.statuses[first] = trouble
    world.ext_proc.pick = f"{first},{other}"
    world.ext_proc.metadata = keyed()
    answer = await world.post(listener="retrying")
    assert (answer.status, answer.engine, answer.headers["x-warmroute-attempts"]) == (200, other, "2")
    assert answer.upstream(HEADER_IDEMPOTENCY) == ["k1"]
    assert world.engines.served == {first: 1, other: 1}


async def test_key_without_time_limit_waits_for_a_late_answer(world: Any) -> None:
    """An answer that is not streamed has its headers at its end."""
    late, other = world.pools["retrying"][:2]
    world.engines.delays[late] = LATE_SECONDS
    world.ext_proc.pick = f"{late},{other}"
    world.ext_proc.metadata = keyed()
    answer = await world.post(listener="retrying")
    assert (answer.status, answer.engine, answer.headers["x-warmroute-attempts"]) == (200, late, "1")


@pytest.mark.parametrize("query", ["silence=1.2", "prefill=1.2"])
async def test_a_time_limit_never_cuts_a_stream(world: Any, limit_ms: Any, query: Any) -> None:
    """It ends with the response headers, whether the silence is before the first token or later."""
    first = world.pools["retrying"][0]
    world.ext_proc.pick = ",".join(world.pools["retrying"])
    world.ext_proc.metadata = keyed(limit_ms)
    answer = await world.post(listener="retrying", path=f"/stream?{query}")
    assert (answer.status, answer.headers["x-warmroute-attempts"]) == (200, "1")
    assert answer.seen["text"] == "data: first\n\ndata: last\n\n"
    assert world.engines.served == {first: 1}


async def test_what_has_begun_to_answer_is_never_repeated(world: Any, limit_ms: Any) -> None:
    """Broken off after the first token, the client learns of it, and nobody else is asked."""
    first = world.pools["retrying"][0]
    world.ext_proc.pick = ",".join(world.pools["retrying"])
    world.ext_proc.metadata = keyed(limit_ms)
    with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
        await world.post(listener="retrying", path="/stream?cut=1")
    assert world.engines.served == {first: 1}


async def test_a_late_engine_gets_company_and_the_first_answer_wins(world: Any, limit_ms: Any) -> None:
    late, quick = world.pools["retrying"][:2]
    world.engines.delays[late] = 5 * LATE_SECONDS
    world.ext_proc.pick = f"{late},{quick}"
    world.ext_proc.metadata = keyed(limit_ms)
    answer = await world.post(listener="retrying")
    assert (answer.status, answer.engine, answer.headers["x-warmroute-attempts"]) == (200, quick, "2")


async def test_a_time_limit_fails_nobody(world: Any, limit_ms: Any) -> None:
    """All are late: Envoy alone would have waited, and so does this one."""
    for address in world.pools["retrying"]:
        world.engines.delays[address] = LATE_SECONDS
    world.ext_proc.pick = ",".join(world.pools["retrying"])
    world.ext_proc.metadata = keyed(limit_ms)
    answer = await world.post(listener="retrying")
    assert (answer.status, answer.headers["x-warmroute-attempts"]) == (200, "2")


@pytest.mark.parametrize("trouble", ["cut", 409, 429, 500, 502, 503, 504])
async def test_fault_of_the_second_engine_loses_to_the_first(world: Any, limit_ms: Any, trouble: Any) -> None:
    late, bad = world.pools["retrying"][:2]
    world.engines.delays[late] = LATE_SECONDS
    if trouble == "cut":
        world.engines.resets.add(bad)
    else:
        world.engines.statuses[bad] = trouble
    world.ext_proc.pick = f"{late},{bad}"
    world.ext_proc.metadata = keyed(limit_ms)
    answer = await world.post(listener="retrying")
    assert (answer.status, answer.engine) == (200, late)


async def test_a_clients_key_under_our_name_goes(world: Any) -> None:
    theirs = {HEADER_IDEMPOTENCY: "theirs", "idempotency-key": "own"}
    answer = await world.post(listener="marked", headers=theirs)
    assert answer.upstream(HEADER_IDEMPOTENCY) == []
    assert answer.upstream("idempotency-key") == ["own"]
    world.ext_proc.metadata = keyed()
    answer = await world.post(listener="marked", headers=theirs)
    assert answer.upstream(HEADER_IDEMPOTENCY) == ["k1"]


async def test_a_duplicate_is_refused_where_the_settings_say_so(world: Any, shared_world: Any) -> None:
    """As OpenAI's clients read it; an Envoy without the setting goes on by weights."""
    refusal = Refusal(409, "the same request is in flight", retry_after_seconds=1.0)
    for envoy, status in ((world, 409), (shared_world, 200)):
        envoy.ext_proc.instead = ProcessingResponse.FromString(refusal_reply(refusal))
        try:
            answer = await envoy.post(listener="weighted")
        finally:
            envoy.ext_proc.instead = None
        assert answer.status == status

        if status == 409:
            assert answer.headers["Retry-After"] == "1"
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.seen["error"]["message"] == refusal.message


async def test_errors_eject_above_the_tolerance_only(world: Any) -> None:
    """A run that is shorter than the derived one ejects nobody; without an SLA none does."""
    pool = next(pool for pool in world.settings.pools if pool.name == "weighted")
    derived = derive(pool)
    assert derived is not None
    bad = world.pools["weighted"][0]

    async def answers(statuses: list[int]) -> None:
        for status in statuses:
            world.engines.statuses[bad] = status
            assert (await world.post(listener="weighted")).status == status

    async def ejected() -> bool:
        return bool(
            (await world.envoy.clusters())["weighted"][bad]["health_status"].get("failed_outlier_check")
        )

    world.ext_proc.pick = bad
    run = [500] * (derived.consecutive_errors - 1)
    await answers([*run, 200, *run, 200])
    assert not await ejected()
    await answers([500] * derived.consecutive_errors)
    await world.eventually(ejected, "ejected")
