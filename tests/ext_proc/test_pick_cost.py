"""Picks as composed by default: who is chosen, who comes next, and what is unknown counts as."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from ext_proc.pick import Backlog, LoadColumns, PickRequest, PoolState, Reason, SchedulerProfile
from ext_proc.pick.first_token import STEP_SECONDS
from ext_proc.pick.pickers import scores
from fleet.columns import fill_unknown
from fleet.endpoint import Endpoint, Pool
from fleet.settings.picks import CostSettings, FilterName, PickSettings, ScorerSettings
from testing.signals import Load, Signal, table_of
from tests.ext_proc.worlds import Picked

SETTINGS = PickSettings()
UNFILTERED: tuple[FilterName, ...] = ("model", "subset")
NOW = 100.0


def pool_of(count: int, models: tuple[str, ...] = ("m",)) -> Pool:
    return Pool("p", tuple(Endpoint(f"10.0.0.{n}:8000", "p", models) for n in range(count)))


def load(**signals: float) -> Load:
    return Load(**{name: Signal(value, NOW, "test") for name, value in signals.items()})


IDLE = load(queue_depth=0, memory_used_ratio=0.1)


def state_of(
    loads: dict[int, Load] | Load = IDLE,
    count: int = 4,
    settings: PickSettings = SETTINGS,
    weights: dict[str, int] | None = None,
    elsewhere: dict[str, int] | None = None,
) -> PoolState:
    state = PoolState(pool_of(count))
    by_position = loads if isinstance(loads, dict) else dict.fromkeys(range(count), loads)
    named = {state.shape.addresses[position]: held for position, held in by_position.items()}
    shape = state.shape
    signals = table_of(shape.addresses, named)
    state.refresh(LoadColumns.of(shape, signals, weights or {}, elsewhere or {}), settings, NOW)
    return state


@dataclass
class Ask:
    """A prompt of so many blocks, and who holds how many of them, by number."""

    matched: dict[int, int] = field(default_factory=dict)
    leading: int = 7
    blocks: int = 32
    now: float = NOW

    def of(self, state: PoolState) -> PickRequest:
        matched = np.zeros(len(state.shape.addresses), np.int64)
        for row, held in self.matched.items():
            matched[row] = held
        chain = [self.leading, *(self.leading * 1009 + n for n in range(1, self.blocks))]
        return PickRequest(self.leading, chain, self.blocks * SETTINGS.block_bytes, matched, self.now)


def ask(
    matched: dict[int, int] | None = None, *, leading: int = 7, blocks: int = 32, now: float = NOW
) -> Ask:
    return Ask(matched or {}, leading, blocks, now)


def number(address: str) -> int:
    return int(address.split(":", maxsplit=1)[0].rpartition(".")[2])


def bound(state: PoolState) -> SchedulerProfile:
    picks = state.profile("m")
    assert picks is not None
    return picks


def choose(state: PoolState, asked: Ask) -> Picked:
    """Pick, and book what the profile books: trials."""
    profile = bound(state)
    decision = profile.pick(asked.of(state))
    profile.book(decision)
    return Picked(decision)


def test_the_warm_endpoint_is_chosen_when_all_are_idle() -> None:
    pick = choose(state_of(), ask({2: 16}))
    assert number(pick.endpoints[0]) == 2
    assert pick.reason is Reason.WARM
    assert pick.matched_share == 0.5
    assert len(pick.endpoints) == len(set(pick.endpoints)) == 1 + SETTINGS.fallbacks
    assert pick.prefix == "0000000000000007"
    tokens = 16 * SETTINGS.block_bytes / 4.0
    cold = tokens * (1 + SETTINGS.cost.attention_per_token * 1.5 * tokens) / 20_000
    assert pick.cold_seconds == pytest.approx(cold)
    assert pick.expected_seconds == pytest.approx(STEP_SECONDS + cold)


def test_the_longer_match_wins_and_the_shorter_one_is_next() -> None:
    pick = choose(state_of(), ask({1: 8, 3: 24}))
    assert [number(address) for address in pick.endpoints[:2]] == [3, 1]


def test_saturated_holder_loses_its_requests_for_a_time() -> None:
    state = state_of()
    holder, other = ask({2: 32}), ask({1: 32}, leading=8)
    for _ in range(500):
        state.backlog.set_in_flight("10.0.0.2:8000", int(state.backlog.in_flight[2]) + 1, NOW)
    assert number(choose(state, holder).endpoints[0]) != 2
    assert number(choose(state, other).endpoints[0]) == 1
    state.backlog.set_in_flight("10.0.0.2:8000", 0, NOW)
    assert number(choose(state, holder).endpoints[0]) == 2


def test_a_burst_within_one_scrape_is_spread_by_own_counts() -> None:
    """Gauges stand still at 0; equal prompts of one prefix must not all go to one endpoint."""
    state, chosen = state_of(), Counter[str]()
    for _ in range(40):
        pick = choose(state, ask(leading=3, blocks=512))
        chosen[pick.endpoints[0]] += 1
        state.backlog.add(pick.endpoints[0], pick.cold_seconds, NOW)
        state.backlog.set_in_flight(pick.endpoints[0], chosen[pick.endpoints[0]], NOW)
    assert set(chosen.values()) == {10}


def test_own_backlog_drains_with_time() -> None:
    state = state_of(count=2)
    state.backlog.add("10.0.0.0:8000", 5.0, NOW)
    state.backlog.add("10.0.0.0:8000", 5.0, NOW)
    state.backlog.set_in_flight("10.0.0.0:8000", 2, NOW)
    assert state.backlog.free_at[0] == NOW + 10
    assert number(choose(state, ask({0: 31})).endpoints[0]) == 1
    assert number(choose(state, ask({0: 31}, now=NOW + 10)).endpoints[0]) == 0


def test_own_backlog_is_forgotten_when_nothing_is_in_flight() -> None:
    state = state_of(count=2)
    state.backlog.add("10.0.0.0:8000", 50.0, NOW)
    state.backlog.set_in_flight("10.0.0.0:8000", 0, NOW)
    assert number(choose(state, ask({0: 31})).endpoints[0]) == 0


def test_the_larger_of_backlog_and_gauge_holds() -> None:
    state = state_of({0: load(queue_depth=10), 1: load(queue_depth=0)}, count=2)
    state.backlog.add("10.0.0.1:8000", 0.2, NOW)
    state.backlog.set_in_flight("10.0.0.1:8000", 1, NOW)
    pick = choose(state, ask())
    assert number(pick.endpoints[0]) == 1, "10 waiting x 0.2 s is more than 0.2 s of our own"
    assert pick.expected_seconds == pytest.approx(0.2 + 1.5 * STEP_SECONDS + pick.cold_seconds)


def test_memory_pressure_rises_in_the_silent_zone_and_not_beyond() -> None:
    """Of two idle engines the fuller one is dearer by the penalty: that much cold work moves it."""
    cost = CostSettings(memory_pressure_from=0.8, memory_pressure_full=0.9, memory_pressure_seconds=2.0)

    def penalty(used: float) -> float:
        loads = {0: load(memory_used_ratio=used, queue_depth=0), 1: IDLE}
        scorers = (ScorerSettings(name="memory"),)
        settings = PickSettings(cost=cost, filters=UNFILTERED, scorers=scorers)
        profile = bound(state_of(loads, count=2, settings=settings))
        request = ask().of(state_of(loads, count=2))
        seconds = profile.costs.by_term(request, profile.forecaster.of(request)).get("memory")
        return 0.0 if seconds is None else float(seconds[0] - seconds[1])

    seen = [penalty(used) for used in (0.8, 0.85, 0.9, 1.0)]
    assert seen == pytest.approx([0.0, 1.0, 2.0, 2.0])


def test_unknown_counts_as_the_peers_mean_not_best_not_worst() -> None:
    state = state_of({0: load(queue_depth=4), 1: Load(), 2: load(queue_depth=8)}, count=3)
    state.backlog.mean_cold_seconds = 1.0
    assert [number(address) for address in choose(state, ask()).endpoints] == [0, 1, 2]


@pytest.mark.parametrize(
    ("column", "filled"),
    [([np.nan, 1, 3], [2, 1, 3]), ([np.nan, np.nan], [9, 9]), ([5.0], [5]), ([], [])],
)
def test_neutral_fills_with_the_mean_of_the_known(column: list[float], filled: list[float]) -> None:
    assert fill_unknown(np.array(column), 9.0).tolist() == filled


def test_a_match_is_enough_without_any_load() -> None:
    assert number(choose(state_of({}), ask({3: 1})).endpoints[0]) == 3


def test_without_any_load_new_prefixes_go_by_weights() -> None:
    weights = {"10.0.0.0:8000": 3000, "10.0.0.1:8000": 1000}
    state, rng = state_of({}, count=2, weights=weights), random.Random(3)
    picks = [choose(state, ask(leading=rng.getrandbits(64))) for _ in range(4000)]
    assert {pick.reason for pick in picks} == {Reason.COLD}
    chosen = Counter(pick.endpoints[0] for pick in picks)
    assert chosen["10.0.0.0:8000"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_replicas_agree_on_cold_prefixes() -> None:
    """One has a request in flight somewhere that the other does not see."""
    one, two = state_of(count=8), state_of(count=8)
    for address in one.shape.addresses[::2]:
        one.backlog.set_in_flight(address, 1, NOW)
    agreed = sum(
        choose(one, ask(leading=seed, blocks=200)).endpoints[0]
        == choose(two, ask(leading=seed, blocks=200)).endpoints[0]
        for seed in random.Random(1).sample(range(1 << 62), 200)
    )
    assert agreed == 200


def test_cold_prefixes_are_spread_evenly() -> None:
    state = state_of(count=8)
    rng = random.Random(2)
    chosen = Counter(choose(state, ask(leading=rng.getrandbits(64))).endpoints[0] for _ in range(4000))
    assert len(chosen) == 8
    assert max(chosen.values()) < 1.25 * min(chosen.values())


def test_cold_prefixes_follow_the_weights() -> None:
    weights = {"10.0.0.0:8000": 3000, "10.0.0.1:8000": 1000}
    state = state_of(count=2, weights=weights)
    rng = random.Random(3)
    chosen = Counter(choose(state, ask(leading=rng.getrandbits(64))).endpoints[0] for _ in range(4000))
    assert chosen["10.0.0.0:8000"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_a_departed_endpoint_moves_only_its_own_prefixes() -> None:
    whole, less = state_of(count=5), state_of(count=4)
    rng = random.Random(4)
    for _ in range(500):
        leading = rng.getrandbits(64)
        before = choose(whole, ask(leading=leading)).endpoints[0]
        after = choose(less, ask(leading=leading)).endpoints[0]
        assert before in (after, "10.0.0.4:8000")


def test_overloaded_endpoint_gets_no_cold_prefix() -> None:
    state = state_of({0: load(queue_depth=50), 1: IDLE, 2: IDLE}, count=3)
    state.backlog.mean_cold_seconds = 0.1
    for leading in range(50):
        assert number(choose(state, ask(leading=leading)).endpoints[2]) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 127, 128, 300])
@pytest.mark.parametrize("fallbacks", [0, 2, 16])
def test_the_list_is_distinct_and_in_the_order_of_cost(count: int, fallbacks: int) -> None:
    """Behind those within the slack, nobody cheaper stands behind a dearer one."""
    rng = random.Random(count)
    loads = {n: load(queue_depth=rng.randrange(100), memory_used_ratio=rng.random()) for n in range(count)}
    settings = PickSettings(fallbacks=fallbacks, filters=UNFILTERED)
    state = state_of(loads, count=count, settings=settings)
    state.backlog.mean_cold_seconds = 0.1
    picked = [int(address.split(":")[0].rpartition(".")[2]) for address in choose(state, ask()).endpoints]
    assert len(picked) == len(set(picked)) == min(count, fallbacks + 1)
    waits = [
        loads[n].queue_depth.value * 0.1
        + 0.3 * min(1, max(0.0, (loads[n].memory_used_ratio.value - 0.85) / 0.07))
        for n in range(count)
    ]
    slack = 0.25 * 32 * 256 / 4 / 20_000
    lowest = min(waits)
    tail = [waits[n] for n in picked if waits[n] > lowest + slack]
    assert tail == pytest.approx(sorted(tail))
    left_out = [waits[n] for n in range(count) if n not in picked]
    if tail and left_out:
        assert max(tail) <= min(left_out) + 1e-9


def test_rendezvous_scores_are_finite_for_every_hash() -> None:
    hashes = np.array([0, 1, 2**64 - 1], np.uint64)
    for leading in (0, 1, 2**64 - 1, -5):
        assert np.isfinite(scores(leading, hashes, np.ones(3))).all()


def test_backlog_of_a_returned_endpoint_has_its_requests() -> None:
    backlog = Backlog(("a:1", "b:1"))
    backlog.add("a:1", 3.0, NOW)
    gone = backlog.moved_to(("b:1",), np.array([1]), lambda _: 0)
    gone.set_in_flight("a:1", 0, NOW)
    back = gone.moved_to(("a:1", "b:1"), np.array([-1, 0]), {"a:1": 2, "b:1": 0}.__getitem__)
    assert back.in_flight.tolist() == [2, 0]
    assert back.mean_cold_seconds == 3.0
    kept = backlog.moved_to(("b:1", "a:1"), np.array([1, 0]), {"a:1": 1, "b:1": 0}.__getitem__)
    assert kept.free_at[1] == NOW + 3


def test_other_workers_requests_in_flight_count_like_ours() -> None:
    """A worker that has sent nothing yet still avoids the endpoint that its neighbours have loaded."""
    elsewhere = {"10.0.0.0:8000": 500}
    quiet, told = state_of(count=2), state_of(count=2, elsewhere=elsewhere)
    chosen_quiet = {choose(quiet, ask(leading=seed)).endpoints[0] for seed in range(40)}
    chosen_told = {choose(told, ask(leading=seed)).endpoints[0] for seed in range(40)}
    assert chosen_quiet == {"10.0.0.0:8000", "10.0.0.1:8000"}
    assert chosen_told == {"10.0.0.1:8000"}


def test_distrust_costs_in_proportion() -> None:
    loads = {
        0: load(queue_depth=0, trust_ratio=0.75),
        1: load(queue_depth=0, trust_ratio=1.0, error_ratio=0.5),
        2: load(queue_depth=0),
    }
    assert bound(state_of(loads, count=3)).costs.fixed.tolist() == pytest.approx([0.5, 1.0, 0.0])


def test_untrusted_endpoint_is_tried_with_sound_fallbacks() -> None:
    """It needs some requests to earn trust back, and those should fail no client."""
    state = state_of({0: IDLE, 1: load(queue_depth=0, trust_ratio=0.1), 2: IDLE}, count=3)
    picks = [choose(state, ask(now=NOW + tenths / 10)) for tenths in range(30)]
    tried = [tenths for tenths, pick in enumerate(picks) if pick.trial]
    assert tried[0] == 0
    assert {later - before for before, later in pairwise(tried)} <= {7, 8}
    assert len(tried) >= 4
    for pick in picks:
        numbers = [number(address) for address in pick.endpoints]
        assert (numbers[0] == 1) is pick.trial
        assert {*numbers} == {0, 1, 2}
        assert len(numbers) == 3
        assert (numbers[-1] == 1) is not pick.trial, "else it is the last resort"


def test_one_is_tried_until_its_trust_is_whole() -> None:
    """The last tenth costs more than the others' load, and of what gets nothing, nothing is heard."""
    state = state_of({0: IDLE, 1: load(queue_depth=0, trust_ratio=0.9), 2: IDLE}, count=3)
    picks = [choose(state, ask(now=NOW + tenths / 10)) for tenths in range(30)]
    tried = [pick for pick in picks if pick.trial]
    assert len(tried) >= 4
    for pick in tried:
        numbers = [number(address) for address in pick.endpoints]
        assert numbers[0] == 1
        assert {*numbers[1:]} == {0, 2}


