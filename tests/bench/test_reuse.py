"""What counts as reuse, and that the bench measures it through the real Envoy."""

from __future__ import annotations

import json

import pytest

from bench import reuse
from bench.reuse import CellFigures, Run, result_of
from bench.reuse_site import CELLS, DEFAULTS, ONCE, OURS, PROTOCOLS


def run_of(connections: dict[str, int], cpu_micros: dict[str, float]) -> Run:
    cells = {
        cell: CellFigures(
            1000, 0, 1000, connections[cell.way], [cpu_micros[cell.way], 2 * cpu_micros[cell.way]]
        )
        for cell in CELLS
    }
    return Run(cells, ext_proc_connections=2, ext_proc_streams=6000)


GOOD = {OURS: 10, DEFAULTS: 10, ONCE: 1000}
COSTS = {OURS: 300.0, DEFAULTS: 300.0, ONCE: 400.0}


def missed(run: Run) -> set[str]:
    return {entry.name for entry in result_of(run)[1] if not entry.met}


def test_reuse_as_with_envoys_defaults_is_met() -> None:
    assert missed(run_of(GOOD, COSTS)) == set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_more_connections_or_dearer_ones_are_not_met(protocol: str) -> None:
    assert f"{protocol}_connections_ours_to_defaults" in missed(run_of({**GOOD, OURS: 30}, COSTS))
    assert f"{protocol}_connections_once_to_ours" in missed(run_of({**GOOD, OURS: 500}, COSTS))
    assert f"{protocol}_cpu_ours_to_once" in missed(run_of(GOOD, {**COSTS, OURS: 410.0}))


def test_failures_and_many_connections_to_ext_proc_are_not_met() -> None:
    run = run_of(GOOD, COSTS)
    run.ext_proc_connections = 600
    run.cells[CELLS[0]].failures = 1
    assert missed(run) == {"ext_proc_connections_per_1000_streams", "failures"}


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Small: without reuse there are as many connections as requests, with reuse few."""
    assert reuse.main(
        ["--requests", "60", "--rounds", "1", "--concurrency", "4", "--engines", "2", "--json"]
    ) in {
        0,
        1,
    }
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {cell.name for cell in CELLS} == result["cells"].keys()
    for name, cell in result["cells"].items():
        assert (cell["requests"], cell["failures"]) == (60, 0)
        assert cell["picked"] > 30, "on a busy host Envoy goes on without some picks"
        connections = cell["connections_per_1000_requests"] * 60 / 1000
        assert connections == pytest.approx(60) if name.endswith(ONCE) else connections <= 12
