"""The chaos bench must see every failure, and excuse none but those of a killed engine."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from bench.chaos import added_seconds, excused, failures_of, main, nearest, result_of, targets_of
from bench.chaos_answers import BrokenError, text_of_stream
from bench.chaos_events import NAMES, Event
from bench.chaos_traffic import Outcome, Traffic
from warmroute.simulator.fits import timing
from warmroute.simulator.http import ServerConfig, listening
from warmroute.simulator.model import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KILL = Event("engine_killed", 10.0, 13.0, killed="a:1", gone_seconds=10.2)
ROLL = Event("xds_rolled", 20.0, 24.0)


def failed(at: float, ended: float, served: str | None = "a:1") -> Outcome:
    return Outcome("json", at, ended, "status 503", served, None, None)


def answered(at: float, first: float = 0.1, silence: float | None = None) -> Outcome:
    return Outcome("stream", at, at + 1.0, None, "a:1", first, silence)


@pytest.mark.parametrize(
    ("outcome", "is_excused"),
    [
        (failed(9.0, 10.1), True),
        (failed(10.1, 10.3), True),
        (failed(9.0, 9.9), False),  # it failed before
        (failed(10.3, 10.4), False),  # it was sent to an engine that was gone
        (failed(9.0, 10.1, "b:1"), False),
        (failed(9.0, 10.1, None), False),
    ],
)
def test_only_what_the_killed_engine_was_answering_is_excused(outcome: Outcome, is_excused: bool) -> None:
    assert excused(outcome, [ROLL, KILL]) is is_excused


def test_failures_are_listed_with_their_events() -> None:
    events = [KILL, ROLL]
    assert nearest(11.0, events) == "during engine_killed"
    assert nearest(14.0, events) == "1.00 s after engine_killed"
    assert nearest(19.5, events) == "0.50 s before xds_rolled"
    failures = failures_of([failed(21, 22), answered(1), failed(9, 10.1)], events)
    assert [(entry.event, entry.excused) for entry in failures] == [
        ("during engine_killed", True),
        ("during xds_rolled", False),
    ]


def test_added_seconds_is_the_longest_wait_beyond_the_usual() -> None:
    outcomes = [*(answered(at / 10, 0.1, 0.05) for at in range(50)), answered(21.0, 0.1, 0.8)]
    result = result_of(outcomes, [KILL, ROLL], 30.0)
    assert result["worst_added_seconds"] == pytest.approx(0.75)
    assert result["quiet_worst_added_seconds"] == pytest.approx(0.0)
    assert [event["worst_added_seconds"] for event in result["events"]] == [None, pytest.approx(0.75)]
    assert added_seconds(answered(1, 0.4, 0.05), result["quiet"]) == pytest.approx(0.3)


def test_a_failure_or_an_event_that_did_not_happen_is_unmet() -> None:
    sent = [Outcome(kind, 1.0, 2.0, None, "a:1", 0.1, None) for kind in ("json", "stream", "websocket")]
    events = [Event(name, 5.0, 6.0) for name in NAMES]
    whole = result_of(sent * 100, events, 3.0)
    assert all(entry.met for entry in targets_of(whole, NAMES, 100.0))
    broken = result_of([*(sent * 100), failed(5.1, 5.2)], events[1:], 3.0)
    unmet = {entry.name for entry in targets_of(broken, NAMES, 100.0) if not entry.met}
    assert unmet == {"failures", NAMES[0]}
    assert "requests_per_second" in {
        entry.name for entry in targets_of(result_of(sent, events, 3.0), NAMES, 100.0) if not entry.met
    }


def test_a_stream_without_its_end_or_with_more_than_it_is_broken() -> None:
    piece = 'data: {"choices":[{"delta":{"content":"abcd"}}]}\n\n'
    assert text_of_stream(f"{piece}{piece}data: [DONE]\n\n".encode()) == "abcdabcd"
    for text in ("", piece, f"{piece}data: [DONE]", f"data: [DONE]\n\n{piece}data: [DONE]\n\n"):
        with pytest.raises(BrokenError):
            text_of_stream(text.encode())


async def sent_to(address: str, enough: Callable[[list[Outcome]], bool]) -> list[Outcome]:
    """Send until `enough` of the outcomes so far."""
    traffic = Traffic(
        f"http://{address}",
        "m",
        ssl.create_default_context(),
        rate=200.0,
        seed=3,
        clock=time.monotonic,
        pace_seconds=0.01,
    )
    sending = asyncio.create_task(traffic.run())
    async with asyncio.timeout(60):
        while not enough(traffic.outcomes):
            await asyncio.sleep(0.1)
    traffic.stop()
    await sending
    return traffic.outcomes


def kinds(outcomes: list[Outcome]) -> set[str]:
    return {outcome.kind for outcome in outcomes}


def failing(outcomes: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.failure is not None]


ALL = {"json", "stream", "websocket"}


async def test_traffic_to_a_good_engine_fails_nowhere() -> None:
    engine = ServerConfig(EngineConfig(timing=timing().faster(200)), model="m")
    async with listening(engine, "127.0.0.1", 0) as (_, address):
        outcomes = await sent_to(address, lambda outcomes: kinds(outcomes) == ALL and len(outcomes) >= 150)
    assert {outcome.failure for outcome in outcomes} == {None}
    assert {outcome.served for outcome in outcomes} == {address}


async def test_a_reset_breaks_open_requests_and_counts() -> None:
    """Now and then, until a request of every kind was open just then; each that was is lost."""
    engine = ServerConfig(EngineConfig(timing=timing().faster(2)), model="m")
    broken = 0
    async with listening(engine, "127.0.0.1", 0) as (server, address):

        def reset(outcomes: list[Outcome]) -> bool:
            nonlocal broken
            if kinds(failing(outcomes)) == ALL:
                return True
            broken += len(server.driver._streams)
            server.driver.restart()
            return False

        outcomes = await sent_to(address, reset)
    assert len(failing(outcomes)) == broken


async def _short_json(request: web.Request) -> web.StreamResponse:
    question = await request.json()
    said = {"choices": [{"message": {"content": "the "}, "delta": {"content": "the "}}]}
    if question["stream"]:
        return web.Response(text=f"data: {json.dumps(said)}\n\ndata: [DONE]\n\n")
    return web.json_response(said)


async def _socket(request: web.Request, answer: Callable[[Any, Any], Awaitable[None]]) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await answer(socket, json.loads(message.data))
    return socket


async def _twice(socket: Any, question: Any) -> None:
    for _ in range(2):
        await socket.send_json({"number": question["number"], "done": True, "tokens": 0})


async def _leaves(socket: Any, question: Any) -> None:
    await socket.close(code=1011)


@pytest.mark.parametrize("answer", [_twice, _leaves])
async def test_an_engine_that_answers_wrongly_is_caught(
    answer: Callable[[Any, Any], Awaitable[None]],
) -> None:
    """Too few tokens, doubled messages, closes of its own: each of its answers counts as failed."""
    application = web.Application()
    application.router.add_post("/v1/chat/completions", _short_json)

    async def socket(request: web.Request) -> web.StreamResponse:
        return await _socket(request, answer)

    application.router.add_get("/v1/realtime", socket)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        outcomes = await sent_to(
            "{}:{}".format(*runner.addresses[0]), lambda outcomes: kinds(outcomes) == ALL
        )
    finally:
        await runner.cleanup()
    assert all(outcome.failure for outcome in outcomes)


@pytest.mark.slow
def test_the_whole_bench_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Every event once, on a quarter of the traffic."""
    status = main(["--seconds", "10", "--rate", "25", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert status == 0, result["failed"]
    assert result["counts"] == dict.fromkeys(NAMES, 1)
