"""The index bench fills both sides alike, and its targets can be missed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench import index
from ext_proc.prefix.index import PrefixIndex

if TYPE_CHECKING:
    import pytest


def test_a_short_run_measures_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    """Small as it is, fixed costs weigh more than blocks; so only block counts are judged here."""
    assert index.main(["--blocks", "20000", "--endpoints", "10", "--json"]) in {0, 1}
    result = json.loads(capsys.readouterr().out)
    assert 18_000 <= result["ours"]["blocks_held"] <= 20_000
    assert result["plain_dict"]["blocks_held"] >= 20_000
    for side in ("ours", "plain_dict"):
        assert result[side]["few_512_us"] > 0
    names = {entry["name"] for entry in result["wanted"]}
    assert {"bytes per block", "look-up of 8 blocks, us"} <= names


def test_both_sides_answer_alike() -> None:
    """What is measured is the same work."""
    ours, plain = PrefixIndex(10_000), index.Sets()
    prompts = []
    for address, prompt in index.conversations(3000, 5):
        ours.record(address, prompt)
        plain.record(address, prompt)
        prompts.append(prompt)
    assert all(ours.matched(prompt) == plain.matched(prompt) for prompt in prompts)


def test_a_target_can_be_missed() -> None:
    figures = dict.fromkeys(
        ["bytes_per_block", "few_512_us", "column_hot_512_us", "small_8_us", "record_p99_us"],
        1e9,
    )
    assert not any(entry.met for entry in index.targets_of(figures, {"bytes_per_block": 1.0}))
