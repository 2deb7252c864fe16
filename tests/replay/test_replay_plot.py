"""Plots are drawn with matplotlib, and without it the error names the extra."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from fleet.errors import WarmrouteError
from warmroute.replay.fault import Fault
from warmroute.replay.job import Job, replay_job
from warmroute.replay.plot import check_plot, draw
from warmroute.replay.trace import Trace, TraceRequest

if TYPE_CHECKING:
    from pathlib import Path

TRACE = Trace("x", 512, tuple(TraceRequest(0.2 * n, 1500, 20, (n % 5,)) for n in range(60)))


@pytest.mark.untraced
@pytest.mark.parametrize("count", [2, 7])
def test_plot_names_every_policy(tmp_path: Path, count: int) -> None:
    """Few have labels at their curves, more a legend. Requests that failed are in no distribution."""
    fault = Fault(5.0, 0, 2.0)
    outcome = replay_job(TRACE, Job("round_robin", replicas=2, faults=(fault,)))
    assert outcome.failed.any()
    policies = ["warmroute", *(f"policy_{number}" for number in range(1, count))]
    path = tmp_path / "plot.svg"
    draw(dict.fromkeys(policies, outcome), "the title", path, [fault])
    first = path.read_text()
    for text in ("the title", "Time to first token, s", *policies):
        assert f">{text}</text>" in first
    draw(dict.fromkeys(policies, outcome), "the title", path, [fault])
    assert path.read_text() == first, "the same replay gives the same file"


def test_plot_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    draw({"warmroute": replay_job(TRACE, Job("round_robin", replicas=2))}, "t", path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_plot(tmp_path / "x.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(WarmrouteError, match=r"pip install 'warmroute\[plot\]'"):
        check_plot(tmp_path / "x.png")


def test_bad_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(WarmrouteError, match=r"x\.gif; allowed: a file that ends in \.png or \.svg"):
        check_plot(tmp_path / "x.gif")
    with pytest.raises(WarmrouteError, match="a file in a folder that exists"):
        check_plot(tmp_path / "none" / "x.png")
