"""The log names Envoys that come and go, and says when none does; a whole fleet does not flood it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from fleet.endpoint import Locality
from xds_server.discovery.arrivals import MISSED_AFTER_SECONDS, MOST_LINES, PERIOD_SECONDS, Arrivals
from xds_server.discovery.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = "unix:/run/x.sock"


class Site:
    """Arrivals on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.arrivals = Arrivals(ADDRESS, lambda: self.now)

    def opened(self, node: str, peer: str = "ipv4:10.0.0.1:4711") -> None:
        self.arrivals.opened(Client(node, "edge", Locality()), peer)

    def closed(self, node: str) -> None:
        self.arrivals.closed(Client(node, "edge", Locality()), ())


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO)
    return lambda: [record.message for record in caplog.records]


def test_node_is_logged_once_over_all_its_streams(site: Site, lines: Callable[[], list[str]]) -> None:
    site.opened("a")
    site.opened("a")
    site.closed("a")
    assert site.arrivals.connected == 1
    site.closed("a")
    assert lines() == [
        "Envoy a (cluster edge) has connected from 10.0.0.1:4711: 1 connected",
        "Envoy a (cluster edge) has left: 0 connected",
    ]


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        ("unix:", "from the Unix socket:"),
        ("unix:/tmp/x", "from the Unix socket:"),
        ("ipv6:%5B::1%5D:5", "from [::1]:5:"),
    ],
)
def test_where_it_comes_from(site: Site, lines: Callable[[], list[str]], peer: str, shown: str) -> None:
    site.opened("a", peer)
    assert shown in lines()[0]


def test_a_node_does_not_fill_the_log(site: Site, lines: Callable[[], list[str]]) -> None:
    """That it writes no lines of its own is the log's to see to."""
    site.opened("x" * 1000)
    (line,) = lines()
    assert len(line) < 250


def test_a_storm_is_summed_up(site: Site, lines: Callable[[], list[str]]) -> None:
    for number in range(500):
        site.opened(str(number))
    assert len(lines()) == MOST_LINES
    site.arrivals.look()
    assert len(lines()) == MOST_LINES, "its period is not over"
    for number in range(10):
        site.closed(str(number))
    site.now += PERIOD_SECONDS
    site.arrivals.look()
    more = f"{500 - MOST_LINES} more Envoys have connected and 10 more have left: 490 connected"
    assert lines()[-1] == more
    site.opened("late")
    assert len(lines()) == MOST_LINES + 2


def test_missing_envoys_are_logged_once(site: Site, lines: Callable[[], list[str]]) -> None:
    site.arrivals.look()
    site.now += MISSED_AFTER_SECONDS - 1
    site.arrivals.look()
    assert lines() == []
    site.now += 1
    for _ in range(3):
        site.arrivals.look()
        site.now += 100
    (line,) = lines()
    assert f"no Envoy has connected to xds.address {ADDRESS}" in line
    assert "warmroute bootstrap" in line


def test_who_has_come_and_gone_was_not_missed(site: Site, lines: Callable[[], list[str]]) -> None:
    site.arrivals.look()
    site.opened("a")
    site.closed("a")
    site.now += 10 * MISSED_AFTER_SECONDS
    site.arrivals.look()
    assert not any("no Envoy" in line for line in lines())


def test_a_stream_that_never_said_who_it_is_leaves_nothing(site: Site) -> None:
    site.closed("a")
    assert site.arrivals.connected == 0
