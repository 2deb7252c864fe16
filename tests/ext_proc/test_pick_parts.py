"""Filters, scorers and pickers one by one, and the formulas below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError

from ext_proc.pick import (
    COST_TERMS,
    FILTERS,
    PICKERS,
    Decision,
    LoadColumns,
    PickRequest,
    PickResult,
    PoolShape,
    PoolState,
    Reason,
)
from ext_proc.pick.adapters import MOST, Adapters
from ext_proc.pick.backlog import UNCERTAIN, Backlog
from ext_proc.pick.context import FilterContext
from ext_proc.pick.cost_terms import LEADING_BYTES, WORTH, CostTerm
from ext_proc.pick.demand import Demand, priced_bytes, prices
from ext_proc.pick.filters import filtered
from ext_proc.pick.forecast import Forecast
from ext_proc.pick.pickers import ScoredCandidates, smallest
from ext_proc.pick.request import WINDOW_SECONDS
from ext_proc.pick.subset import subset
from ext_proc.prompt.blocks import ends_in_bytes
from fleet.endpoint import Endpoint, Locality, Pool
from fleet.settings.picks import (
    CostSettings,
    FilterName,
    PickerName,
    PickSettings,
    ScorerName,
    ScorerSettings,
    SessionSettings,
)
from fleet.settings.pools import LocalitySettings
from testing.signals import Load, Signal, table_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ext_proc.pick.context import TickContext

NOW = 100.0
ONLY: dict[str, PickSettings] = {
    name: PickSettings(
        scorers=(ScorerSettings(name=name),),
        locality=LocalitySettings(region="r", zone="z"),
        cost=CostSettings(adapter_seconds=0.4, attention_per_token=0),
    )
    for name in get_args(ScorerName)
}


def told(**signals: float) -> Load:
    return Load(**{name: Signal(value, NOW, "x") for name, value in signals.items()})


def pool_of(*ends: dict[str, Any]) -> Pool:
    return Pool(
        "p", tuple(Endpoint(f"h:{n}", "p", **{"models": ("m",), **end}) for n, end in enumerate(ends))
    )


def columns_of(shape: PoolShape, loads: list[Load]) -> LoadColumns:
    table = table_of(shape.addresses, dict(zip(shape.addresses, loads, strict=True)))
    return LoadColumns.of(shape, table, {}, {})


def passing(name: FilterName, loads: list[Load], **more: Any) -> list[int] | None:
    shape = PoolShape.of(pool_of(*({} for _ in loads)))
    fleet = FilterContext(shape, columns_of(shape, loads), PickSettings(), "m", **more)
    found = filtered(fleet, [name])
    return None if found is None else [shape.position[address] for address in found.addresses]


def state_of(loads: list[Load], settings: PickSettings, *ends: dict[str, Any]) -> PoolState:
    state = PoolState(pool_of(*(ends or ({} for _ in loads))))
    state.refresh(columns_of(state.shape, loads), settings, NOW)
    return state


def question(size: int, matched: dict[int, int] | None = None, blocks: int = 8, **more: Any) -> PickRequest:
    held = np.zeros(size, np.int64)
    for row, count in (matched or {}).items():
        held[row] = count
    return PickRequest(9, list(range(9, 9 + blocks)), blocks * 256, held, NOW, **more)


def book(state: PoolState, address: str, adapter: str) -> None:
    """Book a request for an adapter."""
    size = len(state.shape.addresses)
    request = question(size, model="m", adapter=adapter)
    state.book(Decision(PickResult((address,), Reason.COLD), request))


def seconds(name: ScorerName, loads: list[Load], asked: PickRequest, *ends: dict[str, Any]) -> list[float]:
    """What one scorer alone adds up to."""
    return scored(state_of(loads, ONLY[name], *ends), asked)


def scored(state: PoolState, asked: PickRequest) -> list[float]:
    picks = state.profile("m")
    assert picks is not None
    return picks.costs.of(asked, picks.forecaster.of(asked)).tolist()


# Filters.


def test_every_part_in_the_settings_is_registered() -> None:
    assert set(FILTERS) == set(get_args(FilterName)) == {*PickSettings().filters, "memory"}
    assert set(COST_TERMS) == set(get_args(ScorerName)) == {entry.name for entry in PickSettings().scorers}
    assert set(PICKERS) == set(get_args(PickerName))


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("healthy", {"reachable": 0.0}, {"reachable": 1.0}),
        ("healthy", {"ready": 0.0}, {"ready": 1.0}),
        ("healthy", {"gpu_health_score": 0.4}, {"gpu_health_score": 0.9}),
        ("working", {"stalled": 1.0}, {"stalled": 0.0}),
        ("trusted", {"trust_ratio": 0.49}, {"trust_ratio": 0.5}),
        ("memory", {"memory_used_ratio": 0.92}, {"memory_used_ratio": 0.91}),
    ],
)
def test_filter_keeps_unknown(name: FilterName, bad: dict[str, float], good: dict[str, float]) -> None:
    assert passing(name, [told(**bad), told(**good), Load()]) == [1, 2]
    assert passing(name, [told(**bad), told(**bad)]) == [0, 1], "passed over when nobody would be left"


def test_memory_is_passed_over_when_most_endpoints_are_full() -> None:
    """Else all requests of a loaded pool would go to the one engine that has just freed some blocks."""
    full, free = told(memory_used_ratio=0.95), told(memory_used_ratio=0.5)
    assert passing("memory", [full, full, free, free]) == [2, 3]
    assert passing("memory", [full, full, full, free]) == [0, 1, 2, 3]


def test_subset_keeps_allowed_endpoints_only() -> None:
    loads = [Load(), Load(), Load()]
    assert passing("subset", loads, subset=subset(("h:2", "h:0", "other:1"))) == [0, 2]
    assert passing("subset", loads, subset=subset(("other:1",))) is None
    assert passing("subset", loads, subset=subset(())) is None
    assert passing("subset", loads) == [0, 1, 2]


ADDRESSES = ("10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80", "[fd00::1]:80", "[fd00::1]:81", "[fd00::2]:80")
SPELT = (
    *ADDRESSES,
    "10.0.0.1",
    "10.0.0.2:",
    "fd00::1",
    "[fd00:0::0:1]:80",
    "[fd00:0::2]",
    "10.0.0.3",
    "",
    "::",
)


@given(st.lists(st.sampled_from(SPELT), max_size=6))
def test_subset_filter_agrees_with_admits(entries: list[str]) -> None:
    allowed = subset(tuple(entries))
    shape = PoolShape.of(Pool("p", tuple(Endpoint(address, "p") for address in ADDRESSES)))
    rows = allowed.rows(shape.position, lambda: shape.hosts)
    assert {*rows} == {row for row, address in enumerate(ADDRESSES) if allowed.admits(address)}


def test_only_those_that_are_not_trusted_are_tried() -> None:
    loads = [told(trust_ratio=0.1), told(reachable=0.0), told(trust_ratio=1.0)]
    shape = PoolShape.of(pool_of({}, {}, {}))
    settings = PickSettings()
    found = filtered(FilterContext(shape, columns_of(shape, loads), settings, "m"), settings.filters)
    assert found is not None
    assert (found.addresses, found.trials) == (("h:2",), ((0, "h:0"),))
    assert [found.place(address) for address in ("h:0", "h:1", "h:2", "h:9")] == [None, None, 0, None]


def test_excluded_endpoints_get_no_trials_in_any_filter_order() -> None:
    loads = [told(trust_ratio=0.1), told(trust_ratio=0.1), told(trust_ratio=1.0)]
    shape = PoolShape.of(pool_of({}, {}, {}))
    fleet = FilterContext(shape, columns_of(shape, loads), PickSettings(), "m", subset(("h:1", "h:2")))
    found = filtered(fleet, ("trusted", "model", "subset"))
    assert found is not None
    assert (found.addresses, found.trials) == (("h:2",), ((1, "h:1"),))


def test_absent_endpoints_are_no_spares_in_any_filter_order() -> None:
    doubtful = {"trust_ratio": 0.1}
    loads = [told(**doubtful), told(**doubtful, reachable=0.0), told(**doubtful, stalled=1.0), told()]
    shape = PoolShape.of(pool_of({}, {}, {}, {}))
    fleet = FilterContext(shape, columns_of(shape, loads), PickSettings(), "m")
    for filters in (("model", "trusted", "healthy", "working"), ("model", "healthy", "working", "trusted")):
        found = filtered(fleet, filters)
        assert found is not None
        assert (found.trials, found.spares) == (((0, "h:0"),), (((0, "h:0"),),))


@pytest.mark.parametrize("filters", [("model",), ("subset", "healthy"), ("model", "subset", "model")])
def test_necessary_filters_are_required_in_settings(filters: tuple[FilterName, ...]) -> None:
    with pytest.raises(ValidationError, match="filters"):
        PickSettings(filters=filters)


def test_a_scorer_is_composed_once() -> None:
    with pytest.raises(ValidationError, match="scorers"):
        PickSettings(scorers=(ScorerSettings(name="trust"), ScorerSettings(name="trust", weight=2)))


# Scorers.

BLOCK_SECONDS = 256 / 4 / 20_000


def test_first_token_is_queue_plus_priced_cold_prefill() -> None:
    state = state_of([told(queue_depth=3), told(queue_depth=0)], ONLY["first_token"])
    state.backlog.mean_cold_seconds = 0.5
    assert scored(state, question(2, {1: 6})) == pytest.approx(
        [1.5 + 3 * 8 * BLOCK_SECONDS, 3 * 2 * BLOCK_SECONDS]
    )


def test_decode_load_counts_all_requests_in_flight() -> None:
    shape = PoolShape.of(pool_of({}, {}, {}))
    state = PoolState(pool_of({}, {}, {}))
    state.backlog.set_in_flight("h:0", 4, NOW)
    loads = [told(running=4), told(running=3), told(running=9, queue_depth=1)]
    columns = columns_of(shape, loads)
    columns.in_flight_elsewhere[1] = 3
    state.refresh(columns, ONLY["decode_load"], NOW)
    assert scored(state, question(3)) == pytest.approx([0.04, 0.03, 0.1 - UNCERTAIN / 100])


def test_requests_beyond_our_counts_are_averaged() -> None:
    """One scrape that is a second old must not make an engine look busy that we have just relieved."""
    state = state_of([told(running=0), told(running=0)], ONLY["decode_load"])
    shape = state.shape
    state.refresh(columns_of(shape, [told(running=10), told(running=0)]), ONLY["decode_load"], NOW + 0.5)
    once = scored(state, question(2))[0]
    for tick in range(2, 60):
        loads = [told(running=10), told(running=0)]
        state.refresh(columns_of(shape, loads), ONLY["decode_load"], NOW + tick / 2)
    assert once < 0.01 < 0.099 < scored(state, question(2))[0] + UNCERTAIN / 100


def test_equal_placement_is_worth_nothing_without_reuse() -> None:
    """Other workers send half of the requests."""
    backlog = Backlog(("h:0", "h:1"))
    backlog.in_flight[:] = 4.0
    backlog.learn_others(np.full(2, 8.0), np.full(2, 4.0), NOW)
    assert backlog.apart_share == pytest.approx(0.5), "nothing is known of reuse yet"
    for _ in range(100):
        backlog.add("h:0", 0.1, NOW, cold_share=1.0)
    assert backlog.apart_share < 0.03
    for _ in range(100):
        backlog.add("h:0", 0.1, NOW, cold_share=0.3)
    assert backlog.apart_share == pytest.approx(0.5)


def test_absurd_gauge_is_soon_forgotten() -> None:
    usual, absurd = (Load(running=Signal(value, NOW, "x")) for value in (4.0, 1e9))
    state = state_of([usual] * 3, ONLY["decode_load"])
    for tick in range(1, 40):
        loads = [absurd if tick == 1 else usual, usual, usual]
        state.refresh(columns_of(state.shape, loads), ONLY["decode_load"], NOW + tick / 2)
    first, *others = scored(state, question(3))
    assert first == pytest.approx(others[0], rel=0.1)


def test_scorer_weight_multiplies_and_0_switches_off() -> None:
    loads = [told(queue_depth=0, trust_ratio=0.5), told(queue_depth=0, trust_ratio=1.0)]
    for weight in (0.0, 1.0, 3.0):
        settings = PickSettings(scorers=(ScorerSettings(name="trust", weight=weight),))
        assert scored(state_of(loads, settings), question(2)) == pytest.approx([weight, 0])
        # The same of a term that depends on the prompt.
        settings = PickSettings(scorers=(ScorerSettings(name="session", weight=weight),))
        bonus = settings.sessions.bonus_seconds
        assert scored(state_of(loads, settings), question(2, session="h:1")) == pytest.approx(
            [0, -weight * bonus]
        )


def test_distance_counts_where_both_sides_say_where_they_are() -> None:
    places = [Locality("r", "z"), Locality("r", "y"), Locality("q", "z"), Locality(), Locality("r")]
    ends = [{"locality": place} for place in places]
    assert seconds("topology", [Load()] * 5, question(5), *ends) == [0, 0.002, 0.05, 0, 0]
    nowhere = PickSettings(scorers=(ScorerSettings(name="topology"),))
    assert scored(state_of([Load()] * 5, nowhere, *ends), question(5)) == [0] * 5


def test_an_adapter_costs_where_nothing_was_sent_for_it_lately() -> None:
    state = state_of([Load()] * 3, ONLY["adapter"])
    asked = question(3, adapter="a")
    assert scored(state, asked) == [0, 0, 0], "nobody has it, so it makes no difference"
    book(state, "h:1", "a")
    assert scored(state, asked) == pytest.approx([0.4, 0, 0.4]), "one request tells nothing of demand"
    assert scored(state, question(3)) == [0, 0, 0]
    assert scored(state, question(3, adapter="b")) == [0, 0, 0]
    assert scored(state, replace(asked, now=NOW + 301)) == [0, 0, 0], "forgotten"


def test_an_adapter_that_all_want_is_cheap_to_load_once_more() -> None:
    state = state_of([Load()] * 4, ONLY["adapter"])
    for _ in range(200):
        book(state, "h:1", "hot")
    book(state, "h:2", "cold")
    hot, cold = (scored(state, question(4, adapter=name)) for name in ("hot", "cold"))
    assert 0 < hot[0] < 0.01
    assert cold[0] == 0.4, "one request is below its holder's fair share"


def test_adapters_are_bounded_and_stay_with_their_endpoints() -> None:
    adapters = Adapters(2, WINDOW_SECONDS)
    for number in range(MOST + 50):
        adapters.note(str(number), 1, NOW, 0.0)
    assert len(adapters) == MOST
    assert adapters.missing("0", 0.0) is None
    moved = adapters.moved_to(np.array([1, -1]))
    missing = moved.missing(str(MOST), 0.0)
    assert missing is not None
    assert missing.tolist() == [False, True]


def test_new_adapter_is_compared_since_its_first_request() -> None:
    """Held against all of the window, it would wait on one endpoint until it has outgrown what is over."""
    adapters, demand = Adapters(4, WINDOW_SECONDS), Demand(WINDOW_SECONDS)
    for adapter, times in (("old", 400), ("new", 40)):
        for _ in range(times):
            demand.add(NOW)
            adapters.note(adapter, 0, NOW, demand.at(NOW))
    assert adapters.uses("new", demand.at(NOW), 0.25, 4, NOW) == pytest.approx(40 / 4)
    assert adapters.uses("new", demand.at(NOW), 1.0, 4, NOW) == 0.0
    assert adapters.uses("old", demand.at(NOW), 0.25, 4, NOW) == pytest.approx(440 / 4)
    assert adapters.moved_to(np.array([0, 1])).uses("new", demand.at(NOW), 0.25, 4, NOW) == pytest.approx(10)


def test_session_bonus_needs_a_candidate() -> None:
    assert seconds("session", [Load()] * 3, question(3, session="h:1")) == [0, -0.05, 0]
    gone = [Load(), told(reachable=0.0), Load()]
    assert seconds("session", gone, question(3, session="h:1")) == [0, 0]
    assert seconds("session", [Load()] * 2, question(2)) == [0, 0]


def test_session_moves_when_staying_costs_too_much() -> None:
    settings = PickSettings(sessions=SessionSettings(bonus_seconds=0.05))
    state = state_of([told(queue_depth=0)] * 2, settings)
    for in_flight, stays in ((0, True), (2, True), (40, False), (2, True)):
        state.backlog.set_in_flight("h:1", in_flight, NOW)
        picks = state.profile("m")
        assert picks is not None
        assert (picks.pick(question(2, session="h:1")).result.endpoints[0] == "h:1") is stays


def test_who_had_the_beginning_counts_as_holding_some_of_it() -> None:
    asked = question(3, earlier_holders=("h:2", "gone:1"))
    full = 3 * 8 * BLOCK_SECONDS
    assert seconds("leading", [Load()] * 3, asked) == pytest.approx([0, 0, -WORTH * full])
    long = question(3, blocks=LEADING_BYTES // 256 * 4, earlier_holders=("h:2",))
    assert seconds("leading", [Load()] * 3, long)[2] == pytest.approx(
        -WORTH / 4 * 3 * LEADING_BYTES // 256 * 4 * BLOCK_SECONDS
    )


# The price of cold work.


class Asked:
    """How often a prompt's runs were asked for."""

    def __init__(self, counts: list[float]) -> None:
        self.counts = np.array(counts)

    def rate_and_total(
        self, _blocks: Sequence[int], depth: int, _now: float, total: float
    ) -> tuple[float, float]:
        return float(self.counts[depth]) / WINDOW_SECONDS, total

    def rates_and_totals(
        self, _blocks: Sequence[int], _now: float, _also: Collection[int], total: float
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.counts / WINDOW_SECONDS, np.full(self.counts.size, total)


def test_demand_within_the_fair_share_costs_the_full_price() -> None:
    shares = np.full(4, 0.25)
    each = prices(3.0, np.array([25.0, 5.0]), 100.0, np.array([2, 0, 0, 0]), shares)
    assert each.tolist() == [3.0, 3.0]


def test_price_falls_with_demand_beyond_the_fair_share() -> None:
    shares = np.full(4, 0.25)
    counts = np.array([100.0, 40.0, 40.0, 1.0])
    one = prices(3.0, counts, 100.0, np.array([4, 0, 0, 0]), shares)
    assert one.tolist() == pytest.approx([3 / 26, 3 / 16, 3 / 16, 3.0])
    two = prices(3.0, counts, 100.0, np.array([4, 2, 0, 0]), shares)
    assert two.tolist() == pytest.approx([3 / 26, 3.0, 3 / 16, 3.0])
    every = prices(3.0, counts, 100.0, np.array([4, 4, 4, 4]), shares)
    assert every.tolist() == [3.0] * 4, "spread over all, it is worth as much as any"
    nobody = prices(3.0, counts, 100.0, np.zeros(4, int), shares)
    assert nobody.tolist() == pytest.approx([3 / 26, 3 / 26, 3 / 26, 1.5])


def test_fair_shares_follow_the_weights() -> None:
    shares = np.array([0.7, 0.1, 0.1, 0.1])
    assert prices(3.0, np.array([60.0]), 100.0, np.array([1, 0, 0, 0]), shares).tolist() == [3.0]
    assert prices(3.0, np.array([60.0]), 100.0, np.array([0, 1, 0, 0]), shares)[0] < 0.2


def test_priced_bytes_are_those_of_the_blocks_that_are_not_held() -> None:
    left = priced_bytes(np.array([0.5, 1.0, 3.0]), 3.0, ends_in_bytes(100), 350)
    assert left.tolist() == [50 + 100 + 300 + 150, 100 + 300 + 150, 300 + 150, 150]


def test_count_fades_and_never_grows_by_itself() -> None:
    demand = Demand(30.0)
    for _ in range(10):
        demand.add(NOW)
    assert demand.at(NOW) == pytest.approx(10)
    assert demand.at(NOW + 30) == pytest.approx(10 / np.e)
    assert demand.at(NOW - 50) == pytest.approx(10)
    demand.add(NOW - 50)
    assert demand.at(NOW + 3000) < 1e-9


def test_hot_prefix_is_priced_lower_than_a_conversation() -> None:
    state = state_of([told(queue_depth=0)] * 4, ONLY["first_token"])
    for _ in range(100):
        state.demand("m").add(NOW)
    asked = question(4, {1: 8, 2: 4}, popularity=Asked([100.0] * 4 + [1.0] * 4))
    all_cold, warm, system_only, _ = scored(state, asked)
    assert warm == 0
    assert system_only == pytest.approx(3 * 4 * BLOCK_SECONDS)
    assert all_cold == pytest.approx(system_only + 3 / 26 * 4 * BLOCK_SECONDS)
    picks = state.profile("m")
    assert picks is not None
    assert picks.pick(asked).considered[1].cold_seconds == pytest.approx(4 * BLOCK_SECONDS), "in full"


def test_what_is_told_as_penalty_is_the_same_for_every_prompt() -> None:
    """Load that counts twice, a session's bonus and what cold work costs are none of it."""
    settings = PickSettings()
    state = state_of([told(queue_depth=2, error_ratio=0.25), told(queue_depth=1)], settings)
    state.backlog.set_in_flight("h:0", 7, NOW)
    picks = state.profile("m")
    assert picks is not None
    for asked in (question(2), question(2, {0: 8}, session="h:1")):
        told_of = {entry.address: entry for entry in picks.pick(asked).considered}
        penalties = [told_of[f"h:{row}"].penalty_seconds for row in range(2)]
        assert penalties == pytest.approx(picks.costs.fixed.tolist())
        assert penalties[0] == pytest.approx(settings.cost.distrust_seconds / 4)


def test_cost_terms_of_an_explained_pick_sum_up_to_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A term that depends on the prompt and that no code names shows as well."""

    def fair(_context: TickContext) -> CostTerm:
        return CostTerm(by_prompt=lambda _request, forecast: 1.0 + forecast.queue)

    monkeypatch.setitem(COST_TERMS, "leading", fair)
    cost = CostSettings(memory_pressure_from=0.5, memory_pressure_full=1.0)
    state = state_of(
        [told(queue_depth=2, memory_used_ratio=0.75), told(queue_depth=1)], PickSettings(cost=cost)
    )
    picks = state.profile("m")
    assert picks is not None
    prompt = question(2, {0: 8}, session="h:1")
    assert [entry.terms for entry in picks.pick(prompt).considered] == [None, None]
    for entry in picks.pick(replace(prompt, explain=True)).considered:
        assert entry.terms is not None
        assert sum(entry.terms.values()) == pytest.approx(entry.cost)
        assert entry.terms["leading"] >= 1.0
        assert entry.terms["session"] == (
            -PickSettings().sessions.bonus_seconds if entry.address == "h:1" else 0.0
        )


# Pickers.


def scored_at(cost: list[float], matched: list[int], priced: list[float]) -> ScoredCandidates:
    size = len(cost)
    nothing = np.zeros(size)
    forecast = Forecast(np.array(matched), nothing, np.array(priced), nothing, nothing, price=3.0)
    return ScoredCandidates(question(size), forecast, np.array(cost))


def first_by(name: PickerName, candidates: ScoredCandidates, count: int = 4, **context: Any) -> list[int]:
    """The picker's order; without a context of its own, load adds nothing to the cost."""
    state = state_of([Load()] * len(candidates.cost), PickSettings())
    picks = state.profile("m")
    assert picks is not None
    context = {"request_seconds": 0.0, **context}
    return PICKERS[name](candidates, picks.context._replace(**context), count)


def test_cheapest_goes_by_cost_alone() -> None:
    candidates = scored_at([0.4, 0.2, 0.2, 0.3], [0] * 4, [9.0] * 4)
    assert first_by("cheapest", candidates) == [1, 2, 3, 0]
    assert first_by("cheapest", candidates, 2) == [1, 2]


def test_rendezvous_chooses_within_the_slack() -> None:
    order = first_by("rendezvous", scored_at([1.0, 1.2, 1.24, 5.0, 4.0], [0] * 5, [3.0] * 5), 5)
    assert set(order[:3]) == {0, 1, 2}
    assert order[3:] == [4, 3]
    assert first_by("rendezvous", scored_at([1.0, 1.2, 1.24, 5.0], [0] * 4, [0.0] * 4)) == [0, 1, 2, 3]


def test_slack_grows_with_unshared_traffic() -> None:
    candidates = scored_at([1.0 + row / 10 for row in range(8)], [0] * 8, [0.8] * 8)
    alone, apart = (first_by("rendezvous", candidates, 8, apart_share=share) for share in (0.0, 0.75))
    assert alone == sorted(range(8))
    assert apart != sorted(range(8))


def test_nobody_who_holds_less_than_the_cheapest_is_as_good() -> None:
    for seed in range(20):
        candidates = scored_at([1.0, 1.01, 1.02], [3, 2, 3], [3.0] * 3)
        asked = replace(candidates.request, blocks=[seed * 7919 + n for n in range(8)])
        assert first_by("rendezvous", replace(candidates, request=asked), 1)[0] in {0, 2}


def test_no_endpoint_stands_twice_where_a_near_one_holds_less() -> None:
    candidates = scored_at([1.0, 1.01, 1.02, 1.03, 9.0], [3, 2, 3, 2, 0], [3.0] * 5)
    for count in range(1, 6):
        order = first_by("rendezvous", candidates, count)
        assert len(order) == len(set(order)) == count
        assert set(order[:2]) <= {0, 2}
        assert order[2:] == [1, 3, 4][: max(0, count - 2)]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 16])
@pytest.mark.parametrize("size", [5, 128, 129, 500])
def test_smallest_are_in_order_and_ties_by_position(size: int, count: int) -> None:
    column = np.random.default_rng(size).integers(0, 20, size).astype(float)
    wanted = column.argsort(kind="stable")[:count].tolist()
    assert smallest(column, count).tolist() == wanted


def test_prompts_after_a_common_prefix_are_spread() -> None:
    """With the leading block's hash, all of them would go to the same one in every tie."""
    chosen = set()
    for seed in range(40):
        blocks = [1, 2, seed * 1_000_003]
        asked = PickRequest(1, blocks, 3 * 256, np.full(4, 2), NOW)
        candidates = replace(scored_at([0.1] * 4, [2] * 4, [0.01] * 4), request=asked)
        chosen.add(first_by("rendezvous", candidates, 1)[0])
    assert chosen == {0, 1, 2, 3}
