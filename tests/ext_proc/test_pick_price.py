"""What a pick costs later requests: the price of cold work, and the last free endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ext_proc.pick.forecast import MOST_DELAYED
from fleet.columns import MOST_PREFILL_SECONDS
from fleet.settings.picks import CostSettings, PickSettings, ScorerSettings
from tests.ext_proc.test_pick_cost import NOW, ask, load, state_of

if TYPE_CHECKING:
    from ext_proc.pick import PoolState

BLOCK = PickSettings().block_bytes


def send(state: PoolState, count: int, row: int, cold_bytes: int, seconds: float) -> None:
    """Let an endpoint have requests of this work, which it has done."""
    address = state.shape.addresses[row]
    for _ in range(count):
        state.backlog.add(address, seconds, NOW - 10_000.0, float(cold_bytes))


def queue(state: PoolState, **seconds: float) -> None:
    """Set the prefill ahead of endpoints, `e0=1.0`."""
    for name, ahead in seconds.items():
        state.backlog.free_at[int(name[1:])] = NOW + ahead


def term(state: PoolState, name: str, blocks: int) -> list[float]:
    profile = state.profile("m")
    assert profile is not None
    request = ask(blocks=blocks).of(state)
    seconds = profile.costs.by_term(request, profile.forecaster.of(request)).get(name)
    return [] if seconds is None else seconds.tolist()


def price(state: PoolState) -> float:
    profile = state.profile("m")
    assert profile is not None
    return profile.forecaster.of(ask().of(state)).price


def test_price_is_the_least_without_queues() -> None:
    state = state_of()
    send(state, 600, 0, 8_000, 0.1)
    assert price(state) == CostSettings().cold_price


def test_price_counts_requests_that_wait() -> None:
    """600 requests in a minute to 4 endpoints, which are busy for 12.5 s of it each."""
    state = state_of()
    send(state, 600, 0, 8_000, 1 / 12)
    queue(state, e0=2.0, e1=4.0, e2=4.0, e3=6.0)
    requests, busy_share = 600 / 60 / 4, 600 / 12 / 60 / 4
    assert price(state) == pytest.approx(1.0 + requests / (1.0 - busy_share) * 4.0)


def test_one_long_queue_raises_no_price() -> None:
    state = state_of()
    send(state, 600, 0, 8_000, 1 / 12)
    queue(state, e0=80.0)
    assert price(state) == CostSettings().cold_price


def test_price_is_bounded() -> None:
    state = state_of()
    send(state, 600, 0, 8_000, 1 / 12)
    queue(state, e0=500.0, e1=500.0, e2=500.0, e3=500.0)
    assert price(state) == 1.0 + MOST_DELAYED


def test_price_counts_other_workers_requests() -> None:
    alone, shared = state_of(), state_of(elsewhere=dict.fromkeys((f"10.0.0.{n}:8000" for n in range(4)), 5))
    for state in (alone, shared):
        send(state, 60, 0, 8_000, 0.01)
        queue(state, e0=8.0, e1=8.0, e2=8.0, e3=8.0)
    assert price(shared) > price(alone) > CostSettings().cold_price


def test_price_of_slow_endpoint_is_the_pools() -> None:
    """Later requests may go elsewhere, so its work counts at its own speed only once."""
    state, rates = state_of(), np.array([5_000.0, 20_000.0, 20_000.0, 20_000.0])
    for tick in range(30):
        state.backlog.prefill.learn(rates, np.ones(4), NOW + 10.0 * tick)
    profile = state.profile("m")
    assert profile is not None
    forecast = profile.forecaster.of(ask().of(state))
    extra = (forecast.priced - forecast.cold).tolist()
    assert extra == pytest.approx([extra[0]] * 4)
    assert forecast.cold[0] > 2 * forecast.cold[1]


def test_last_free_endpoint_costs_long_prompts_more() -> None:
    state = state_of()
    send(state, 240, 0, 4 * BLOCK, 0.25)
    queue(state, e1=3.0, e2=4.0, e3=5.0)
    first, *others = term(state, "spare", blocks=512)
    assert first > 0.0
    assert others == [0.0] * 3
    assert term(state, "spare", blocks=3) == []


@pytest.mark.parametrize("blocks", [512, 600])
def test_equal_prompts_spare_no_endpoint(blocks: int) -> None:
    state = state_of()
    send(state, 240, 0, 520 * BLOCK, 0.25)
    queue(state, e1=3.0, e2=4.0, e3=5.0)
    assert term(state, "spare", blocks) == []


def test_two_free_endpoints_leave_one_spare() -> None:
    state = state_of()
    send(state, 240, 0, 4 * BLOCK, 0.25)
    queue(state, e2=4.0, e3=5.0)
    assert term(state, "spare", blocks=512) == []


def test_short_prompts_fill_a_gap_soon() -> None:
    """Among long queues the gain is small: the gap of 0.2 s is filled by 0.2 s of short prompts' work."""
    state = state_of()
    send(state, 240, 0, 4 * BLOCK, 0.25)
    queue(state, e0=10.0, e1=10.2, e2=11.0, e3=12.0)
    requests, work = 240 / 60, 240 * 0.25 / 60
    assert term(state, "spare", blocks=512)[0] == pytest.approx(requests * 0.2 * 0.2 / (2 * work))


def test_memory_counts_what_the_prompt_will_take() -> None:
    """4,096 tokens take a fifth of a small cache: with 0.7 in use, that is in the silent zone."""
    cost = CostSettings(memory_pressure_from=0.8, memory_pressure_full=1.0, memory_pressure_seconds=2.0)
    small = load(memory_used_ratio=0.7, kv_capacity_tokens=20_480)
    settings = PickSettings(cost=cost, scorers=(ScorerSettings(name="memory"),))
    state = state_of({0: small, 1: small, 2: load(memory_used_ratio=0.7), 3: small}, settings=settings)
    profile = state.profile("m")
    assert profile is not None
    request = ask({1: 32}, blocks=64).of(state)
    seconds = profile.costs.by_term(request, profile.forecaster.of(request))["memory"]
    assert seconds.tolist() == pytest.approx([1.0, 0.0, 0.0, 1.0])


def test_prefill_of_other_workers_is_queued_behind_ours() -> None:
    state = state_of()
    backlog, size = state.backlog, len(state.shape.addresses)
    backlog.set_in_flight(state.shape.addresses[0], 1, NOW)
    queue(state, e0=1.0)
    in_flight = np.ones(size)
    for seconds, ahead in ((90.0, 1.0), (92.0, 3.0), (1.0, 3.0), (1e300, 3.0 + MOST_PREFILL_SECONDS)):
        backlog.take_elsewhere(in_flight, np.full(size, seconds), NOW)
        assert backlog.free_at[0] - NOW == pytest.approx(ahead)
    backlog.set_in_flight(state.shape.addresses[0], 0, NOW)
    assert backlog.free_at[0] > NOW
    backlog.take_elsewhere(np.zeros(size), np.full(size, 1e300), NOW)
    assert backlog.free_at[0] < NOW
