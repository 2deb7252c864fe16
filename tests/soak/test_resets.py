"""A worker's memory stands still however many requests Envoy sends it: `make soak` sends a million.

Envoy ends each of their streams by a reset; streams that end otherwise would show nothing.
"""

from __future__ import annotations

import json
import os
from typing import Final

import pytest

from bench.resets import resets, targets_of
from warmroute.demo.report import exit_code

SECONDS: Final = float(os.environ.get("WARMROUTE_SOAK_SECONDS", "20"))
REQUESTS: Final = max(30_000, int(1_000_000 * SECONDS / 600))

pytestmark = [pytest.mark.slow]


async def test_memory_does_not_grow_with_requests() -> None:
    result = await resets(REQUESTS)
    print(json.dumps(result))
    assert exit_code(targets_of(result)) == 0, result