def test_no_trial_without_need() -> None:
    busy = load(queue_depth=50, running=50, trust_ratio=1.0)
    state = state_of({0: busy, 1: load(queue_depth=0, running=0, trust_ratio=0.99)}, count=2)
    picks = [choose(state, ask(now=NOW + tenths / 10)) for tenths in range(30)]
    assert {number(pick.endpoints[0]) for pick in picks} == {1}
    assert sum(pick.trial for pick in picks) <= 1
    state = state_of(
        {0: load(queue_depth=0, trust_ratio=0.8), 1: load(queue_depth=0, trust_ratio=0.9)}, count=2
    )
    assert not any(choose(state, ask(now=NOW + tenths / 10)).trial for tenths in range(30))


def test_behind_the_few_that_are_trusted_stand_others_each_once() -> None:
    """Envoy would draw by weight, and perhaps whoever has just refused."""
    doubted = load(queue_depth=0, trust_ratio=0.02)
    state = state_of({0: IDLE, **dict.fromkeys(range(1, 6), doubted)}, count=6)
    picks = [choose(state, Ask(leading=leading)) for leading in range(40)]
    orders = [[number(address) for address in pick.endpoints] for pick in picks if not pick.trial]
    assert all(order[0] == 0 and len({*order}) == len(order) == 3 for order in orders)
    assert {order[1] for order in orders} == {1, 2, 3, 4, 5}, "not one of them for all prompts"
    tried = [[number(address) for address in pick.endpoints] for pick in picks if pick.trial]
    assert tried
    assert all(order[1] == 0 and len({*order}) == len(order) == 3 for order in tried)


