"""The engine model's promises, in virtual time."""

from __future__ import annotations

from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import WarmrouteError
from tests.simulator.stepwise import Stepwise
from warmroute.simulator.fits import timing
from warmroute.simulator.model import (
    EngineConfig,
    EngineModel,
    Event,
    EventKind,
    Handle,
    Request,
    RequestTooLongError,
    State,
    Steps,
)


def drain(model: EngineModel) -> list[Event]:
    """Run until nothing is under way."""
    events = []
    while (at := model.next_event_at()) is not None:
        events += model.advance(at)
    return events


def prompt(family: int, tokens: int, output: int = 4, block_tokens: int = 16) -> Request:
    """A request whose prompt shares all its blocks with its family."""
    total = (tokens + output) // block_tokens
    return Request(tokens, output, tuple(family * 1_000_000 + index for index in range(total)))


def ttft(handle: Handle) -> float:
    """Seconds to the first token."""
    assert handle.first_token_at is not None
    return handle.first_token_at - handle.arrived_at


def test_a_cold_prompt_alone_takes_what_the_fit_says() -> None:
    """Chunked prefill of a single request: the fit's own sum, at 20k tokens in three chunks."""
    model = EngineModel(EngineConfig())
    handle = model.submit(prompt(1, 20_000), 5.0)
    drain(model)
    assert ttft(handle) == pytest.approx(timing().prefill(20_000))
    assert handle.cached_tokens == 0


def test_a_warm_prefix_shortens_the_first_token() -> None:
    """The same prompt again computes only its last block."""
    model = EngineModel(EngineConfig())
    cold = model.submit(prompt(1, 8_000), 0.0)
    drain(model)
    warm = model.submit(prompt(1, 8_000), 10.0)
    drain(model)
    assert warm.cached_tokens == 7_984
    assert ttft(warm) < ttft(cold) / 10


def test_output_blocks_are_warm_for_the_next_turn() -> None:
    """What the model said is part of the next prompt's warm prefix."""
    model = EngineModel(EngineConfig())
    model.submit(prompt(1, 160, output=160), 0.0)
    drain(model)
    following = model.submit(prompt(1, 400), 10.0)
    drain(model)
    assert following.cached_tokens == 304  # 320 tokens less the block that the last token left open


def test_a_reset_cache_is_cold() -> None:
    """After reset_cache nothing matches."""
    model = EngineModel(EngineConfig())
    model.submit(prompt(1, 800), 0.0)
    drain(model)
    model.reset_cache(10.0)
    again = model.submit(prompt(1, 800), 10.0)
    drain(model)
    assert again.cached_tokens == 0


def test_each_request_gets_all_its_tokens_and_one_end() -> None:
    """One first token, then the others, then the end, in order of time."""
    model = EngineModel(EngineConfig())
    handle = model.submit(prompt(1, 100, output=9), 0.0)
    events = drain(model)
    assert events[0].kind is EventKind.FIRST_TOKEN
    assert events[-1].kind is EventKind.FINISHED
    assert sum(event.tokens for event in events) == 9 == handle.emitted
    assert [event.at for event in events] == sorted(event.at for event in events)


def test_one_late_call_reports_what_many_calls_do() -> None:
    """How often `advance` is called changes neither times nor tokens."""

    def outcome(step: float | None) -> tuple[list[float | None], int]:
        model = EngineModel(EngineConfig(jitter_ratio=0.1, seed=3))
        handles = [model.submit(prompt(index, 500 * index + 9, output=20), 0.0) for index in range(5)]
        events = model.advance(60.0) if step is None else []
        if step is not None:
            for tick in range(int(60 / step)):
                events += model.advance(tick * step)
        return [handle.finished_at for handle in handles], sum(event.tokens for event in events)

    assert outcome(None) == outcome(0.004)
    assert outcome(None)[1] == 100


def test_the_batch_is_limited_and_the_queue_is_fifo() -> None:
    """At most max_num_seqs requests run, and waiting ones start in order."""
    model = EngineModel(EngineConfig(max_num_seqs=2))
    handles = [model.submit(prompt(index, 64, output=10), 0.0) for index in range(6)]
    assert (model.running, model.waiting) == (1, 5)  # the first step began with the first request
    while (at := model.next_event_at()) is not None:
        model.advance(at)
        assert model.running <= 2
    starts = [handle.scheduled_at for handle in handles]
    assert starts == sorted(starts, key=lambda at: at or 0.0)
    assert starts[5] > starts[0]  # type: ignore[operator]


