"""Data-parallel ranks on pages, and whether a pool's picks name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.ranks import RANK_SIGNALS, PoolRanks
from fleet.settings import SignalSettings, parse_settings
from xds_server.signals.ranks import ranks_of
from xds_server.signals.scrape.engines import reader_of
from xds_server.signals.scrape.ranks import ONE, RankPage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PAGE = """\
vllm:num_requests_waiting{{engine="{0}"}} 3
vllm:num_requests_running{{engine="{0}"}} 4
vllm:kv_cache_usage_perc{{engine="{0}"}} 0.5
vllm:time_to_first_token_seconds_count{{engine="{0}"}} 7
"""
SGLANG = """\
sglang:num_running_reqs{{dp_rank="{0}",tp_rank="{0}"}} 1
sglang:num_running_reqs{{dp_rank="{0}",tp_rank="9"}} 1
sglang:num_queue_reqs{{dp_rank="{0}",tp_rank="{0}"}} {0}
"""


def read(page: str, kind: str = "auto") -> RankPage:
    reader = reader_of(kind, "a:1", SignalSettings())
    reader.read(page.encode(), 1.0)
    return reader.ranks


@pytest.mark.parametrize("order", ["01", "10", "23"])
def test_ranks_have_the_order_of_their_labels(order: str) -> None:
    """An API server with some of the ranks only numbers its own from 0."""
    page = "".join(PAGE.format(rank) for rank in order)
    page = page.replace(f'waiting{{engine="{min(order)}"}} 3', f'waiting{{engine="{min(order)}"}} 8')
    ranks = read(page)
    assert (ranks.count, ranks.takes_header) == (2, True)
    named = dict(zip(RANK_SIGNALS, ranks.values.tolist(), strict=True))
    assert named["queue_depth"] == [8.0, 3.0]
    assert named["memory_used_ratio"] == [0.5, 0.5]
    assert named["first_tokens_total"] == [7.0, 7.0]
    assert np.isnan(named["first_token_seconds_total"]).all()


@pytest.mark.parametrize(
    "page",
    [
        PAGE.format(0),
        PAGE.format(0) + PAGE.format(2),
        PAGE.format("a") + PAGE.format("b"),
        PAGE.format("9" * 5000) + PAGE.format("9" * 5000 + "1"),
        (PAGE.format(0) + PAGE.format(1)).replace("vllm:", "ray_vllm:"),
        PAGE.format(0) + PAGE.format(1) + PAGE.format(1).replace("{", '{replica="x",'),
        "tgi_queue_size 1\n",
    ],
)
def test_a_page_without_one_series_a_rank_has_one_rank(page: str) -> None:
    assert read(page).count == 1


def test_a_number_of_no_sense_is_unknown() -> None:
    page = PAGE.format(0) + PAGE.format(1).replace("0.5", "7")
    assert read(page).values[2].tolist() == [0.5, pytest.approx(float("nan"), nan_ok=True)]


def test_sglang_shows_ranks_that_are_not_named_by_default() -> None:
    ranks = read(SGLANG.format(0) + SGLANG.format(1), "sglang")
    assert (ranks.count, ranks.takes_header) == (2, False)
    assert ranks.values[:2].tolist() == [[0.0, 1.0], [1.0, 1.0]]


# The rule.

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def pages(counts: Mapping[str, int], *, takes_header: bool = True) -> dict[str, RankPage]:
    values = {address: np.zeros((len(RANK_SIGNALS), count)) for address, count in counts.items()}
    return {
        address: RankPage(each, takes_header) if each.shape[1] > 1 else ONE
        for address, each in values.items()
    }


def members(*addresses: str) -> Membership:
    return Membership((Pool("p", tuple(Endpoint(address, "p") for address in addresses)),))


def ranks(
    counts: Mapping[str, int],
    *,
    not_ready: Collection[str] = (),
    leaving: Collection[str] = (),
    takes_header: bool = True,
    **pool: Any,
) -> PoolRanks | None:
    settings = parse_settings(
        f"""
pools: [{{name: p, endpoints: [{{address: "{A}"}}], pick_ranks: {pool.get("pick_ranks", "auto")}}}]
listeners: [{{name: l, address: "127.0.0.1:9000", pool: p}}]
""",
        environ={},
    )
    active = [address for address in (A, B) if address not in leaving]
    return ranks_of(
        settings,
        members(*active),
        members(*active, *leaving),
        pages(counts, takes_header=takes_header),
        not_ready,
    ).get("p")


@pytest.mark.parametrize(
    ("counts", "named"),
    [
        ({A: 2, B: 2}, True),
        ({A: 2}, False),
        ({A: 2, B: 1}, None),
        ({A: 2, B: 4}, None),
        ({A: 1, B: 1}, None),
        ({}, None),
    ],
)
def test_ranks_are_named_if_all_show_the_same_number(counts: dict[str, int], named: bool | None) -> None:
    result = ranks(counts)
    assert (result and result.named) == named
    if result is not None:
        assert result.values.shape == (len(RANK_SIGNALS), 2, 2)
        assert np.isnan(result.values[:, 1]).all() == (B not in counts)


def test_an_endpoint_that_gets_nothing_need_not_show_any() -> None:
    result = ranks({A: 2}, not_ready={B})
    assert result is not None
    assert result.named
    unready = ranks({A: 2}, not_ready={A, B})
    assert unready is not None
    assert not unready.named


@pytest.mark.parametrize(("counts", "named"), [({A: 2, B: 2}, True), ({A: 2, B: 2, C: 2}, True)])
def test_a_leaving_endpoint_counts_if_it_shows_ranks(counts: dict[str, int], named: bool) -> None:
    for of_leaving in (counts, {**counts, C: 4}):
        result = ranks(of_leaving, leaving={C})
        assert result is not None
        assert result.named == (named and of_leaving.get(C, 2) == 2)


@pytest.mark.parametrize(
    ("setting", "takes_header", "there"),
    [("auto", True, True), ("auto", False, False), ("always", False, True), ("never", True, False)],
)
def test_the_setting_decides_by_kind(setting: str, takes_header: bool, there: bool) -> None:
    result = ranks({A: 2, B: 2}, takes_header=takes_header, pick_ranks=setting)
    assert (result is not None) == there