def orders_of(state: PoolState, more: int = 40) -> set[tuple[int, ...]]:
    """Endpoints of picks that try nobody, for several prompts."""
    picks = [choose(state, Ask(leading=leading)) for leading in range(more)]
    return {tuple(map(number, pick.endpoints)) for pick in picks if not pick.trial}


def test_full_endpoint_goes_before_untrusted_ones() -> None:
    full, doubted = load(queue_depth=0, memory_used_ratio=0.99), load(queue_depth=0, trust_ratio=0.02)
    state = state_of({0: IDLE, 1: full, 2: doubted, 3: doubted})
    assert orders_of(state) == {(0, 1, 2), (0, 1, 3)}


def test_spares_are_ordered_by_weight_and_hangs() -> None:
    doubted = load(queue_depth=0, trust_ratio=0.02)
    weights = dict(zip((f"10.0.0.{n}:8000" for n in range(4)), (2000, 100, 900, 50), strict=True))
    state = state_of({0: IDLE, **dict.fromkeys((1, 2, 3), doubted)}, weights=weights)
    assert orders_of(state) == {(0, 2, 1)}
    state.backlog.set_in_flight("10.0.0.2:8000", 4, NOW)
    assert orders_of(state) == {(0, 1, 3)}
    state.backlog.set_in_flight("10.0.0.3:8000", 4, NOW)
    assert orders_of(state) == {(0, 1, 2)}