@pytest.mark.parametrize(("async_scheduling", "steps"), [(True, 2), (False, 1)])
def test_a_request_waits_for_batches_already_chosen(async_scheduling: bool, steps: int) -> None:
    """One that comes during a step joins the step after the next: the next is chosen by then."""
    ends: list[float] = []
    model = EngineModel(EngineConfig(async_scheduling=async_scheduling))
    model.submit(prompt(1, 64, output=10), 0.0)
    late = model.submit(prompt(2, 64), 0.001)
    while late.scheduled_at is None:
        ends.append(model.next_event_at() or 0.0)
        model.advance(ends[-1])
    assert len(ends) == steps
    assert late.scheduled_at == ends[-1]


def test_a_request_alone_does_not_wait_for_an_aborted_batch() -> None:
    """The batch that was chosen ahead has nobody left."""
    model = EngineModel(EngineConfig())
    first = model.submit(prompt(1, 64, output=10), 0.0)
    second = model.submit(prompt(2, 64), 0.001)
    model.abort(first, 0.002)
    drain(model)
    assert second.state is State.FINISHED


def test_a_budget_below_the_batch_is_refused() -> None:
    """Each decoding request needs a token of every step."""
    with pytest.raises(WarmrouteError, match="max_batched_tokens is 100; allowed: at least max_num_seqs"):
        EngineConfig(max_num_seqs=101, max_batched_tokens=100)


def test_no_step_exceeds_the_token_budget() -> None:
    """Prefill and decode share max_batched_tokens."""
    steps: list[int] = []
    model = EngineModel(
        EngineConfig(max_num_seqs=64, max_batched_tokens=512),
        lambda ended: steps.append(ended.prefill_tokens + ended.decodes),
    )
    for index in range(8):
        model.submit(prompt(index, 1_300, output=30), index * 0.05)
    drain(model)
    assert max(steps) == 512


def test_a_long_prefill_does_not_stop_the_others_decoding() -> None:
    """Chunked prefill: a running request gets tokens while a long prompt is computed."""
    model = EngineModel(EngineConfig())
    talker = model.submit(prompt(1, 32, output=200), 0.0)
    model.advance(0.1)
    before = talker.emitted
    newcomer = model.submit(prompt(2, 60_000), 0.1)
    while newcomer.first_token_at is None:
        model.advance(model.next_event_at() or 0.0)
    assert talker.emitted > before + 5


def test_blocks_running_out_preempts_the_youngest_and_all_end() -> None:
    """Two requests that fit alone but not together both finish; the younger one gave way."""
    model = EngineModel(EngineConfig(num_blocks=24))
    elder = model.submit(prompt(1, 128, output=160), 0.0)
    younger = model.submit(prompt(2, 128, output=160), 0.0)
    drain(model)
    assert elder.state is younger.state is State.FINISHED
    assert elder.preemptions == 0
    assert younger.preemptions >= 1
    assert younger.emitted == 160
    assert model.counters.preempted_requests == younger.preemptions


def test_a_request_that_could_never_run_is_refused() -> None:
    """Otherwise it would block the queue for good."""
    model = EngineModel(EngineConfig(num_blocks=10))
    with pytest.raises(RequestTooLongError):
        model.submit(Request(150, 11), 0.0)
    with pytest.raises(ValueError, match="at least one"):
        model.submit(Request(1, 0), 0.0)
    assert model.next_event_at() is None


def test_an_aborted_request_frees_its_blocks_at_once() -> None:
    """Running or waiting, and the others go on."""
    model = EngineModel(EngineConfig(max_num_seqs=1))
    running = model.submit(prompt(1, 1_000), 0.0)
    waiting = model.submit(prompt(2, 1_000), 0.0)
    third = model.submit(prompt(3, 1_000), 0.0)
    model.abort(waiting, 0.001)
    model.abort(running, 0.002)
    model.abort(running, 0.003)  # twice does no harm
    assert model.cache.used == 0
    drain(model)
    assert (running.state, waiting.state, third.state) == (State.ABORTED, State.ABORTED, State.FINISHED)
    assert model.counters.aborted_requests == 2


