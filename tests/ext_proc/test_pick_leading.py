"""Who had a prompt's beginning is known of prompts in use, once the index holds them no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ext_proc.pick import PickRequest, Reason
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole

if TYPE_CHECKING:
    import pytest

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


def test_who_was_warm_is_known_when_all_blocks_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = made()
    picks = [world.route(whole(chat(HOT))) for _ in range(3)]
    home = picks[-1].endpoints[0]
    assert picks[-1].reason is Reason.WARM
    evict(world)
    question = asked(world, HOT, monkeypatch)
    assert question.edges == (0, 0)
    assert question.earlier_holders[:1] == (home,)


def test_a_restarted_engine_had_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = made()
    for _ in range(3):
        home = world.route(whole(chat(HOT))).endpoints[0]
    world.director.warmth.forget(home)
    evict(world)
    assert home not in asked(world, HOT, monkeypatch).earlier_holders
