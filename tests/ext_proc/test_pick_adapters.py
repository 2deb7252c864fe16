"""Which price loading an adapter once more has, at the borders."""

from __future__ import annotations

import pytest

from ext_proc.pick.adapters import Adapters

ENDPOINTS = 3


@pytest.mark.parametrize(("requests", "uses"), [(2.0, 0.0), (3.0, 1.0), (4.0, 1.0)])
def test_uses_count_from_one_request_an_endpoint(requests: float, uses: float) -> None:
    """One request was for the adapter. Fewer than three requests to three endpoints show nothing."""
    adapters = Adapters(ENDPOINTS, 60.0)
    adapters.note("lora", 0, 0.0, total=1.0)
    assert adapters.uses("lora", requests, 0.0, ENDPOINTS, 0.0) == uses


def test_unknown_adapter_has_no_uses() -> None:
    assert Adapters(ENDPOINTS, 60.0).uses("lora", 100.0, 0.0, ENDPOINTS, 0.0) == 0.0


def test_adapter_counts_as_loaded_from_its_last_request_on() -> None:
    adapters = Adapters(2, 60.0)
    adapters.note("lora", 0, 10.0, total=1.0)
    missing = adapters.missing("lora", since=10.0)
    assert missing is not None
    assert missing.tolist() == [False, True]
    assert adapters.missing("lora", since=10.5) is None


def test_demand_before_an_adapter_is_not_held_against_it() -> None:
    """Its time begins with its first request, which 99 others preceded."""
    adapters = Adapters(1, 60.0)
    adapters.note("lora", 0, 0.0, total=100.0)
    assert adapters.uses("lora", 101.0, 0.0, 1, 0.0) == 1.0
    assert adapters.uses("lora", 100.0, 0.5, 1, 0.0) == 0.5
