"""The rule of each policy, by small tables of cases: what it knows of three engines, and its pick."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from fleet.settings import SignalSettings
from warmroute.replay.engine import Engine
from warmroute.replay.policies import POLICIES
from warmroute.replay.policies.look_ahead import LookAhead
from warmroute.replay.policies.perfect import Greedy
from warmroute.replay.policies.policy import Observer, Plan
from warmroute.replay.policies.weights import HISTOGRAMS, Weights
from warmroute.replay.trace import TraceRequest
from warmroute.simulator.metrics import Gauges
from warmroute.simulator.model import EngineConfig, EventKind, Request
from xds_server.signals.scrape.engines import reader_of

CONFIG = EngineConfig(num_blocks=1000, block_tokens=512, report_tokens=False)
BLOCKS = tuple(range(1, 9))
PROMPT = TraceRequest(0.0, 8 * 512 + 100, 10, BLOCKS)
IDLE = (0, 0, 0)


class Fleet(NamedTuple):
    """By engine: requests in flight, prompt tokens that wait, leading blocks of the prompt, queue, KV use."""

    in_flight: tuple[int, ...] = IDLE
    waiting: tuple[int, ...] = IDLE
    warm: tuple[int, ...] = IDLE
    queue: tuple[int, ...] = IDLE
    used: tuple[float, ...] = IDLE
    active: tuple[int, ...] = IDLE


CASES: dict[str, tuple[str, Fleet, int]] = {
    "least request: the fewest": ("least_request", Fleet((3, 1, 2)), 1),
    "sglang: the longest prefix": ("sglang", Fleet((0, 60, 0), warm=(1, 8, 4)), 1),
    "sglang: a small match is none": ("sglang", Fleet((4, 2, 1), warm=(0, 2, 0)), 2),
    "sglang: imbalance": ("sglang", Fleet((0, 90, 10), warm=(0, 8, 0)), 0),
    "smg: the holder below the gate": ("smg", Fleet((10, 60, 10), (0, 9000, 0), (0, 8, 0)), 1),
    "smg: the least wait above it": ("smg", Fleet((10, 200, 10), (9000, 0, 0), (0, 8, 0)), 2),
    "smg: a small match is none": ("smg", Fleet(waiting=(10, 9000, 5), warm=(0, 2, 0)), 2),
    "smg: a full cache is a wait": ("smg", Fleet(used=(0.99, 0.9, 0.5)), 2),
    "dynamo: new blocks": ("dynamo", Fleet(warm=(0, 4, 8)), 2),
    "dynamo: blocks in use": ("dynamo", Fleet(warm=(0, 4, 8), active=(0, 0, 20)), 1),
    "dynamo: prompts that wait": ("dynamo", Fleet(waiting=(0, 512, 5000), warm=(0, 4, 8)), 1),
    "aibrix: a holder within a deviation": ("aibrix", Fleet((5, 5, 3), warm=(0, 8, 0)), 1),
    "aibrix: no holder above it": ("aibrix", Fleet((4, 9, 3), warm=(0, 8, 2)), 2),
    "aibrix: under imbalance the least": ("aibrix", Fleet((0, 1, 30), warm=(0, 8, 0)), 0),
    "llm_d: the prefix outweighs the queue": ("llm_d", Fleet(warm=(0, 8, 0), queue=(0, 9, 0)), 1),
    "llm_d: not queue and cache": (
        "llm_d",
        Fleet(warm=(0, 8, 0), queue=(0, 9, 1), used=(0, 0.9, 0)),
        0,
    ),
    "sticky: stays": ("llm_d_sticky", Fleet(waiting=(0, 50_000, 0), warm=(0, 8, 0)), 1),
    "sticky: until saturated": ("llm_d_sticky", Fleet(waiting=(9, 10**7, 0), warm=(0, 8, 0)), 2),
    "sticky: below 0.8 no holder": ("llm_d_sticky", Fleet(waiting=(0, 9000, 900), warm=(0, 6, 0)), 0),
    "lmetric: product": ("lmetric", Fleet((1, 3, 9), warm=(0, 6, 8)), 2),
    "lmetric: batch size": ("lmetric", Fleet((1, 3, 99), warm=(0, 6, 8)), 1),
    "lmetric: with the queue": ("lmetric_queued", Fleet((1, 1, 1), (0, 0, 9000), (0, 6, 8)), 1),
    "preble: exploits": ("preble", Fleet(warm=(0, 8, 6)), 1),
    "preble: explores": ("preble", Fleet(warm=(0, 3, 0)), 1),
    "lodestar: begins with least request": ("lodestar", Fleet((3, 1, 2)), 1),
    "cold price: warmth": ("cold_price", Fleet(warm=(0, 8, 0)), 1),
    "cold price: queue": ("cold_price", Fleet(waiting=(0, 90_000, 0), warm=(0, 8, 8)), 2),
}


def made(name: str, size: int = 3, **plan: Any) -> Observer:
    policy = POLICIES[name]([Engine(CONFIG) for _ in range(size)], Plan(CONFIG, **plan))
    assert isinstance(policy, Observer)
    return policy


@pytest.mark.parametrize("case", CASES)
def test_rule(case: str) -> None:
    name, fleet, expected = CASES[case]
    picks = set()
    for seed in range(5):
        policy = made(name, seed=seed)
        policy.in_flight[:], policy.waiting_tokens[:] = fleet.in_flight, fleet.waiting
        for engine, warm in enumerate(fleet.warm):
            policy.index.add(engine, BLOCKS[:warm])
            policy.active_blocks[engine].update(range(1000, 1000 + fleet.active[engine]))
        policy.gauges = [Gauges(0, *each) for each in zip(fleet.queue, fleet.used, strict=True)]
        picks.add(policy.pick(PROMPT))
    assert picks == {expected}


def test_power_of_two_avoids_the_busiest() -> None:
    policy = made("power_of_two")
    policy.in_flight[:] = 1, 9, 2
    picks = np.bincount([policy.pick(PROMPT) for _ in range(300)], minlength=3)
    assert picks[0] > picks[2] > picks[1]


def test_round_robin_takes_turns() -> None:
    policy = made("round_robin")
    assert [policy.pick(PROMPT) for _ in range(4)] == [0, 1, 2, 0]


def test_session_hash_moves_only_a_lost_engines_sessions() -> None:
    requests = [TraceRequest(0.0, 4000, 10, BLOCKS, session=f"s{number}") for number in range(60)]
    three, two = ([made("session_hash", size).pick(each) for each in requests] for size in (3, 2))
    assert set(three) == {0, 1, 2}
    assert all(after == before for before, after in zip(three, two, strict=True) if before < 2)


def test_session_hash_goes_by_leading_blocks() -> None:
    policy = made("session_hash", 8)
    turns = [TraceRequest(0.0, 512 * n, 10, BLOCKS[:n]) for n in range(2, 9)]
    assert len({policy.pick(turn) for turn in turns}) == 1


def test_dualmap_has_two_engines_for_a_prefix() -> None:
    policy = made("dualmap", 8)
    home, other = {policy.pick(PROMPT) for _ in range(10)}
    policy.index.add(home, BLOCKS)
    assert policy.pick(PROMPT) == home
    policy.waiting_tokens[home] = 10**6
    assert policy.pick(PROMPT) == other


def test_dualmap_spreads_a_hot_prefix() -> None:
    """Prompts that share their first block are told apart by more of them."""
    policy = made("dualmap", 8)
    picks = [
        policy.pick(TraceRequest(0.0, 2000, 10, (1, number, number + 10_000))) for number in range(2, 400)
    ]
    assert len(set(picks[:10])) <= 2
    assert len(set(picks[-100:])) == 8


def test_lodestar_learns_what_takes_time() -> None:
    """Waiting prompt tokens make first tokens late, requests in flight do not: so it prefers many of them."""
    policy = made("lodestar")
    draw = np.random.default_rng(1)
    for number in range(400):
        policy.waiting_tokens[:] = draw.uniform(0, 50_000, 3)
        policy.in_flight[:] = draw.uniform(0, 30, 3)
        engine = policy.choose(number, PROMPT, float(number))
        seconds = (policy.waiting_tokens[engine] - policy._sent[number].waiting_tokens) * 1e-4
        policy.first_token(number, number + seconds)
    policy.waiting_tokens[:] = 40_000, 1000, 20_000
    policy.in_flight[:] = 1, 30, 1
    picks = [policy.pick(PROMPT) for _ in range(20)]
    assert picks.count(1) >= 18


@pytest.mark.parametrize(("policy", "engine"), [(Greedy, 1), (LookAhead, 0)])
def test_look_ahead_leaves_room_for_who_comes(policy: type[Observer], engine: int) -> None:
    """A long prompt queues behind another one, so that short ones, soon to come, find an idle engine."""
    short = [TraceRequest(0.1 + n / 100, 600, 10, (900 + n,)) for n in range(8)]
    requests = (TraceRequest(0.0, 30_000, 10, ()), *short)
    engines = [Engine(CONFIG) for _ in range(2)]
    engines[0].model.submit(Request(6_000, 10), 0.0)
    subject = policy(engines, Plan(CONFIG, requests=requests))
    assert subject.choose(0, requests[0], 0.0) == engine


def test_look_ahead_knows_shared_prefixes() -> None:
    """The next turn will be warm where this one goes: the long prompt between them goes elsewhere."""
    requests = (PROMPT, TraceRequest(0.5, 60_000, 10, ()), PROMPT._replace(at=1.0))
    engines = [Engine(CONFIG) for _ in range(2)]
    subject = LookAhead(engines, Plan(CONFIG, requests=requests))
    first = subject.choose(0, PROMPT, 0.0)
    engines[first].model.submit(Request(PROMPT.prompt_tokens, 10, BLOCKS), 0.0)
    engines[first].model.advance(0.5)
    assert subject.choose(1, requests[1], 0.5) != first


@pytest.mark.untraced
@pytest.mark.parametrize("strategy", ["headroom", "p99", "predictive", "balanced"])
def test_weights_alone_draw_by_weights(strategy: str) -> None:
    """The busiest of three engines gets least, in the proportion of its weight."""
    policy = POLICIES[strategy]([Engine(CONFIG) for _ in range(3)], Plan(CONFIG))
    assert isinstance(policy, Weights)
    for second in range(60):
        for address, busy in zip(policy.addresses, (1.0, 1.0, 2.2), strict=True):
            page = {"memory_used_ratio": 0.4 * busy, "queue_depth": 4 * busy, "running": 8 * busy}
            late = {"latency_p50_seconds": 0.2 * busy, "latency_p99_seconds": busy}
            policy.path.put(address, {**page, **late, "progress_total": float(second)}, float(second))
        policy.tick(float(second))
    weights = [policy.path.weights[address] for address in policy.addresses]
    picks = [policy.choose(number, PROMPT, 60.0) for number in range(2000)]
    assert weights[2] < min(weights[:2])
    assert picks.count(2) / 2000 == pytest.approx(weights[2] / sum(weights), abs=0.04)


def test_replay_page_has_all_that_is_read() -> None:
    """Pages of a replay leave out histograms, but none that a signal comes from."""
    engine = Engine(CONFIG)
    engine.model.submit(Request(4000, 3), 0.0)
    readers = [reader_of("vllm", name, SignalSettings()) for name in ("whole", "part")]
    for now in (0.0, 1.0, 2.0):
        for event in engine.model.advance(now):
            if event.kind is EventKind.FIRST_TOKEN:
                engine.metrics.on_first_token(event.handle)
            elif event.kind is EventKind.FINISHED:
                engine.metrics.on_finished(event.handle)
        pages = (engine.metrics.page(engine.model, "m", 1.0, histograms=each) for each in (None, HISTOGRAMS))
        whole, part = (reader.read(page, now) for reader, page in zip(readers, pages, strict=True))
        assert whole == part
    assert "latency_p99_seconds" in whole
    assert "prompt_tokens_variance" in whole