def test_memory_out_stalls_and_heals() -> None:
    """While allocations fail, no request starts and the use reads 0.97; afterwards all end."""
    model = EngineModel(EngineConfig())
    before = model.submit(prompt(1, 100, output=100), 0.0)
    model.advance(0.1)
    model.set_failing(failing=True, now=0.1)
    during = model.submit(prompt(2, 100), 0.2)
    drain(model)
    assert model.kv_used_ratio == pytest.approx(0.97)
    assert during.scheduled_at is None
    assert before.state is State.WAITING
    model.set_failing(failing=False, now=50.0)
    drain(model)
    assert before.state is during.state is State.FINISHED
    assert model.cache.used == 0


def test_slowdown_stretches_steps() -> None:
    """A factor of ten makes the first token ten times as late."""
    fast, slow = EngineModel(EngineConfig()), EngineModel(EngineConfig())
    slow.slowdown = 10.0
    first, second = fast.submit(prompt(1, 900), 0.0), slow.submit(prompt(1, 900), 0.0)
    drain(fast)
    drain(slow)
    assert ttft(second) == pytest.approx(10 * ttft(first))


def test_milestones_are_where_first_tokens_and_ends_are() -> None:
    """Without jitter the forecast of a lone request's end differs only by its growing context."""
    model = EngineModel(EngineConfig())
    handle = model.submit(prompt(1, 100, output=50), 0.0)
    assert model.next_milestone_at() == model.next_event_at()
    model.advance(model.next_event_at() or 0.0)
    forecast = model.next_milestone_at()
    drain(model)
    assert handle.finished_at == pytest.approx(forecast, rel=1e-3)
    assert model.next_milestone_at() is None


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 3),  # family
        st.integers(1, 300),  # prompt tokens
        st.integers(1, 40),  # output tokens
        st.floats(0, 0.3),  # seconds after the one before
        st.sampled_from([None, None, None, 0.0, 0.05, 0.5]),  # aborted so long after arrival
    ),
    max_size=25,
)


def run_to(model: EngineModel, now: float) -> None:
    """Advance from milestone to milestone; each reports what happens at that time."""
    while (at := model.next_milestone_at()) is not None and at <= now:
        assert all(event.at == pytest.approx(at, rel=1e-9) for event in model.advance(at))
    assert not model.advance(now)


