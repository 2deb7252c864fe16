"""A recorded prompt's text gives its length and runs back, and bad text is refused."""

from __future__ import annotations

from random import Random

import pytest

from fleet.recorded_prompt import MOST_RUNS, decode, encode

HASHES = [Random(1).randrange(2**64) for _ in range(40)]


@pytest.mark.parametrize(("block_bytes", "step"), [(16, 128), (256, 8), (2048, 1), (65_536, 1)])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 40])
def test_text_gives_length_and_runs_back(count: int, block_bytes: int, step: int) -> None:
    blocks = HASHES[:count]
    assert decode(encode(12_345, blocks, block_bytes)) == (12_345, blocks[step - 1 :: step])


def test_equal_prefixes_give_equal_runs() -> None:
    """A run is named by the chained hash of its last block, which stands for all before it."""
    _, runs = decode(encode(1, HASHES[:21], 1024))
    _, longer = decode(encode(1, HASHES, 1024))
    assert len(runs) == 10
    assert longer[:10] == runs


def test_runs_have_a_limit() -> None:
    _, runs = decode(encode(1, [7] * (MOST_RUNS + 1), 65_536))
    assert len(runs) == MOST_RUNS


@pytest.mark.parametrize(
    "text",
    ["", "12", ":", "a:", "-1:", "\uff11:", "1:?", "1:AAAA", "9" * 13 + ":", "1:" + "A" * 99_999],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(text)
