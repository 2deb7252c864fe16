"""Sleeping engines get no new requests while others serve."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from testing.signals import Load, Signal, table_of
from xds_server.endpoints.fitness import Sleepers, asleep_of, unfit_of

NOBODY: frozenset[str] = frozenset()


def members(**pools: str) -> Membership:
    """Pools by name, one letter an endpoint."""
    return Membership(
        tuple(
            Pool(name, tuple(Endpoint(address, name) for address in letters))
            for name, letters in pools.items()
        )
    )


def load(
    awake: float | None = None,
    reachable: float | None = 1.0,
    at: float = 10.0,
    stalled: float | None = None,
) -> Load:
    values = {"awake": awake, "reachable": reachable, "stalled": stalled}
    signals = {name: Signal(value, at, "scrape") for name, value in values.items() if value is not None}
    return Load(**signals)


def sleeping(
    pools: Membership,
    loads: dict[str, Load],
    leaving: frozenset[str] = NOBODY,
    not_ready: frozenset[str] = NOBODY,
) -> frozenset[str]:
    """What is older than 5 is unknown."""
    signals = table_of(pools.addresses, loads)
    unfit = unfit_of(signals, signals, not_ready, 5.0)
    return Sleepers().update(pools, leaving, asleep_of(signals, 5.0), unfit)


@pytest.mark.parametrize(
    ("loads", "out"),
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
        ({"a": load(0.0), "b": load(0.0), "c": load(1.0, stalled=1.0)}, ""),
        ({"a": load(0.0), "b": load(1.0), "c": load(1.0, stalled=1.0)}, "a"),
        ({"a": load(0.0), "b": load(1.0), "c": load(1.0, reachable=0.0, at=1.0)}, "a"),
    ],
)
def test_sleeping_engines_are_excluded(loads: dict[str, Load], out: str) -> None:
    """Unknown and stale is awake; the other pool does not count."""
    pools = members(p="abc", other="d")
    assert sleeping(pools, loads) == frozenset(out)


def test_one_that_is_not_ready_is_nobody_who_would_serve() -> None:
    pools, loads = members(p="abc"), {"a": load(0.0), "b": load(1.0), "c": load()}
    assert sleeping(pools, loads, not_ready=frozenset("b")) == frozenset("a")
    assert sleeping(pools, loads, not_ready=frozenset("bc")) == frozenset()


def test_those_who_leave_are_no_peers() -> None:
    loads = {"a": load(0.0), "b": load(1.0)}
    assert sleeping(members(p="ab"), loads, leaving=frozenset("b")) == frozenset()


def test_falling_asleep_and_waking_log_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sleepers, pools = Sleepers(), members(p="ab")
    lines: list[Any] = []
    for awake in (1.0, 0.0, 0.0, 1.0):
        signals = table_of(pools.addresses, {"a": load(awake), "b": load(1.0)})
        sleepers.update(pools, NOBODY, asleep_of(signals, 5.0), NOBODY)
        lines.append([record.getMessage().partition(":")[0] for record in caplog.records])
        caplog.clear()
    assert lines == [[], ["a is asleep (vllm"], [], ["a gets requests again"]]
