"""Results are remembered by the identity of their arguments, on any thread."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from fleet.identity import cached_by_identity


@cached_by_identity
def boxed(value: object) -> list[object]:
    return [value]


def test_two_newest_results_are_remembered() -> None:
    first, second, third = object(), object(), object()
    results = boxed(first), boxed(second)
    assert (boxed(first), boxed(second)) == results
    assert boxed(first) is results[0]
    boxed(third)
    assert boxed(second) is results[1]
    assert boxed(first) is not results[0]


def test_threads_may_call_at_the_same_time() -> None:
    """A reload checks its settings on a thread while ticks go on."""

    def call_often(_: int) -> bool:
        return all(boxed(value)[0] is value for value in (object() for _ in range(20_000)))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(call_often, range(2)))
    finally:
        sys.setswitchinterval(before)
