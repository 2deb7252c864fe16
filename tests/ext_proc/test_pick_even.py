"""Equal engines get equal shares at any load, whatever rates they tell; slower ones get less.

As `test_pick_fleet`, of engines that tell what they compute as vLLM does: over a window of 30 seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from bench.uneven import first_prompts, system_prompts
from fleet.endpoint import Endpoint, Membership, Pool
from testing.signals import Load, Signal
from tests.ext_proc.test_pick_fleet import CONFIG, Fleet, Ran, arrivals
from warmroute.simulator.model import EngineModel
from warmroute.simulator.workload import Message, Turn, words
from xds_server.signals.scrape.histogram import CounterWindow

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.untraced

WINDOW_SECONDS = 30.0


class Telling(Fleet):
    """Engines that tell their prefill. `net` makes other addresses, so hashes fall in other ways."""

    def __init__(self, net: int, engines: int = 3, slow: Mapping[int, float] | None = None) -> None:
        super().__init__(engines)
        ends = tuple(Endpoint(f"10.{net}.0.{n}:80", "p", ("m",)) for n in range(engines))
        self.membership = Membership((Pool("p", ends),))
        self.engines = {end.address: EngineModel(CONFIG) for end in ends}
        for number, factor in (slow or {}).items():
            self.engines[ends[number].address].slowdown = factor
        self.ran = Ran(Counter(dict.fromkeys(self.engines, 0)))
        self.prefilled = {address: [0.0, 0.0] for address in self.engines}
        self.windows = {address: CounterWindow(WINDOW_SECONDS) for address in self.engines}

    def advance(self, address: str) -> None:
        before = set(self.open)
        super().advance(address)
        for handle in before - set(self.open):
            assert handle.first_token_at is not None
            assert handle.scheduled_at is not None
            self.prefilled[address][0] += handle.request.prompt_tokens - handle.cached_tokens
            self.prefilled[address][1] += handle.first_token_at - handle.scheduled_at

    def load(self, engine: EngineModel) -> Load:
        address = next(address for address, held in self.engines.items() if held is engine)
        now = self.clock.now
        window = self.windows[address]
        window.observe(self.prefilled[address], now)
        grown = window.growth(now)
        told: dict[str, Any] = {}
        if grown is not None and grown.seconds > 0 and grown.deltas[1] > 0:
            told["prefill_tokens_per_second"] = Signal(grown.deltas[0] / grown.deltas[1], now, "model")
            told["prefilling_mean"] = Signal(grown.deltas[1] / grown.seconds, now, "model")
        return replace(super().load(engine), **told)


def test_short_prompts_and_a_long_one_leave_no_engine_idle() -> None:
    """One of three equal engines got 95 % of what came next: the one that had the long prompt looked fast."""
    ratios = []
    for seed in range(4):
        random = Random(seed)
        turns = [*first_prompts(random), *system_prompts(random, 8.0, 25.0)]
        ratios.append(Telling(seed).run(turns).busiest_over_mean)
    assert max(ratios) <= 1.5, ratios
    assert sum(ratios) / len(ratios) <= 1.2, ratios


def test_new_prefixes_that_come_at_once_are_spread() -> None:
    """Whoever has two requests in flight more than the others is no worse a place for a new prefix."""
    ratios = [
        Telling(seed).run([*system_prompts(Random(seed), 8.0, 25.0)]).busiest_over_mean for seed in range(10)
    ]
    assert sum(ratios) / len(ratios) <= 1.22, ratios


def test_equal_engines_get_equal_shares_under_load() -> None:
    ratios = []
    for seed in range(2):
        random = Random(seed)
        turns = [*first_prompts(random), *system_prompts(random, 90.0, 15.0)]
        ratios.append(Telling(seed).run(turns).busiest_over_mean)
    assert max(ratios) <= 1.15, ratios


def test_mixed_prompt_lengths_make_no_engine_fast() -> None:
    """Conversations that go on cost their engines little work each, and new ones much."""
    random = Random(7)
    turns = []
    for number, began in enumerate(arrivals(random, 1.0, 60.0)):
        history = [Message("user", words(random, random.choice((40, 3_000))))]
        at = began
        for _ in range(6):
            turns.append(Turn(at, 0, f"s{number}", tuple(history), random.randint(16, 64)))
            history += (Message("assistant", words(random, 40)), Message("user", words(random, 20)))
            at += 1.0 + random.expovariate(0.5)
    fleet = Telling(7)
    assert fleet.run(sorted(turns, key=lambda turn: turn.at_seconds)).busiest_over_mean <= 1.25


@pytest.mark.parametrize(
    ("engines", "rate"),
    [(4, 2.0), (2, 7.0), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(2, 2.0), (4, 7.0)])],
)
def test_an_engine_of_half_the_speed_gets_less(engines: int, rate: float) -> None:
    """Nothing while the others are idle, and its part when they are not; once there is evidence."""
    random = Random(engines)
    turns = [
        Turn(at, 0, f"s{n}", (Message("user", f"{n} " + words(random, 2_000)),), random.randint(8, 32))
        for n, at in enumerate(arrivals(random, rate * engines, 40.0))
    ]
    fleet = Telling(1, engines, slow={0: 2.0})
    evident = len(turns) // 2
    fleet.run(turns[:evident])
    before = Counter(fleet.ran.requests)
    began = turns[evident].at_seconds
    fleet.run([replace(turn, at_seconds=turn.at_seconds - began) for turn in turns[evident:]])
    slow, *others = (fleet.ran.requests[address] - before[address] for address in fleet.engines)
    assert slow < 0.8 * sum(others) / len(others)
    assert rate < 5 or slow > 0.2 * sum(others) / len(others)
