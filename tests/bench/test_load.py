"""The load client distinguishes whole answers from broken ones, and measures both from the planned start."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from warmroute.demo.http_client import Response, unchunk
from warmroute.demo.load import LoadRun, outcome_of
from warmroute.simulator.workload import Message, Turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":32}}}\n\n'
)
WHOLE = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n' + USAGE + b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-engine-address: 127.0.0.1:9\r\n\r\n"


def response(body: bytes, status: int = 200) -> Response:
    return Response(status, {"x-warmroute-endpoint": "-", "x-engine-address": "e:1"}, body, 11.5, 12.0)


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def test_a_whole_answer_tells_usage_and_times() -> None:
    outcome = outcome_of(response(WHOLE), at_seconds=1.0, planned_at=11.0)
    assert outcome.failure is None
    assert (outcome.prompt_tokens, outcome.cached_tokens) == (40, 32)
    assert outcome.ttft_seconds == pytest.approx(0.5)
    assert outcome.e2e_seconds == pytest.approx(1.0)
    assert outcome.served == "e:1"
    assert outcome.picked is None, "Envoy's dash means that there was no pick"


def test_a_stream_without_its_end_has_failed() -> None:
    assert outcome_of(response(USAGE), 0, 11).failure == "stream without its end"


def test_another_status_has_failed() -> None:
    assert outcome_of(response(WHOLE, status=503), 0, 11).failure == "status 503"


def test_an_answer_without_usage_has_unknown_tokens() -> None:
    outcome = outcome_of(response(b"data: {}\n\ndata: [DONE]\n\n"), 0, 11)
    assert outcome.failure is None
    assert outcome.prompt_tokens is None


def test_chunks_are_whole_only_with_their_terminator() -> None:
    data = chunk(b"ab") + chunk(b"c")
    assert unchunk(memoryview(data + b"0\r\n\r\n")) == b"abc"
    assert unchunk(memoryview(data)) is None
    inside = chunk(b"x0\r\n\r\n")
    assert unchunk(memoryview(inside[:-2])) is None, "a body may end like the terminator by chance"


@contextlib.asynccontextmanager
async def server(*answers: bytes, connections: list[int] | None = None) -> AsyncIterator[str]:
    """Answer each request of a connection with the next of `answers`, in pieces; then close.

    `connections` gets an entry for each connection.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if connections is not None:
            connections.append(1)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for answer in answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                for at in range(0, len(answer), 50):
                    writer.write(answer[at : at + 50])
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"


def turns(count: int, gap: float = 0.0) -> list[Turn]:
    return [Turn(n * gap, 0, f"s{n}", (Message("user", "hello"),), 4) for n in range(count)]


async def test_a_run_through_sockets_reuses_its_connection() -> None:
    answer = HEAD + b"".join(chunk(WHOLE[at : at + 7]) for at in range(0, len(WHOLE), 7)) + b"0\r\n\r\n"
    connections: list[int] = []
    async with server(answer, answer, connections=connections) as address:
        load = LoadRun(address, "smol", clock=time.monotonic)
        outcomes = await load.run(turns(2, gap=1.0))
    assert [outcome.failure for outcome in outcomes] == [None, None]
    assert outcomes[0].served == "127.0.0.1:9"
    assert len(connections) == 1
    assert load.in_flight == 0


async def test_a_cut_stream_is_a_failure_that_names_its_server() -> None:
    async with server(HEAD + chunk(WHOLE)) as address:
        outcomes = await LoadRun(address, "smol").run(turns(1))
    assert outcomes[0].failure == "broken stream"
    assert outcomes[0].served == "127.0.0.1:9"


async def test_silence_is_a_failure_after_the_timeout() -> None:
    async with server(HEAD, b"") as address:
        outcomes = await LoadRun(address, "smol", timeout_seconds=0.05).run(turns(1))
    assert outcomes[0].failure == "timeout"


async def test_a_refused_connection_is_a_failure() -> None:
    async with server() as address:
        pass
    outcomes = await LoadRun(address, "smol").run(turns(2))
    assert [outcome.failure for outcome in outcomes] == ["cannot connect"] * 2


async def test_stop_sends_no_further_turns() -> None:
    load = LoadRun("127.0.0.1:1", "smol")
    load.stop()
    assert await load.run(turns(5)) == []


async def test_a_late_start_is_measured() -> None:
    now = iter((0.0, 0.0, *(5.0 for _ in range(20))))
    async with server(HEAD + chunk(WHOLE) + chunk(b"")) as address:
        load = LoadRun(address, "smol", clock=lambda: next(now))
        (outcome,) = await load.run(turns(1))
    assert outcome.late_seconds == 5.0
