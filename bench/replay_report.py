"""What bench.replay makes of its results: figures over seeds, tables, targets."""

from __future__ import annotations

from math import inf, isnan
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.replay_cells import intervals
from bench.workloads import FAMILY, WORKLOADS, recorded_knee
from warmroute.demo import report
from warmroute.demo.report import Target, ratio
from warmroute.replay.policies import REFERENCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.replay_cells import Cell, Results
    from warmroute.replay.figures import Interval

OURS: Final = "warmroute"
LOAD: Final = 0.85
"""Of the knee: where most is judged."""
WORKERS: Final = 4
JUDGED: Final = ("ttft_p90", "slowdown_p99", "e2e_p99")
_LARGEST: Final = "mooncake_32"
_UNDER_OTHERS: Final = 0.9
_NEAR_REFERENCE: Final = 1.03
_BEHIND_LEAST_REQUEST: Final = 1.03
_BUSIEST: Final = 1.15
_TTFT_FACTOR: Final = 2.3
_HIT_FACTOR: Final = 2.5
_KNEE_FACTOR: Final = 1.1
_WORKERS_FACTOR: Final = 1.05
_CPU_SECONDS: Final = 60.0
_DRAWN_NEAR: Final = 1.05
_DRAWN_WORST: Final = 1.15
_DRAWN_COUNT: Final = 28 / 30

_COLUMNS: Final = {
    "ttft_p50": "TTFT p50",
    "ttft_p90": "TTFT p90",
    "ttft_p99": "TTFT p99",
    "slowdown_p99": "slowdown p99",
    "e2e_p99": "E2E p99",
    "hit_ratio": "hits",
    "busiest_over_mean": "busiest",
}
_MORE_IS_BETTER: Final = frozenset({"hit_ratio", "knee"})

Rows = dict[str, dict[str, "Interval"]]
"""Figures by policy."""


class Group(NamedTuple):
    """One workload at one load, with as many ext_proc workers."""

    workload: str
    load: float
    workers: int = 1


class Summary(NamedTuple):
    """All results, over their seeds."""

    rows: dict[Group, Rows]
    knees: dict[str, dict[str, float]]
    """By workload and policy."""
    ideals: Mapping[str, float]
    """Hit ratio of a cache without end that all replicas share."""
    cpu_seconds: float | None
    """The most that a whole replay of the largest workload took with ours."""


def summary(results: Results, ideals: Mapping[str, float]) -> Summary:
    """Sum up results."""
    cells: dict[Group, dict[str, list[Cell]]] = {}
    knees: dict[str, dict[str, float]] = {}
    for cell, result in results.items():
        if cell.load:
            group = Group(cell.workload, cell.load, cell.workers)
            cells.setdefault(group, {}).setdefault(cell.policy, []).append(cell)
        else:
            knees.setdefault(cell.workload, {})[cell.policy] = result["knee"]
    rows = {
        group: {policy: intervals(results, those) for policy, those in by_policy.items()}
        for group, by_policy in cells.items()
    }
    whole = (cell for cell in results if cell.workload == _LARGEST and cell.load and cell.most is None)
    cpu = [results[cell]["cpu_seconds"] for cell in whole if cell.policy == OURS]
    return Summary(rows, knees, ideals, max(cpu, default=None))


def targets_of(summed: Summary) -> list[Target]:
    """Hold the figures against their targets, as far as their replays were chosen."""
    targets: list[Target] = []
    for group, rows in summed.rows.items():
        if group.workload in FAMILY:
            continue
        if group.workers > 1:
            targets += _workers(group, rows, summed.rows.get(group._replace(workers=1), {}))
        elif not WORKLOADS[group.workload].reuse:
            targets += _without_reuse(group, rows)
        if group.workers == 1 and group.load == LOAD:
            targets += _at_load(group.workload, rows, summed.ideals[group.workload])
    for name, knees in summed.knees.items():
        value = ratio(knees.get(OURS), max(_others(knees).values(), default=None))
        targets.append(report.at_least(f"{name}_knee_over_best_other", value, _KNEE_FACTOR))
    if summed.cpu_seconds is not None:
        targets.append(report.at_most(f"{_LARGEST}_cpu_seconds", summed.cpu_seconds, _CPU_SECONDS))
    return targets + _family(summed)


