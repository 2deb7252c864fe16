"""Who had a prompt's beginning is known of prompts in use, once the index holds them no more."""

from __future__ import annotations

from typing import Any

import pytest

from ext_proc.director import director as module
from ext_proc.pick import PickRequest, Reason
from ext_proc.prefix.leading import leading_key
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole

HOT = "You are a helpful assistant. " * 400


def made() -> World:
    return World(view_of(pool_of()))


def evict(world: World) -> None:
    """Let the index drop all its blocks, as it does when others come."""
    for address in list(world.director.pools.addresses):
        world.director.warmth.index.resize(address, 0)
        world.director.warmth.index.resize(address, 1000)


def asked(world: World, text: str, monkeypatch: pytest.MonkeyPatch) -> PickRequest:
    """Route a prompt and return what was asked for it."""
    questions: list[PickRequest] = []
    ask = world.director.pick_request

    def heard(*given: Any, **more: Any) -> Any:
        questions.append(ask(*given, **more))
        return questions[-1]

    with monkeypatch.context() as patch:
        patch.setattr(world.director, "pick_request", heard)
        assert world.route(whole(chat(text))).endpoints
    return questions[0]


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every key that is made."""
    keys: list[bytes] = []
    make = leading_key

    def noted(*given: Any) -> Any:
        keys.append(make(*given))
        return keys[-1]

    monkeypatch.setattr(module, "leading_key", noted)
    return keys


def test_who_was_warm_is_known_when_all_blocks_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = made()
    picks = [world.route(whole(chat(HOT))) for _ in range(3)]
    home = picks[-1].endpoints[0]
    assert picks[-1].reason is Reason.WARM
    evict(world)
    question = asked(world, HOT, monkeypatch)
    assert question.edges == (0, 0)
    assert question.earlier_holders[:1] == (home,)


def test_a_prompt_in_use_takes_a_digest_once(digests: list[bytes]) -> None:
    """Once when nobody had it, and once when it comes again: not with each request that finds it warm."""
    world = made()
    for number in range(50):
        world.route(whole(chat(f"{HOT} {number}")))
    assert 1 <= len(digests) <= 2
    assert len(set(digests)) == 1


def test_prompts_that_share_less_than_the_leading_part_take_none(digests: list[bytes]) -> None:
    """Their own leading parts come once: the first of them is cold, the others are warm up to there."""
    world = made()
    for number in range(50):
        world.route(whole(chat(f"{HOT[:1000]} {number} {HOT}")))
    assert len(digests) == 1


def test_a_restarted_engine_had_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = made()
    for _ in range(3):
        home = world.route(whole(chat(HOT))).endpoints[0]
    world.director.warmth.forget(home)
    evict(world)
    assert home not in asked(world, HOT, monkeypatch).earlier_holders
