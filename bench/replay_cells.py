"""The replays that bench.replay sums up: each by its key, run in processes, kept in a file."""

from __future__ import annotations

import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from bench.workloads import job, recorded_knee, workload
from warmroute.demo import report
from warmroute.replay.figures import Figures, Interval, figures, over_seeds
from warmroute.replay.job import replay_job
from warmroute.replay.sweep import knee

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from warmroute.replay.trace import Trace


class Cell(NamedTuple):
    """One replay, or, with load 0, the search for a policy's knee."""

    workload: str
    policy: str
    load: float
    """Share of the workload's knee."""
    seed: int = 1
    workers: int = 1
    """Of ext_proc."""
    most: int | None = None
    """Requests of the trace; None: all."""

    @property
    def key(self) -> str:
        """Its name in the file: a workload's new knee makes new cells."""
        return json.dumps([*self, recorded_knee(self.workload)])


Results = dict[Cell, dict[str, float]]
"""Figures, or the knee, and `cpu_seconds` of each cell."""


@lru_cache(2)
def _trace(name: str, seed: int, most: int | None) -> Trace:
    return workload(name, seed, most)


def run_cell(cell: Cell) -> dict[str, float]:
    """Replay one."""
    trace = _trace(cell.workload, cell.seed, cell.most)
    began = time.process_time()
    one = replace(job(cell.workload, cell.policy, cell.load or 1.0, cell.seed), workers=cell.workers)
    if cell.load:
        result = figures(replay_job(trace, one), one.limits)._asdict()
    else:
        result = {"knee": knee(trace, one).rate}
    return {**result, "cpu_seconds": time.process_time() - began}


def run_cells(cells: Sequence[Cell], path: Path | None, processes: int) -> Results:
    """Return the results of all cells, in their order: the file's, and the rest run now and put into it."""
    kept = _read(path) if path else {}
    results = {cell: kept[cell.key] for cell in cells if cell.key in kept}
    left = sorted((cell for cell in cells if cell not in results), key=_order)
    began = time.monotonic()
    pool = ProcessPoolExecutor(max(1, min(processes, len(left))))
    try:
        futures = {pool.submit(run_cell, cell): cell for cell in left}
        for done, future in enumerate(as_completed(futures), 1):
            cell = futures[future]
            result = results[cell] = future.result()
            if path:
                with path.open("a") as file:
                    file.write(json.dumps([cell.key, result]) + "\n")
            minutes = (time.monotonic() - began) / done * (len(left) - done) / 60
            report.progress(f"{done}/{len(left)}, {minutes:.0f} min left: {line(cell, result)}")
    finally:
        pool.shutdown(cancel_futures=True)
    return {cell: results[cell] for cell in cells}


def line(cell: Cell, result: Mapping[str, float]) -> str:
    """One result for people."""
    if not cell.load:
        return f"{cell.workload} {cell.policy}: knee {result['knee']:.2f}"
    name = f"{cell.workload} at {cell.load:g}, {cell.policy}, seed {cell.seed}"
    ttft, hits, cpu = (result[figure] for figure in ("ttft_p90", "hit_ratio", "cpu_seconds"))
    return f"{name}: TTFT p90 {ttft:.3f} s, hits {hits:.1%} ({cpu:.0f} s of CPU)"


def intervals(results: Results, cells: Iterable[Cell]) -> dict[str, Interval]:
    """Return the figures over the seeds of some cells."""
    rows = [results[cell] for cell in cells]
    return over_seeds([Figures(**{name: row[name] for name in Figures._fields}) for row in rows])


def _order(cell: Cell) -> tuple[str, int, bool]:
    """Searches first, as they take longest; then by trace, which a process keeps."""
    return cell.workload, cell.seed, cell.load > 0


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Return what a file has, but for results of other figures."""
    if not path.exists():
        return {}
    rows: dict[str, dict[str, float]] = dict(json.loads(text) for text in path.read_text().splitlines())
    fields = {*Figures._fields, "cpu_seconds"}
    return {key: row for key, row in rows.items() if "knee" in row or set(row) == fields}
