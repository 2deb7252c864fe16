"""A recorded prompt's text gives its length and runs back, and bad text is refused."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from fleet.recorded_prompt import MOST_RUNS, decode, encode, run_blocks

HASHES = [Random(1).randrange(2**64) for _ in range(40)]


@pytest.mark.parametrize(("block_bytes", "blocks"), [(16, 128), (256, 8), (2048, 1), (65_536, 1)])
def test_a_run_has_about_2_kb(block_bytes: int, blocks: int) -> None:
    assert run_blocks(block_bytes) == blocks


@pytest.mark.parametrize("count", [0, 1, 7, 8, 40])
def test_text_gives_length_and_runs_back(count: int) -> None:
    runs = HASHES[:count]
    assert decode(encode(12_345, np.array(runs, np.uint64))) == (12_345, runs)


def test_runs_have_a_limit() -> None:
    _, runs = decode(encode(1, np.full(MOST_RUNS + 1, 7, np.uint64)))
    assert len(runs) == MOST_RUNS


@pytest.mark.parametrize(
    "text",
    ["", "12", ":", "a:", "-1:", "\uff11:", "1:?", "1:AAAA", "9" * 13 + ":", "1:" + "A" * 99_999],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(text)
