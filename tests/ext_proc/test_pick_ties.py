"""Where warmth makes no difference, requests go in turn; what makes none is told apart from what does."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from ext_proc.pick import Backlog, LoadColumns, PickRequest, PoolState
from ext_proc.pick.backlog import RECENT_SECONDS
from fleet.endpoint import Endpoint, Pool
from fleet.settings.picks import PickSettings
from testing.signals import Load, Signal, table_of
from tests.ext_proc.test_pick_cost import ask, bound, load, state_of

SETTINGS = PickSettings()
NOW = 100.0
BLOCK = SETTINGS.block_bytes


class Idle:
    """A pool where every request has ended when the next one comes."""

    def __init__(self, weights: tuple[int, ...] = (1000,) * 4) -> None:
        ends = tuple(Endpoint(f"10.0.0.{n}:8000", "p", ("m",)) for n in range(len(weights)))
        self.state = PoolState(Pool("p", ends))
        self.addresses = self.state.shape.addresses
        self.weights = dict(zip(self.addresses, weights, strict=True))
        self.now = NOW
        self.tick()

    def tick(self) -> None:
        nothing = Signal(0.0, self.now, "test")
        loads = dict.fromkeys(self.addresses, Load(queue_depth=nothing, running=nothing))
        signals = table_of(self.addresses, loads)
        columns = LoadColumns.of(self.state.shape, signals, self.weights, {})
        self.state.refresh(columns, SETTINGS, self.now)

    def send(self, blocks: list[int], text_bytes: int, matched: list[int]) -> int:
        picks = self.state.profile("m")
        assert picks is not None
        asked = PickRequest(
            blocks[0] if blocks else 1, blocks, text_bytes, np.array(matched), self.now, model="m"
        )
        decision = picks.pick(asked)
        row = self.addresses.index(decision.result.endpoints[0])
        cold = text_bytes - matched[row] * BLOCK
        self.state.demand("m").add(self.now)
        self.state.backlog.add(self.addresses[row], decision.cold_seconds, self.now, cold)
        self.now += 0.25
        self.state.backlog.set_in_flight(self.addresses[row], 0, self.now)
        if self.now % 0.5 == 0:
            self.tick()
        return row

    def counts(self, requests: int, blocks: list[int], text_bytes: int, matched: list[int]) -> list[int]:
        rows = [self.send(blocks, text_bytes, matched) for _ in range(requests)]
        return np.bincount(rows, minlength=len(self.addresses)).tolist()


def test_repeated_short_prompt_takes_turns() -> None:
    counts = Idle().counts(100, [], 60, [0] * 4)
    assert max(counts) - min(counts) <= 3


def test_one_prompt_that_all_hold_goes_in_turn() -> None:
    counts = Idle().counts(100, [5, 6, 7], 3 * BLOCK + 60, [3] * 4)
    assert max(counts) - min(counts) <= 3


def test_repeated_prompt_takes_turns_among_its_holders() -> None:
    counts = Idle().counts(90, [5, 6, 7], 3 * BLOCK + 60, [3, 0, 3, 3])
    assert counts[1] == 0
    assert max(counts) - min(counts[:1] + counts[2:]) <= 3


def test_turns_are_in_proportion_to_weights() -> None:
    counts = Idle((2000, 1000, 1000)).counts(200, [], 60, [0] * 3)
    assert counts == pytest.approx([100, 50, 50], abs=6)


def test_new_prefix_is_placed_by_its_hash() -> None:
    """Workers that do not talk place it alike: each asks rendezvous hashing, not its own counts."""
    blocks = [77, 78, 79]
    first = Idle().send(blocks, 3 * BLOCK, [0] * 4)
    busy = Idle()
    for _ in range(50):
        busy.send([], 60, [0] * 4)
    assert {busy.send(blocks, 3 * BLOCK, [0] * 4) for _ in range(5)} == {first}


def test_recent_counts_fade_and_new_endpoints_begin_at_the_mean() -> None:
    backlog = Backlog(("a:1", "b:1"))
    backlog.fade(NOW)
    for _ in range(8):
        backlog.add("a:1", 0.0, NOW)
    moved = backlog.moved_to(("a:1", "b:1", "c:1"), np.array([0, 1, -1]), lambda _: 0)
    assert moved.recent_requests.tolist() == [8, 0, 4]
    moved.fade(NOW + RECENT_SECONDS)
    assert moved.recent_requests.tolist() == pytest.approx([8 / np.e, 0, 4 / np.e])


def test_load_decides_between_equal_tiers() -> None:
    """An hour of cost at each made ties 36 s wide: most requests went to the two that had 4 s of queue."""
    loads = {0: load(queue_depth=0), 1: load(queue_depth=40), 2: load(queue_depth=40)}
    state = state_of(loads, count=3)
    state.backlog.mean_cold_seconds = 0.1
    everybody = state.shape.addresses
    for leading in range(60):
        question = ask(leading=leading << 40).of(state)
        assert bound(state).pick(replace(question, refused_by=everybody)).result.endpoints[0] == everybody[0]


def test_refusing_endpoints_come_last_and_once() -> None:
    state = state_of({0: load(queue_depth=5), 1: load(queue_depth=9), 2: load(queue_depth=0)}, count=3)
    addresses = state.shape.addresses
    pick = bound(state).pick(replace(ask().of(state), refused_by=addresses[2:])).result
    assert pick.endpoints == (addresses[0], addresses[1], addresses[2])