def _at_load(name: str, rows: Rows, ideal: float) -> list[Target]:
    targets = []
    references = {policy: row for policy, row in rows.items() if policy in REFERENCES}
    for figure in JUDGED:
        ours = _mean(rows, OURS, figure)
        to_other = ratio(ours, _least(_others(rows), figure))
        to_reference = ratio(ours, _least(references, figure))
        met = (to_other is not None and to_other <= _UNDER_OTHERS) or (
            to_reference is not None and to_reference <= _NEAR_REFERENCE
        )
        shown = "unknown" if to_reference is None else f"{to_reference:.3f}"
        bound = f"<= {_UNDER_OTHERS:g}, or <= {_NEAR_REFERENCE:g} times the best reference; is {shown} times"
        targets.append(Target(f"{name}_{figure}_over_best_other", to_other, bound, met))
    busiest = _mean(rows, OURS, "busiest_over_mean")
    targets.append(report.at_most(f"{name}_busiest_over_mean", busiest, _BUSIEST))
    if WORKLOADS[name].reuse:
        value = ratio(_mean(rows, "round_robin", "ttft_p99"), _mean(rows, OURS, "ttft_p99"))
        targets.append(report.at_least(f"{name}_ttft_p99_under_round_robin", value, _TTFT_FACTOR))
        there = _mean(rows, "round_robin", "hit_ratio")
        # Where round robin already has much of the ideal, too little is left to give.
        if there is None or ideal >= _HIT_FACTOR * there:
            value = ratio(_mean(rows, OURS, "hit_ratio"), there)
            targets.append(report.at_least(f"{name}_hit_ratio_over_round_robin", value, _HIT_FACTOR))
    return targets


def _without_reuse(group: Group, rows: Rows) -> list[Target]:
    return [
        report.at_most(
            f"{group.workload}_{group.load:g}_{figure}_over_least_request",
            ratio(_mean(rows, OURS, figure), _mean(rows, "least_request", figure)),
            _BEHIND_LEAST_REQUEST,
        )
        for figure in JUDGED
    ]


def _workers(group: Group, rows: Rows, one: Rows) -> list[Target]:
    return [
        report.at_most(
            f"{group.workload}_{figure}_of_{group.workers}_workers_over_one",
            ratio(_mean(rows, OURS, figure), _mean(one, OURS, figure)),
            _WORKERS_FACTOR,
        )
        for figure in JUDGED
    ]


def drawn_ratios(summed: Summary) -> dict[str, float | None]:
    """Return, by drawn workload, TTFT p90 of ours over that of the best other."""
    return {
        group.workload: ratio(_mean(rows, OURS, "ttft_p90"), _least(_others(rows), "ttft_p90"))
        for group, rows in summed.rows.items()
        if group.workload in FAMILY
    }


def _family(summed: Summary) -> list[Target]:
    ratios = drawn_ratios(summed)
    if not ratios:
        return []
    near = sum(value is not None and value <= _DRAWN_NEAR for value in ratios.values())
    worst = max(inf if value is None else value for value in ratios.values())
    return [
        report.at_least("drawn_near_best", near, round(_DRAWN_COUNT * len(ratios))),
        report.at_most("drawn_worst_over_best", worst, _DRAWN_WORST),
    ]


def _others(rows: Mapping[str, Any]) -> dict[str, Any]:
    return {policy: row for policy, row in rows.items() if policy not in REFERENCES and policy != OURS}


def _mean(rows: Rows, policy: str, figure: str) -> float | None:
    return rows[policy][figure].mean if policy in rows else None


def _least(rows: Rows, figure: str) -> float | None:
    return min((row[figure].mean for row in rows.values()), default=None)