def test_enough_that_are_trusted_need_nobody_else_behind() -> None:
    state = state_of({**dict.fromkeys(range(3), IDLE), 3: load(queue_depth=0, trust_ratio=0.02)})
    picks = [choose(state, ask(now=NOW + tenths / 10)) for tenths in range(10)]
    assert {3 in map(number, pick.endpoints) for pick in picks if not pick.trial} == {False}


def test_one_that_keeps_what_it_is_tried_with_gets_no_more() -> None:
    state = state_of({0: IDLE, 1: load(queue_depth=0, trust_ratio=0.1)}, count=2)
    for count in range(1, 10):
        # A quarter of the picks may be trials.
        if not any(choose(state, ask(now=NOW + 10 * count)).trial for _ in range(4)):
            break
        state.backlog.set_in_flight("10.0.0.1:8000", count, NOW)
    assert count == 5


def domained(costs: list[float], domains: list[str], settings: PickSettings = SETTINGS) -> PoolState:
    """One endpoint a cost, in seconds of wait."""
    ends = tuple(
        Endpoint(f"10.0.0.{n}:8000", "p", ("m",), fault_domains=(domain,)) for n, domain in enumerate(domains)
    )
    state = PoolState(Pool("p", ends))
    named = {end.address: load(queue_depth=cost) for end, cost in zip(ends, costs, strict=True)}
    signals = table_of(state.shape.addresses, named)
    state.backlog.mean_cold_seconds = 1.0
    state.refresh(LoadColumns.of(state.shape, signals, {}, {}), settings, NOW)
    return state


