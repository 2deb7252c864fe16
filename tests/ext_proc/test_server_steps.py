"""A stream whose message waits for its turn or for other workers: order, back-pressure and every end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ext_proc.protocol.exchange import Exchange
from ext_proc.server import ExtProcService, ProcessHandler
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from tests.ext_proc.fake_envoy import DUPLEX, body_message, headers_message, with_mode
from tests.ext_proc.test_duplicate_picks import Others, stage_with
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.worlds import chat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LARGE = chat("word " * 40_000)


class Recorded:
    """A call that remembers what its handler did."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def write(self, *messages: bytes) -> None:
        for message in messages:
            self.did.append(str(pb.ProcessingResponse.FromString(message).WhichOneof("response")))

    def end(self, status: int = 0, text: str = "") -> None:
        self.did.append(f"end {status}")

    def pause_reading(self) -> None:
        self.did.append("pause")

    def resume_reading(self) -> None:
        self.did.append("resume")


def opened(stage: Stage) -> tuple[ExtProcService, ProcessHandler, Recorded]:
    call, service = Recorded(), ExtProcService(stage.service)
    return service, service.open(call), call


def in_duplex() -> Iterable[bytes]:
    """Headers, a large piece of a body, and its end."""
    yield with_mode(headers_message(), DUPLEX).SerializeToString()
    yield body_message(LARGE, end_of_stream=False).SerializeToString()
    yield body_message(b" ", end_of_stream=True).SerializeToString()


def spend_turn(service: ExtProcService) -> None:
    """Use up the slice, so that the next piece of work waits."""
    service.turns._end_slice()


async def test_messages_behind_a_waiting_one_keep_order() -> None:
    service, handler, call = opened(Stage(sample_ratio=0.0))
    headers, large, last = in_duplex()
    handler.message(headers)
    spend_turn(service)
    handler.message(large)
    handler.message(last)
    assert call.did == ["pause"]
    await handler.settled()
    assert call.did[:3] == ["pause", "request_headers", "request_body"]
    assert call.did[-1] == "resume"
    handler.half_closed()
    assert call.did[-1] == "end 0"


async def test_half_close_waits_for_the_answer() -> None:
    service, handler, call = opened(Stage(sample_ratio=0.0))
    spend_turn(service)
    handler.message(with_mode(body_message(LARGE, end_of_stream=True), "BUFFERED").SerializeToString())
    handler.half_closed()
    assert call.did == []
    await handler.settled()
    assert call.did == ["request_body", "end 0"]


@pytest.mark.parametrize("begun", [False, True])
async def test_client_that_leaves_ends_the_wait(begun: bool) -> None:
    """Before the step's first line, or in its midst."""
    stage = stage_with(Others(free=True))
    _, handler, call = opened(stage)
    headers = headers_message([(":method", b"POST"), (":path", b"/v1/chat/completions")])
    handler.message(with_mode(headers, "BUFFERED").SerializeToString())
    handler.message(body_message(chat("hi"), end_of_stream=True).SerializeToString())
    if begun:
        await asyncio.sleep(0)
    handler.ended("reset")
    await handler.settled()
    assert call.did == ["request_headers"]
    assert stage.service.streams == 0
    assert stage.value("warmroute_idempotency_in_flight") == 0


@pytest.mark.parametrize("large", [False, True])
async def test_fault_in_any_step_ends_the_stream_with_ok(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(sample_ratio=0.0)
    service, handler, call = opened(stage)

    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("ext_proc.server.RequestStream.replies", fail)
    if large:
        spend_turn(service)
    handler.message(body_message(LARGE if large else b"", end_of_stream=True).SerializeToString())
    await handler.settled()
    assert call.did == ["end 0"]
    assert stage.value("warmroute_ext_proc_faults_total", kind="RuntimeError") == 1
    assert stage.service.streams == 0


@pytest.mark.parametrize("part", ["Exchange.close", "Traffic.finished", "Idempotency.end"])
@pytest.mark.parametrize("end", ["ended", "half_closed", "leave"])
async def test_fault_at_the_end_stays_in_its_part(
    part: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport learns nothing of it, and the other parts end."""
    stage = stage_with(None)
    _, handler, call = opened(stage)
    headers = headers_message([(":method", b"POST"), (":path", b"/v1/chat/completions")])
    handler.message(with_mode(headers, "BUFFERED").SerializeToString())
    handler.message(body_message(chat("hi"), end_of_stream=True).SerializeToString())
    assert stage.in_flight() == stage.value("warmroute_idempotency_in_flight") == 1
    owner, name = {
        "Exchange.close": (Exchange, "close"),
        "Traffic.finished": (stage.world.director, "finished"),
        "Idempotency.end": (stage.service.keys, "end"),
    }[part]
    monkeypatch.setattr(owner, name, lambda *_: 1 / 0)
    getattr(handler, end)(*(["reset"] if end == "ended" else []))
    assert call.did[2:] == ([] if end == "ended" else ["end 0"])
    assert stage.value("warmroute_ext_proc_faults_total", kind="ZeroDivisionError") == 1
    assert stage.service.streams == 0
    assert stage.in_flight() == (part == "Traffic.finished")
    assert stage.value("warmroute_idempotency_in_flight") == (part == "Idempotency.end")


async def test_fault_in_leaving_ends_with_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(sample_ratio=0.0)
    service, handler, call = opened(stage)
    handler.message(headers_message().SerializeToString())
    monkeypatch.setattr(Exchange, "leave_early", lambda _: 1 / 0)
    await service.close(0.0)
    assert call.did[-1] == "end 0"
    assert stage.service.streams == 0


async def test_close_waits_for_a_message_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the pieces of its body would be lost, which Envoy no longer has."""
    service, handler, call = opened(Stage(sample_ratio=0.0))
    headers, large, _ = in_duplex()

    async def in_turn(piece: Callable[[], Any]) -> Any:
        while not handler._leaves:
            await asyncio.sleep(0.001)
        return piece()

    monkeypatch.setattr(service.turns, "run", in_turn)
    handler.message(headers)
    spend_turn(service)
    handler.message(large)
    await service.close(0.0)
    assert call.did[:2] == ["request_headers", "request_body"]
    assert call.did[-1] == "end 0"


async def test_message_behind_the_end_is_dropped() -> None:
    """Envoy may send one before it learns of the end, and nobody would end the pick."""
    stage = Stage(sample_ratio=0.0)
    _, handler, call = opened(stage)
    handler.message(headers_message().SerializeToString())
    handler.leave()
    handler.message(with_mode(body_message(chat("hi"), end_of_stream=True), "BUFFERED").SerializeToString())
    assert call.did == ["request_headers", "end 0"]
    assert stage.in_flight() == stage.picks("cold") == 0


async def test_ordinary_requests_start_no_task() -> None:
    _, handler, call = opened(Stage(sample_ratio=0.0))
    before = asyncio.all_tasks()
    for body in (chat("hi"), LARGE):
        handler.message(with_mode(body_message(body, end_of_stream=True), "BUFFERED").SerializeToString())
    assert asyncio.all_tasks() == before
    assert call.did == ["request_body"] * 2
