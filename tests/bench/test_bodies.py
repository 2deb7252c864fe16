"""The bench of bodies: what it makes, that it finds a broken rule, and a small run of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench import bodies, body_fuzz
from bench.body_families import CODED, FAMILIES, chat
from bench.body_fuzz import play, play_batch
from bench.body_maker import make
from ext_proc.director.prompts import RequestReader
from ext_proc.pick import Reason
from ext_proc.prompt.decode import BodyReader, Prompt
from ext_proc.protocol.exchange import Exchange

if TYPE_CHECKING:
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

SAVED = [(1, 152), (1, 2065), (1, 559), (1, 1256), (1, 1871), (1, 3367), (1, 5253), (1, 184110), (1, 903023)]
"""Seed and number of bodies that have broken a rule once."""


def test_some_hundred_bodies_break_no_rule() -> None:
    outcomes, broken = play_batch(seed=11, begin=0, end=600)
    assert broken == []
    assert outcomes.total() == 600
    assert {"prompt", "not_json", "no_prompt", "wrong_shape", "compressed"} <= outcomes.keys()


@pytest.mark.parametrize(("seed", "number"), SAVED)
def test_bodies_that_broke_a_rule_once_break_none(seed: int, number: int) -> None:
    assert play(seed, number)


def test_a_body_is_the_same_whenever_it_is_made() -> None:
    assert make(5, 17) == make(5, 17)
    assert len({make(5, number).body for number in range(50)}) > 45


def test_a_reader_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr(RequestReader, "read", raises)
    _, broken = play_batch(seed=11, begin=0, end=20)
    assert broken
    assert all("RecursionError" in entry["error"] for entry in broken)


def test_a_reply_of_a_wrong_kind_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exchange, "receive", lambda *_: [])
    _, broken = play_batch(seed=11, begin=0, end=20)
    assert len(broken) == 20


def test_a_changed_body_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = body_fuzz.Driven.answer

    def shorter(self: body_fuzz.Driven, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        changed = []
        for reply in real(self, message):
            reply.request_body.response.body_mutation.streamed_response.body = b"x"
            changed.append(reply)
        return changed

    monkeypatch.setattr(body_fuzz.Driven, "answer", shorter)
    _, broken = play_batch(seed=11, begin=0, end=20)
    assert len(broken) > 15


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_fills_the_requested_size(name: str) -> None:
    assert 0.5 * 50_000 < len(FAMILIES[name](50_000)) < 1.5 * 50_000


@pytest.mark.parametrize("name", ["chat", "agent", "image", "token_ids", "table", "tools"])
def test_legal_families_are_legal(name: str) -> None:
    body = FAMILIES[name](50_000)
    json.loads(body)
    assert isinstance(BodyReader().read(body, complete=True).prompt, Prompt)


def test_every_family_is_measured() -> None:
    longest = bodies.worst(sizes=(2000,))
    assert longest.keys() == FAMILIES.keys() | CODED.keys()
    assert all(family["worst_ms"] > 0 for family in longest.values())


def test_an_ordinary_body_gets_a_pick_by_all_of_its_prompt() -> None:
    reader = bodies.Reader()
    first, second = (reader.route(chat(8192), complete=True) for _ in range(2))
    assert (first.reason, second.reason) == (Reason.COLD, Reason.WARM)
    assert second.matched_share == 1.0
    assert second.endpoints[0] == first.endpoints[0]
