"""Workloads are the same for everyone, and figures are judged as the targets say."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.agent_blocks import lines_of, trace_of
from bench.mix import (
    BLOCK_TOKENS,
    MOST_OUTPUT_TOKENS,
    MOST_PROMPT_TOKENS,
    TENANTS,
    Lengths,
    Mix,
    drawn,
    generate,
)
from bench.replay_cells import Cell, run_cells
from bench.replay_report import OURS, summary, tables, targets_of
from bench.workloads import agents, ideal_hit_ratio, session_begins, workload
from fleet.errors import WarmrouteError
from warmroute.replay.figures import Figures
from warmroute.replay.trace import Trace, TraceRequest

if TYPE_CHECKING:
    from pathlib import Path

    from bench.replay_cells import Results


def test_a_seed_moves_arrivals_and_nothing_else() -> None:
    one, again, other = (workload("tenants", seed, 300) for seed in (1, 1, 2))
    assert one == again
    assert [r.at for r in one.requests] != [r.at for r in other.requests]
    assert sorted(r.blocks for r in one.requests) == sorted(r.blocks for r in other.requests)


def test_parts_share_no_session_and_are_the_whole() -> None:
    whole, train, rest = (
        {request.session for request in workload(name).requests}
        for name in ("tenants", "tenants/train", "tenants/held_out")
    )
    assert train | rest == whole
    assert not train & rest
    assert 0.3 < len(train) / len(whole) < 0.7


def test_unknown_workloads_are_refused() -> None:
    for name in ("none", "agents/none", "drawn_30"):
        with pytest.raises(WarmrouteError, match="allowed: mooncake"):
            workload(name)


def test_agents_repeat_most_of_their_blocks() -> None:
    trace = agents()
    assert len(trace.requests) == 402
    assert ideal_hit_ratio(trace) == pytest.approx(0.936, abs=0.001)
    assert trace_of(lines_of(trace), "agents") == trace


def test_ideal_hit_ratio_counts_blocks_that_came_before() -> None:
    requests = (TraceRequest(0.0, 250, 1, (1, 2)), TraceRequest(1.0, 250, 1, (1, 3)))
    assert ideal_hit_ratio(Trace("x", 100, requests)) == pytest.approx(0.2)


@pytest.mark.parametrize("mix", [TENANTS, drawn(0), drawn(7)])
def test_generated_requests_are_possible(mix: Mix) -> None:
    trace = generate(mix, 500, "seed")
    assert trace == generate(mix, 500, "seed")
    begins = session_begins(trace.requests)
    for request, begin in zip(trace.requests, begins, strict=True):
        assert 1 <= request.prompt_tokens <= MOST_PROMPT_TOKENS
        assert 1 <= request.output_tokens <= MOST_OUTPUT_TOKENS
        assert len(request.blocks) == request.prompt_tokens // BLOCK_TOKENS
        assert begin <= request.at
        if request.after >= 0:
            before = trace.requests[request.after]
            shared = before.prompt_tokens // BLOCK_TOKENS
            assert request.blocks[:shared] == before.blocks
            assert request.session == before.session


@pytest.mark.parametrize("lengths", [Lengths(300, 0.7), Lengths(300, 0.7, pareto=True)])
def test_lengths_have_their_median(lengths: Lengths) -> None:
    random = Random(1)
    tokens = [lengths.draw(random, 100_000) for _ in range(4000)]
    assert np.median(tokens) == pytest.approx(300, rel=0.1)


def test_bursts_keep_the_mean_rate() -> None:
    quiet = replace(drawn(3), turns_share=0.0, on_share=0.3, on_ratio=1.0, on_seconds=5.0)
    bursty = replace(quiet, on_ratio=8.0)
    flat, bursts = (np.array([r.at for r in generate(m, 4000, "s").requests]) for m in (quiet, bursty))
    assert bursts[-1] == pytest.approx(flat[-1], rel=0.2)
    assert np.diff(bursts).std() > 1.3 * np.diff(flat).std()


def row(ttft_p90: float, hits: float = 0.2, **more: float) -> dict[str, float]:
    figures = Figures(*[1.0] * len(Figures._fields))._asdict()
    return {**figures, "ttft_p90": ttft_p90, "hit_ratio": hits, "cpu_seconds": 1.0, **more}


def results(ours: dict[str, float], **others: dict[str, float]) -> Results:
    return {Cell("mooncake", policy, 0.85): each for policy, each in {OURS: ours, **others}.items()}


@pytest.mark.parametrize(
    ("ours", "other", "reference", "met"),
    [(0.9, 1.0, 0.1, True), (0.91, 1.0, 0.1, False), (1.03, 1.0, 1.0, True), (1.04, 1.0, 1.0, False)],
)
def test_ours_beats_others_or_is_near_a_reference(
    ours: float, other: float, reference: float, met: bool
) -> None:
    summed = summary(results(row(ours), smg=row(other), greedy_perfect=row(reference)), {"mooncake": 0.4})
    verdicts = {target.name: target.met for target in targets_of(summed)}
    assert verdicts["mooncake_ttft_p90_over_best_other"] is met


def test_hits_are_judged_where_there_is_reuse_left() -> None:
    """Round robin finds 20 %: 2.5 times that are only possible if the trace has them."""
    for ideal, judged in ((0.4, False), (0.6, True)):
        summed = summary(results(row(1.0, 0.5), round_robin=row(2.0, 0.2)), {"mooncake": ideal})
        names = {target.name for target in targets_of(summed)}
        assert ("mooncake_hit_ratio_over_round_robin" in names) is judged


def test_family_is_judged_by_its_draws() -> None:
    drawn_results: Results = {}
    for number in range(30):
        name = f"drawn_{number:02}"
        drawn_results[Cell(name, OURS, 0.85)] = row(1.2 if number < 3 else 1.0)
        drawn_results[Cell(name, "smg", 0.85)] = row(1.0)
        drawn_results[Cell(name, "greedy_perfect", 0.85)] = row(0.1)
    targets = {
        target.name: target
        for target in targets_of(summary(drawn_results, {f"drawn_{n:02}": 0.1 for n in range(30)}))
    }
    assert (targets["drawn_near_best"].value, targets["drawn_near_best"].met) == (27, False)
    assert (targets["drawn_worst_over_best"].value, targets["drawn_worst_over_best"].met) == (1.2, False)


def test_tables_mark_the_best_that_is_no_reference() -> None:
    summed = summary(
        results(row(0.5, 0.3), smg=row(0.7, 0.4), greedy_perfect=row(0.1, 0.9)), {"mooncake": 0.4}
    )
    (table,) = tables(summed)
    cells = {line.split("|")[1].strip(): line.split("|")[2:] for line in table.splitlines()[2:]}
    ttft, hits, e2e = (
        [cells[policy][column].strip() for policy in (OURS, "smg", "*greedy_perfect*")]
        for column in (1, 5, 4)
    )
    assert ttft == ["**0.500**", "0.700", "0.100"]
    assert hits == ["30.0%", "**40.0%**", "90.0%"]
    assert e2e == ["1.00", "1.00", "1.00"], "equal figures have no best one"


def test_results_in_the_file_are_not_replayed_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    cells = [Cell("tenants", "random", 0.85, seed, most=40) for seed in (1, 2)]
    first = run_cells(cells[:1], path, 1)
    both = run_cells(cells, path, 1)
    assert both[cells[0]] == first[cells[0]], "its CPU time would be another"
    assert len(path.read_text().splitlines()) == 2