def moments(handle: Handle) -> list[float]:
    """When it was admitted, got its first token and ended; -1: not."""
    ended = handle.finished_at if handle.state is State.FINISHED else None
    return [-1 if at is None else at for at in (handle.scheduled_at, handle.first_token_at, ended)]


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(60))
def test_many_steps_at_once_are_what_single_steps_are(seed: int) -> None:
    """Times, tokens, preemptions, hits and steps are those of a scheduler that takes step by step."""
    draw = Random(seed)
    requests = [
        (
            draw.randint(0, 3),
            draw.randint(1, 300),
            draw.randint(1, 40),
            draw.choice([0.0, 0.3 * draw.random()]),
            draw.choice([None, None, None, 0.0, 0.05, 0.5]),
        )
        for _ in range(draw.randint(1, 25))
    ]
    tokens, seqs, budget = draw.randint(500, 900), draw.randint(1, 6), draw.choice([16, 64, 8192])
    block = draw.randint(1, 99)
    config = EngineConfig(
        num_blocks=-(-tokens // block),
        block_tokens=block,
        max_num_seqs=seqs,
        max_batched_tokens=budget,
        report_tokens=False,
    )
    taken: list[Steps] = []
    model, slow = EngineModel(config, taken.append), Stepwise(config)
    now, plan = 0.0, list[tuple[float, int, Request | int]]()
    for index, (family, length, output, gap, patience) in enumerate(requests):
        now += gap
        plan.append((now, index, prompt(family, length, output * 5, block)))
        if patience is not None:
            plan.append((now + patience, index, index))
    handles: dict[int, tuple[Handle, Handle]] = {}
    for at, index, what in sorted(plan, key=lambda item: item[:2]):
        run_to(model, at)
        slow.run_until(at)
        model.slowdown = slow.slowdown = 1 + index % 2
        if isinstance(what, Request):
            handles[index] = model.submit(what, at), slow.submit(what, at)
        elif what in handles:
            model.abort(handles[what][0], at)
            slow.abort(handles[what][1], at)
        assert (model.cache.used, model.running) == (slow.cache.used, len(slow.running))
    run_to(model, inf)
    slow.run_until(inf)
    for fast, one in handles.values():
        names = ("state", "emitted", "preemptions", "cached_tokens")
        assert all(getattr(fast, name) == getattr(one, name) for name in names)
        assert moments(fast) == pytest.approx(moments(one), rel=1e-9)
    single = [
        (steps.first_seconds + steps.more_seconds * index, steps.prefill_tokens, steps.decodes)
        for steps in taken
        for index in range(steps.number)
    ]
    assert np.array(single) == pytest.approx(np.array(slow.steps), rel=1e-9)


@pytest.mark.untraced
@settings(max_examples=80, deadline=None)
@given(REQUESTS, st.integers(22, 60), st.integers(1, 6), st.sampled_from([16, 64, 8192]), st.integers(0, 9))
def test_everything_ends_and_every_block_comes_back(
    requests: list[tuple[int, int, int, float, float | None]], blocks: int, seqs: int, budget: int, seed: int
) -> None:
    """Conservation under any load: no request is lost, no block is lost, none is invented."""
    config = EngineConfig(
        num_blocks=blocks, max_num_seqs=seqs, max_batched_tokens=budget, jitter_ratio=0.2, seed=seed
    )
    model = EngineModel(config)
    plan: list[tuple[float, int, Request | int]] = []
    now = 0.0
    for index, (family, tokens, output, gap, patience) in enumerate(requests):
        now += gap
        plan.append((now, index, prompt(family, tokens, output)))
        if patience is not None:
            plan.append((now + patience, index, index))
    handles: dict[int, Handle] = {}
    tokens_reported = 0
    for at, index, what in sorted(plan, key=lambda item: item[:2]):
        if isinstance(what, Request):
            handles[index] = model.submit(what, at)
        elif what in handles:
            model.abort(handles[what], at)
        assert model.cache.used + model.cache.idle <= blocks
        assert model.running <= seqs
    while (next_at := model.next_event_at()) is not None:
        tokens_reported += sum(event.tokens for event in model.advance(next_at))
        assert model.cache.used + model.cache.idle <= blocks
    assert model.cache.used == 0
    assert (model.running, model.waiting) == (0, 0)
    for handle in handles.values():
        assert handle.state in (State.FINISHED, State.ABORTED)
        if handle.state is State.FINISHED:
            assert handle.emitted == handle.request.output_tokens
    sums = model.counters
    assert sums.submitted_requests == sums.finished_requests + sums.aborted_requests == len(handles)
    assert sums.prefix_hits <= sums.prefix_queries


def replay(seed: int, requests: int) -> tuple[list[float], EngineModel]:
    """A seeded run; returns every end."""
    model = EngineModel(EngineConfig(jitter_ratio=0.05, seed=seed, report_tokens=False))
    random = Random(7)
    now = 0.0
    handles = []
    for _ in range(requests):
        now += random.expovariate(3.0)
        handles.append(
            model.submit(
                prompt(random.randrange(60), random.randrange(100, 4_000), random.randrange(1, 300)), now
            )
        )
        model.advance(now)
    drain(model)
    return [handle.finished_at or 0.0 for handle in handles], model


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    """Determinism."""
    assert replay(1, 100)[0] == replay(1, 100)[0]
    assert replay(1, 100)[0] != replay(2, 100)[0]


@pytest.mark.untraced
def test_a_thousand_requests_in_virtual_time_take_few_events() -> None:
    """Virtual time costs steps, not seconds: minutes of load end without waiting."""
    ends, model = replay(1, 1_000)
    assert max(ends) > 200
    assert model.counters.finished_requests == 1_000
    assert model.counters.prefix_hits > model.counters.prefix_queries / 2
