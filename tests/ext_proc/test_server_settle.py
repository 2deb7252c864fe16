"""Decisions that are settled once their replies are on their way: nothing later can tell the difference."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ext_proc.processor import RequestStream
from tests.ext_proc.fake_envoy import answer, body_message, with_mode
from tests.ext_proc.test_server_steps import opened
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.worlds import chat

if TYPE_CHECKING:
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb


def late_stage() -> Stage:
    stage = Stage(sample_ratio=0.0)
    stage.service.settles_later = True
    return stage


def whole(text: str) -> pb.ProcessingRequest:
    return with_mode(body_message(chat(text), end_of_stream=True), "BUFFERED")


async def test_the_reply_is_written_before_its_booking() -> None:
    stage = late_stage()
    _, handler, call = opened(stage)
    handler.message(whole("hi").SerializeToString())
    assert (call.did, stage.in_flight(), stage.picks("cold")) == (["request_body"], 0, 0)
    await asyncio.sleep(0)
    assert (stage.in_flight(), stage.picks("cold")) == (1, 1)


def test_the_next_pick_sees_every_decision_before_it() -> None:
    texts = [f"{'word ' * 400} {number // 3}" for number in range(12)]
    replies = []
    for stage in (late_stage(), Stage(sample_ratio=0.0)):
        # A pick's number is random.
        stage.world.director._serials = iter(range(1, 100))  # type: ignore[assignment]
        replies.append([answer(RequestStream(stage.service), whole(text)) for text in texts])
    assert replies[0] == replies[1]
    assert stage.picks("warm") > 0


@pytest.mark.parametrize("end", ["ended", "half_closed", "leave"])
async def test_the_end_of_a_stream_settles_it_first(end: str) -> None:
    stage = late_stage()
    _, handler, _ = opened(stage)
    handler.message(whole("hi").SerializeToString())
    getattr(handler, end)(*(["reset"] if end == "ended" else []))
    assert (stage.picks("cold"), stage.in_flight()) == (1, 0)
    assert [entry.finished_total for entry in stage.world.director.traffic.snapshot()] == [1]