def tables(summed: Summary) -> list[str]:
    """Return one Markdown table for each workload and load, and one for the family."""
    drawn = [
        _table(group, rows, summed)
        for group, rows in summed.rows.items()
        if group.workload not in FAMILY and group.workers == 1
    ]
    ratios = drawn_ratios(summed)
    return [*drawn, _family_table(ratios, summed)] if ratios else drawn


def _table(group: Group, rows: Rows, summed: Summary) -> str:
    """Rows are policies; of those that are no references, the best of each column is bold."""
    name, knees = group.workload, summed.knees.get(group.workload, {})
    best = [
        _best(figure, {policy: row[figure].mean for policy, row in rows.items()}) for figure in _COLUMNS
    ] + [_best("knee", knees)]
    lines = []
    for policy, row in rows.items():
        cells = [_cell(figure, row[figure]) for figure in _COLUMNS]
        if knees:
            cells.append(f"{knees[policy]:.2f}" if policy in knees else "")
        marked = [f"**{cell}**" if policy == one else cell for cell, one in zip(cells, best, strict=False)]
        lines.append([f"*{policy}*" if policy in REFERENCES else policy, *marked])
    replicas, rate = WORKLOADS[name].engine.replicas, group.load * recorded_knee(name)
    title = f"{name}, {replicas} replicas, {group.load:g} of the knee ({rate:.2f} times the trace's rate)"
    columns = ["policy", *_COLUMNS.values(), *(["knee"] if knees else [])]
    return _markdown(f"{title}, ideal hits {summed.ideals[name]:.1%}", columns, lines)


def _family_table(ratios: Mapping[str, float | None], summed: Summary) -> str:
    lines = []
    for group, rows in summed.rows.items():
        value = ratios.get(group.workload)
        if value is None:
            continue
        which = _best("ttft_p90", {policy: row["ttft_p90"].mean for policy, row in _others(rows).items()})
        ours, least = _mean(rows, OURS, "ttft_p90"), _least(_others(rows), "ttft_p90")
        ideal = f"{summed.ideals[group.workload]:.1%}"
        lines.append([group.workload, f"{ours:.3f}", f"{least:.3f}", which, f"{value:.3f}", ideal])
    columns = ["draw", "ours", "best other", "its policy", "ours over it", "ideal hits"]
    return _markdown(f"TTFT p90 of the generated family, {LOAD:g} of each knee", columns, lines)


def _markdown(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose columns line up as plain text too."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = (
        " | ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))])
        for row in (columns, rule, *rows)
    )
    return f"{title}:\n\n" + "\n".join(f"| {line} |" for line in lines)


def _best(figure: str, values: Mapping[str, float]) -> str:
    """Return the policy with the best value, references left out; empty where several have it."""
    judged = {policy: value for policy, value in values.items() if policy not in REFERENCES}
    best = (max if figure in _MORE_IS_BETTER else min)(judged.values(), default=None)
    policies = [policy for policy, value in judged.items() if value == best]
    return policies[0] if len(policies) == 1 else ""


def _cell(figure: str, interval: Interval) -> str:
    def text(value: float) -> str:
        return f"{value:.1%}" if figure == "hit_ratio" else f"{value:.3f}" if value < 1 else f"{value:.2f}"

    mean = text(interval.mean)
    return mean if isnan(interval.half_width) else f"{mean} ± {text(interval.half_width)}"


def plain(summed: Summary) -> dict[str, Any]:
    """Return everything as plain values for JSON: unknown is None."""
    return {
        "replays": [
            {
                **group._asdict(),
                "policies": {
                    policy: {
                        name: [_finite(interval.mean), _finite(interval.half_width)]
                        for name, interval in row.items()
                    }
                    for policy, row in rows.items()
                },
            }
            for group, rows in summed.rows.items()
        ],
        "knees": summed.knees,
        "ideal_hit_ratios": dict(summed.ideals),
        "drawn_ratios": drawn_ratios(summed),
    }


def _finite(value: float) -> float | None:
    return None if isnan(value) else value
