"""A pick is booked once it is final: a twin that another worker has in flight leaves no trace of one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ext_proc.kv.lookup import KvLookup
from ext_proc.kv.view import KvView
from ext_proc.pick import PickResult, Reason, Refusal
from ext_proc.pick.backlog import MOST_TRIALS_LEFT
from ext_proc.processor import RequestStream
from ext_proc.protocol import exchange
from testing.signals import Signal, loads_of, table_of
from tests.ext_proc.fake_envoy import (
    DUPLEX,
    FakeEnvoy,
    answer,
    body_message,
    headers_message,
    parsed,
    with_mode,
)
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.worlds import chat, http_request, pool_of, view_of

if TYPE_CHECKING:
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

LONG = "You are a helpful assistant. " * 200
PATH = "/v1/chat/completions"


class Others:
    """What the other workers say of a key, when they are let."""

    def __init__(self, free: bool | None) -> None:
        self.free = free
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def claim(self, _key: str, _token: int) -> bool | None:
        self.asked.set()
        await self.may_answer.wait()
        return self.free

    def release(self, _key: str, _token: int) -> None:
        """Nothing is kept."""


def stage_with(others: Any) -> Stage:
    stage = Stage(ext_proc={"idempotency": {"enabled": True, "duplicates": "reject"}})
    stage.service.keys._shared = others
    return stage


async def asked(stage: Stage, stream: RequestStream, body: bytes = chat(LONG)) -> list[pb.ProcessingResponse]:
    headers = headers_message([(":method", b"POST"), (":path", PATH.encode())])
    answer(stream, with_mode(headers, "BUFFERED"))
    replies = stream.replies(body_message(body, end_of_stream=True))
    return parsed(replies if isinstance(replies, list) else await replies)


def noted(stage: Stage) -> dict[str, float]:
    """Everything that a pick leaves behind."""
    world = stage.world
    assert world.director.pools.follow()
    pool = next(iter(world.director.pools))
    return {
        "picks": stage.picks("cold") + stage.picks("warm"),
        "started": sum(entry.started_total for entry in world.director.traffic.snapshot()),
        "in flight": stage.in_flight(),
        "blocks": sum(
            world.director.warmth.index.block_count(address) for address in world.director.pools.addresses
        ),
        "asked for": pool.demand("m").at(world.clock.now),
        "given": float(pool.backlog.recent_requests.sum()),
        "cold work": pool.backlog.mean_cold_seconds or 0.0,
        "sessions": len(world.director.sessions),
        "trials": float(np.isfinite(pool.backlog.tried_at).sum())
        + MOST_TRIALS_LEFT
        - pool.backlog.trials_left,
    }


async def test_duplicate_of_other_worker_counts_once() -> None:
    others = Others(free=False)
    stage = stage_with(others)
    others.may_answer.set()
    stream = RequestStream(stage.service)
    (reply,) = await asked(stage, stream)
    assert reply.immediate_response.status.code == 409
    stream.close()
    assert not any(noted(stage).values()), noted(stage)
    assert stage.picks("duplicate") == stage.value("warmroute_duplicates_total") == 1
    (span,) = stage.spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["warmroute.reason"] == "duplicate"
    (decision,) = stage.service.decisions._ring
    assert (decision.result.reason.value, decision.result.endpoints) == ("duplicate", ())


@pytest.mark.parametrize("free", [True, None])
async def test_request_is_booked_after_confirmation(free: bool | None) -> None:
    """Also when nobody knows: then the request goes through."""
    others = Others(free)
    stage = stage_with(others)
    stream = RequestStream(stage.service)
    answering = asyncio.create_task(asked(stage, stream))
    await asyncio.wait_for(others.asked.wait(), 60)
    assert not any(noted(stage).values())
    others.may_answer.set()
    (reply,) = await asyncio.wait_for(answering, 60)
    assert reply.WhichOneof("response") == "request_body"
    told = noted(stage)
    assert (told["picks"], told["started"], told["in flight"]) == (1, 1, 1)
    assert told["blocks"] > 0
    stream.close()
    assert stage.in_flight() == 0


async def test_a_client_that_leaves_meanwhile_leaves_nothing_behind() -> None:
    others = Others(free=True)
    stage = stage_with(others)
    stream = RequestStream(stage.service)
    answering = asyncio.create_task(asked(stage, stream))
    await asyncio.wait_for(others.asked.wait(), 60)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    stream.close()
    assert not any(noted(stage).values())
    assert stage.value("warmroute_idempotency_in_flight") == 0


async def test_fault_is_counted_once_and_refuses_nothing() -> None:
    others = Others(free=True)
    others.may_answer.set()
    stage = stage_with(others)
    stream = RequestStream(stage.service)
    stage.world.director.book = None  # type: ignore[method-assign, assignment]
    (reply,) = await asked(stage, stream)
    assert reply.WhichOneof("response") == "request_body"
    assert stage.value("warmroute_ext_proc_faults_total", kind="TypeError") == 1
    stream.close()


async def test_a_refused_twin_tries_no_endpoint() -> None:
    """An endpoint in doubt is tried by requests that reach it: a refused one must not take the turn."""
    others = Others(free=False)
    others.may_answer.set()
    stage = stage_with(others)
    doubted = view_of(pool_of())
    address = "10.0.0.1:80"
    loads = loads_of(doubted.signals)
    loads[address] = replace(loads[address], trust_ratio=Signal(0.1, 1000.0, "x"))
    stage.world.store.publish(replace(doubted, signals=table_of(doubted.signals.addresses, loads)))
    stream = RequestStream(stage.service)
    (reply,) = await asked(stage, stream)
    assert reply.immediate_response.status.code == 409
    stream.close()
    assert not noted(stage)["trials"]
    others.free = True
    stream = RequestStream(stage.service)
    (reply,) = await asked(stage, stream)
    assert reply.dynamic_metadata.fields["warmroute"].struct_value.fields["endpoint"].string_value == address
    assert noted(stage)["trials"]
    stream.close()


@pytest.mark.parametrize("mode", ["BUFFERED", DUPLEX])
def test_a_reply_that_cannot_be_built_books_no_pick(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """The request goes on without a pick, so no engine has seen it there."""
    stage = Stage()
    step = "body_reply" if mode == "BUFFERED" else "headers_reply"
    real, failures = getattr(exchange, step), []

    def fail_once(result: Any, *rest: Any, **more: Any) -> Any:
        if result is not None and result.endpoints and not failures:
            failures.append(result)
            raise RuntimeError
        return real(result, *rest, **more)

    monkeypatch.setattr(exchange, step, fail_once)
    assert stage.play(chat(LONG), mode).reason == "fault"
    assert failures
    assert stage.picks("fault") == 1
    assert not any(noted(stage).values()), noted(stage)
    monkeypatch.undo()
    assert stage.play(chat(LONG), mode).reason == "cold"
    assert noted(stage)["blocks"]


def test_a_pick_that_the_protocol_replaces_is_not_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another endpoint is named in its place, or none: the picked one never sees the request."""
    stage = Stage(ext_proc={"name_always": True})
    named = PickResult(("10.0.0.3:80",), Reason.NAMED)
    refused = PickResult.refuse(Reason.NOT_READY, Refusal(503, "none"))
    for result in (named, refused):
        monkeypatch.setattr(stage.service.picker_protocol, "enforce", lambda *_, result=result: result)
        stream = RequestStream(stage.service)
        envoy = FakeEnvoy(partial(answer, stream), "BUFFERED", may_refuse=True)
        envoy.headers()
        envoy.body(chat(LONG), end_of_stream=True)
        assert stage.picks(result.reason.value) == 1
        stream.close()
    left = noted(stage)
    assert left.pop("started") == 1, "of the one that was named"
    assert not any(left.values()), left


