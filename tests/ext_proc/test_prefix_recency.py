"""The order of an endpoint's blocks takes memory by what it has now."""

from __future__ import annotations

from ext_proc.prefix.recency import Recency


def test_memory_falls_with_the_blocks() -> None:
    """Room for 4,000 blocks is above twice what 900 blocks need."""
    recency = Recency()
    recency.touch(range(1, 4001), 4000)
    most = recency.nbytes
    recency.drop_oldest(3100)
    for number in range(20):
        recency.touch(range(10_000 + 150 * number, 10_150 + 150 * number), 150)
        recency.drop_oldest(150)
    assert recency.size == 900
    assert recency.nbytes < most // 2
