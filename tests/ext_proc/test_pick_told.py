"""What engines tell and do not tell: no signal at all, and which memory counts."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from fleet.store import FleetView
from testing.signals import Load, Signal, view_with
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole
from warmroute.simulator.workload import words

NOW = 1000.0


def told(**signals: float) -> Load:
    return Load(**{name: Signal(value, NOW, "test") for name, value in signals.items()})


def shares(loads: list[Load], requests: int = 200, **weights: Any) -> list[float]:
    """Who gets how much of prompts with nothing in common, each of which has ended when the next comes."""
    pool = pool_of(count=len(loads))
    addresses = [end.address for end in pool.endpoints]
    view = view_of(pool)
    filters = ["model", "subset", "memory"]
    world = World(
        view_with(view.membership, {}, dict(zip(addresses, loads, strict=True))),
        weights=weights or {},
        ext_proc={"pick": {"filters": filters}},
    )
    random = Random(4)
    counts = Counter(world.route(whole(chat(words(random, 300)))).endpoints[0] for _ in range(requests))
    return [counts[address] / requests for address in addresses]


def test_without_any_signal_conversations_stay() -> None:
    world, random = World(view_of(pool_of(), loaded=False)), Random(1)
    for _ in range(6):
        text, seen = words(random, 400), set()
        for _ in range(8):
            seen.add(world.route(whole(chat(text))).endpoints[0])
            text += words(random, 60)
            world.clock.now += 0.1
        assert len(seen) == 1


@pytest.mark.untraced
def test_workers_agree_without_any_signal() -> None:
    view = view_of(pool_of(), loaded=False)
    weights = {f"10.0.0.{n}:80": weight for n, weight in enumerate((2000, 1000, 500, 500))}
    random, counts = Random(2), Counter[str]()
    for _ in range(1_000):
        prompt = whole(chat(words(random, 100)))
        # Each has seen nothing but this prompt.
        first, other = (World(FleetView(view.membership, weights)).route(prompt) for _ in range(2))
        assert first.endpoints == other.endpoints
        counts[first.endpoints[0]] += 1
    expected = [500, 250, 125, 125]
    assert [counts[address] for address in weights] == pytest.approx(expected, abs=50)


def test_a_gpus_memory_is_no_engines_unless_the_settings_say_so() -> None:
    """Engines fill it when they start: equal ones at 95 and 50 % got 0 and 400 of 400 picks."""
    loads = [told(gpu_memory_used_ratio=0.95, queue_depth=0), told(gpu_memory_used_ratio=0.5, queue_depth=0)]
    assert min(shares(loads)) > 0.4
    assert min(shares(loads, memory="kv")) > 0.4
    for memory in ("gpu", "highest"):
        assert shares(loads, memory=memory) == [0, 1]


def test_engine_without_kv_signal_is_as_full_as_its_peers() -> None:
    """Neither the GPU's figure nor a 0 stands for what is unknown."""
    silent = told(gpu_memory_used_ratio=0.95, queue_depth=0)
    assert min(shares([silent, told(memory_used_ratio=0.2, queue_depth=0)])) > 0.4
    full = told(memory_used_ratio=0.99, gpu_memory_used_ratio=0.5, queue_depth=0)
    assert shares([silent, full, silent])[1] == 0
    assert shares([silent, full], memory="gpu") == [0, 1]
    assert shares([told(memory_used_ratio=0.1, queue_depth=0), full], memory="highest") == [1, 0]