async def test_a_body_is_parsed_once_for_all_who_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key, its prompt and its token ids come from one parse."""
    stage = Stage(ext_proc={"idempotency": {"enabled": True, "duplicates": "reject"}})
    lookup = KvLookup(KvView(100, stage.clock), stage.clock, 100)
    lookup.set_pool("p", ["10.0.0.0:80"])
    stage.world.director._kv = lookup
    bodies: list[bytes] = []
    reader = stage.world.director.reader._bodies._envelopes
    decode = reader._decoder.decode

    def count(body: bytes) -> Any:
        bodies.append(body)
        return decode(body)

    monkeypatch.setattr(reader, "_decoder", SimpleNamespace(decode=count))
    stream = RequestStream(stage.service)
    (reply,) = await asked(stage, stream, b'{"model": "m", "prompt": [1, 2, 3]}')
    stream.close()
    assert reply.dynamic_metadata.fields["warmroute"].struct_value.fields["idempotency"].string_value
    assert len(bodies) == 1


def test_a_pick_changes_nothing_before_it_is_booked() -> None:
    stage = Stage()
    world = stage.world
    request = http_request(chat(LONG))
    director, parsed = world.director, world.director.reader.read(request)
    first, second = director.pick(request, parsed), director.pick(request, parsed)
    assert first.result.endpoints == second.result.endpoints
    assert not any(noted(stage).values())
    director.book(first)
    assert noted(stage)["blocks"]
