"""Where warmth makes no difference, requests go in turn; what makes none is told apart from what does."""

from __future__ import annotations

import numpy as np
import pytest

from ext_proc.pick import Backlog, LoadColumns, PoolState, Question
from ext_proc.pick.backlog import EVIDENT_BYTES, GIVEN_SECONDS
from fleet.endpoint import Endpoint, Pool
from fleet.load import Load, Signal
from fleet.pick_table import PickTable
from fleet.settings.picks import PickSettings

SETTINGS = PickSettings()
NOW = 100.0
BLOCK = SETTINGS.block_bytes


class Idle:
    """A pool where every request has ended when the next one comes."""

    def __init__(
        self, weights: tuple[int, ...] = (1000,) * 4, rates: tuple[float, ...] | None = None
    ) -> None:
        ends = tuple(Endpoint(f"10.0.0.{n}:8000", "p", ("m",)) for n in range(len(weights)))
        self.state = PoolState(Pool("p", ends))
        self.addresses = self.state.shape.addresses
        self.weights = dict(zip(self.addresses, weights, strict=True))
        self.rates = rates
        self.now = NOW
        self.tick()

    def tick(self) -> None:
        loads = {}
        for number, address in enumerate(self.addresses):
            told = {"queue_depth": 0.0, "running": 0.0}
            if self.rates is not None:
                told["prefill_tokens_per_second"] = self.rates[number]
            loads[address] = Load(**{name: Signal(value, self.now, "test") for name, value in told.items()})
        signals = PickTable.of(self.addresses, loads).values
        columns = LoadColumns.of(self.state.shape, signals, self.weights, {})
        self.state.refresh(columns, SETTINGS, self.now)

    def send(self, blocks: list[int], text_bytes: int, matched: list[int]) -> int:
        picks = self.state.bound("m")
        assert picks is not None
        asked = Question(blocks[0] if blocks else 1, blocks, text_bytes, np.array(matched), self.now)
        pick = picks.pick(asked)
        row = self.addresses.index(pick.endpoints[0])
        cold = text_bytes - matched[row] * BLOCK
        self.state.note("m", self.addresses[row], pick.cold_seconds, "", self.now, cold)
        self.now += 0.25
        self.state.backlog.set_in_flight(self.addresses[row], 0, self.now)
        if self.now % 0.5 == 0:
            self.tick()
        return row

    def counts(self, requests: int, blocks: list[int], text_bytes: int, matched: list[int]) -> list[int]:
        rows = [self.send(blocks, text_bytes, matched) for _ in range(requests)]
        return np.bincount(rows, minlength=len(self.addresses)).tolist()


def test_one_prompt_below_a_block_sent_over_and_over_goes_in_turn() -> None:
    counts = Idle().counts(100, [], 60, [0] * 4)
    assert max(counts) - min(counts) <= 3


def test_one_prompt_that_all_hold_goes_in_turn() -> None:
    counts = Idle().counts(100, [5, 6, 7], 3 * BLOCK + 60, [3] * 4)
    assert max(counts) - min(counts) <= 3


def test_one_prompt_goes_in_turn_among_those_who_hold_it_and_to_nobody_else() -> None:
    counts = Idle().counts(90, [5, 6, 7], 3 * BLOCK + 60, [3, 0, 3, 3])
    assert counts[1] == 0
    assert max(counts) - min(counts[:1] + counts[2:]) <= 3


def test_turns_are_in_proportion_to_weights() -> None:
    counts = Idle((2000, 1000, 1000)).counts(200, [], 60, [0] * 3)
    assert counts == pytest.approx([100, 50, 50], abs=6)


def test_a_new_prefix_is_still_placed_by_its_hash_whoever_got_the_fewest() -> None:
    """Workers that do not talk place it alike: each asks rendezvous hashing, not its own counts."""
    blocks = [77, 78, 79]
    first = Idle().send(blocks, 3 * BLOCK, [0] * 4)
    busy = Idle()
    for _ in range(50):
        busy.send([], 60, [0] * 4)
    assert {busy.send(blocks, 3 * BLOCK, [0] * 4) for _ in range(5)} == {first}


def test_rates_that_steps_of_little_work_tell_glue_nobody() -> None:
    """One that computes some tokens in each step tells a rate that is chance."""
    made = Idle(rates=(8_000.0, 14_000.0, 10_000.0, 9_000.0))
    counts = made.counts(400, [5], BLOCK + 240, [1] * 4)
    assert min(counts[:]) > 40
    assert max(counts) < 200


def test_rates_count_in_full_where_work_is_cold() -> None:
    backlog = Backlog(("a:1", "b:1"))
    backlog.learn_rates(np.array([20_000.0, 5_000.0]), NOW)
    assert backlog.evident_rates(slice(None), 1.0).tolist() == [20_000, 5_000], "nothing is known of work"
    for address in ("a:1", "b:1"):
        backlog.add(address, 0.1, NOW, 2 * EVIDENT_BYTES)
    assert backlog.evident_rates(slice(None), 1.0).tolist() == [20_000, 5_000]


def test_rates_count_by_the_cold_work_that_they_rest_on() -> None:
    backlog = Backlog(("a:1", "b:1", "c:1"))
    backlog.learn_rates(np.array([20_000.0, 3_000.0, np.nan]), NOW)
    for _ in range(20):
        backlog.add("a:1", 0.1, NOW, 2 * EVIDENT_BYTES)
        backlog.add("b:1", 0.1, NOW, EVIDENT_BYTES / 8)
    cold, warm, unknown = backlog.evident_rates(slice(None), 1.0)
    assert cold == 20_000
    assert 16_000 < warm < unknown < 20_000
    assert backlog.evident_rates(np.array([2]), 7.0).tolist() == [7.0], "all is unknown"


def test_what_was_given_fades_and_who_is_new_has_nothing_to_catch_up_with() -> None:
    backlog = Backlog(("a:1", "b:1"))
    backlog.forget_given(NOW)
    for _ in range(8):
        backlog.add("a:1", 0.0, NOW)
    moved = backlog.carried_to(("a:1", "b:1", "c:1"), lambda _: 0)
    assert moved.given.tolist() == [8, 0, 4]
    moved.forget_given(NOW + GIVEN_SECONDS)
    assert moved.given.tolist() == pytest.approx([8 / np.e, 0, 4 / np.e])
