"""Engines that sleep get nothing new, unless nobody else is there."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.load import Load, Signal
from xds_server.endpoints.sleepers import Sleepers


def members(**pools: str) -> Membership:
    """Pools by name, one letter an endpoint."""
    return Membership(
        tuple(
            Pool(name, tuple(Endpoint(address, name) for address in letters))
            for name, letters in pools.items()
        )
    )


def load(awake: float | None = None, reachable: float | None = 1.0, at: float = 10.0) -> Load:
    given = {"awake": awake, "reachable": reachable}
    signals = {name: Signal(value, at, "scrape") for name, value in given.items() if value is not None}
    return Load(**signals)


@pytest.mark.parametrize(
    ("loads", "left_out"),
    [
        ({}, ""),
        ({"a": load(), "b": load(), "c": load(1.0)}, ""),
        ({"a": load(0.0), "b": load(1.0), "c": load()}, "a"),
        ({"a": load(0.0), "b": load(0.0), "c": load()}, "ab"),
        ({"a": load(0.0), "b": load(0.0)}, "ab"),
        ({"a": load(0.0), "b": load(0.0), "c": load(0.0)}, ""),
        ({"a": load(0.0), "b": load(0.0), "c": load(1.0, reachable=0.0)}, ""),
        ({"a": load(0.0), "b": load(1.0), "c": load(1.0, reachable=0.0)}, "a"),
        ({"a": load(0.0, at=1.0), "b": load(1.0), "c": load()}, ""),
    ],
)
def test_who_is_left_out(loads: dict[str, Load], left_out: str) -> None:
    """Unknown and stale is awake; the other pool is not asked."""
    pools = members(p="abc", other="d")
    assert Sleepers().update(pools, frozenset(), loads, 5.0) == frozenset(left_out)


def test_those_who_leave_are_no_peers() -> None:
    loads = {"a": load(0.0), "b": load(1.0)}
    assert Sleepers().update(members(p="ab"), frozenset("b"), loads, 5.0) == frozenset()


def test_who_falls_asleep_and_wakes_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sleepers, pools = Sleepers(), members(p="ab")
    told: list[Any] = []
    for awake in (1.0, 0.0, 0.0, 1.0):
        sleepers.update(pools, frozenset(), {"a": load(awake), "b": load(1.0)}, 5.0)
        told.append([record.getMessage().partition(":")[0] for record in caplog.records])
        caplog.clear()
    assert told == [[], ["a sleeps"], [], ["a is not left out for sleeping any more"]]
