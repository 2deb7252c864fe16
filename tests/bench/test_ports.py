"""Ports of tests and benches: no two processes get the same one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from warmroute.demo import processes
from warmroute.demo.processes import BenchError, free_port, free_ports

FEW = range(19_000, 20_000)
"""So few that two processes with 250 each would meet by chance."""
CHILD = f"""
import json
from warmroute.demo import processes
processes._PORTS = {FEW!r}
print(json.dumps([processes.free_port() for _ in range(250)]), flush=True)
input()
"""


def test_two_processes_get_different_ports() -> None:
    """Nothing listens on them, as between the choice of a port and the start of its server."""
    command = [sys.executable, "-c", CHILD]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        drawn = []
        for process in (one, other):
            assert process.stdout is not None
            drawn.append(set(json.loads(process.stdout.readline())))
        for process in (one, other):
            process.communicate(b"\n")
    assert [len(ports) for ports in drawn] == [250, 250]
    assert drawn[0] | drawn[1] <= set(FEW)
    assert not drawn[0] & drawn[1]


def test_rows_of_ports_do_not_overlap() -> None:
    rows = [range(first, first + 60) for first in (free_ports(60), free_ports(60))]
    assert not set(rows[0]) & set(rows[1])
    assert free_port() not in {*rows[0], *rows[1]}


def test_lack_of_ports_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PORTS", range(20_000, 20_000))
    with pytest.raises(BenchError, match="all ports from 20000 to 19999 are taken"):
        processes._Ports().take(1)