def order_of(state: PoolState) -> list[int]:
    return [number(address) for address in choose(state, ask()).endpoints]


def test_fallbacks_stand_in_other_fault_domains() -> None:
    assert order_of(domained([0, 1, 1.5, 1.6], ["a", "a", "b", "b"])) == [0, 2, 1]
    assert order_of(domained([0, 1, 1.1, 1.2, 1.3], ["a", "a", "b", "b", "c"])) == [0, 2, 4]


def test_much_dearer_fallback_does_not_go_first() -> None:
    assert order_of(domained([0, 1, 2.5, 2.6], ["a", "a", "b", "b"])) == [0, 1, 2]


def test_when_all_share_a_domain_or_none_cost_alone_decides() -> None:
    assert order_of(domained([0, 1, 2, 3], ["a", "a", "a", "a"])) == [0, 1, 2]
    assert order_of(domained([0, 1, 2, 3], ["a", "b", "c", "d"])) == [0, 1, 2]


def test_without_fallbacks_domains_change_nothing() -> None:
    assert order_of(domained([0, 1, 2], ["a", "a", "b"], PickSettings(fallbacks=0))) == [0]


def test_hanging_warm_engine_loses_its_prompts_at_once() -> None:
    """It holds what it got and finishes nothing, while its peers go on finishing theirs."""
    state, now = state_of(count=4), NOW
    addresses = state.shape.addresses
    hung = addresses[2]
    open_at: dict[str, list[float]] = {address: [] for address in addresses}
    chosen: list[str] = []
    for step in range(200):
        now = NOW + step / 50
        for address in addresses:
            done = [begun for begun in open_at[address] if now - begun > 0.2 and address != hung]
            open_at[address] = [begun for begun in open_at[address] if begun not in done]
            state.backlog.set_in_flight(address, len(open_at[address]), now)
        if step % 12 == 0:
            refresh(state, now)
        pick = choose(state, ask({2: 32} if step % 4 == 0 else {}, leading=step * 7919, now=now))
        chosen.append(pick.endpoints[0])
        open_at[pick.endpoints[0]].append(now)
        state.backlog.set_in_flight(pick.endpoints[0], len(open_at[pick.endpoints[0]]), now)
    assert chosen[:20].count(hung) >= 5, "warm and not yet known to hang"
    assert chosen[100:].count(hung) == 0


