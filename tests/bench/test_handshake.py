"""Handshakes are measured as what they are; what a connection costs by itself is taken off."""

from __future__ import annotations

import pytest

from bench.handshake import BARE, CHEAPER, KINDS, Cost, cheaper, measure, result_of, targets_of


async def test_a_short_run_has_every_kind() -> None:
    """With too few connections to measure costs; the bench itself counts them at Envoy."""
    costs = await measure(3)
    assert set(costs) == {BARE, *(f"{name}.{kind}" for name in CHEAPER for kind in KINDS)}
    assert all(cost.connections >= 3 for cost in costs.values())
    assert all(cost.cpu_seconds > 0 for cost in costs.values())
    assert result_of(costs)["kinds"][BARE]["connections"] >= 3


def test_what_a_connection_costs_is_no_cost_of_tls() -> None:
    costs = {f"{name}.{kind}": Cost(10, 1.0, 0.01) for name in CHEAPER for kind in KINDS}
    costs["rsa_2048.tls1_2.full"] = Cost(10, 1.0, 0.09)
    costs[BARE] = Cost(100, 1.0, 0.05)
    assert cheaper(costs, "rsa_2048.tls1_2") == pytest.approx(17)
    met = {entry.name: entry.met for entry in targets_of(costs)}
    assert met.pop("rsa_2048_tls1_2_cpu_full_over_resumed")
    assert met
    assert not any(met.values())


def test_a_resumed_handshake_that_costs_nothing_is_no_figure() -> None:
    costs = {f"{name}.{kind}": Cost(10, 1.0, 0.01) for name in CHEAPER for kind in KINDS}
    costs[BARE] = Cost(10, 1.0, 0.02)
    assert cheaper(costs, "rsa_2048.tls1_2") is None
