"""The scrape bench reads what it says it reads, and its targets can be missed."""

from __future__ import annotations

import copy
from math import isfinite
from typing import Any

import pytest

from bench.scrape import ARMS, scrape, targets_of
from bench.scrape_server import PAGE, pages
from fleet.settings import SignalSettings
from warmroute.demo import processes
from xds_server.signals.scrape.vllm import VLLM


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return processes.run(scrape(targets=3, seconds=0.5, rounds=1, interval=0.1))


def test_a_short_run_scrapes_by_every_reader(result: dict[str, Any]) -> None:
    assert result["page_bytes"] == PAGE.stat().st_size
    assert result["failures"] == result["unread"] == 0
    for name in ARMS:
        assert result[name]["scrapes"] >= 3
        assert result[name]["cpu_ms_per_scrape"] > 0
    assert result["share_of_reference"] < 1


@pytest.mark.parametrize(
    ("key", "value", "unmet"),
    [("share_of_reference", 0.4, "share_of_reference"), ("failures", 1, "failures"), ("unread", 1, "unread")],
)
def test_each_target_can_be_missed(result: dict[str, Any], key: str, value: float, unmet: str) -> None:
    good = copy.deepcopy(result)
    good["warmroute"]["cpu_ms_per_scrape"], good["share_of_reference"] = 0.5, 0.1
    assert all(entry.met for entry in targets_of(good))
    good[key] = value
    assert [entry.name for entry in targets_of(good) if not entry.met] == [unmet]


def test_pages_grow_and_carry_every_signal() -> None:
    """Else the product would have less to do than with a working engine."""
    reader = ARMS["warmroute"]("vllm", "127.0.0.1:1", SignalSettings())
    for second, page in enumerate(pages()[:3]):
        signals = reader.read(page, float(second))
    assert signals.keys() >= VLLM.fields.keys()
    assert all(isfinite(signals[name]) for name in VLLM.fields)


def test_the_reference_reads_the_same_lines() -> None:
    page = pages()[1]
    theirs = ARMS["reference"]("vllm", "127.0.0.1:1", SignalSettings()).read(page, 0.0)
    ours = ARMS["warmroute"]("vllm", "127.0.0.1:1", SignalSettings()).read(page, 0.0)
    assert theirs["queue_depth"] == ours["queue_depth"]