def refresh(state: PoolState, now: float) -> None:
    signals = table_of(state.shape.addresses, dict.fromkeys(state.shape.addresses, IDLE))
    state.refresh(LoadColumns.of(state.shape, signals, {}, {}), SETTINGS, now)


def test_engine_that_refuses_all_gets_its_share_only() -> None:
    """4xx is no fault, so nothing marks it; it must not swallow the traffic for being idle."""
    state, chosen = state_of(count=4), Counter[int]()
    open_at: dict[str, list[float]] = {address: [] for address in state.shape.addresses}
    for step in range(1000):
        now = NOW + step / 50
        for address, begun in open_at.items():
            lasts = 0.001 if number(address) == 2 else 0.2
            open_at[address] = [at for at in begun if now - at < lasts]
            state.backlog.set_in_flight(address, len(open_at[address]), now)
        if step % 12 == 0:
            refresh(state, now)
        first = choose(state, ask(leading=step * 7919, now=now)).endpoints[0]
        open_at[first].append(now)
        state.backlog.set_in_flight(first, len(open_at[first]), now)
        chosen[number(first)] += step >= 200
    assert chosen[2] < 0.35 * chosen.total()


def test_pressure_that_is_full_before_it_begins_makes_no_sense() -> None:
    with pytest.raises(ValidationError, match="memory_pressure_full"):
        CostSettings(memory_pressure_from=0.9, memory_pressure_full=0.8)
