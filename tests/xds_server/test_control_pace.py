"""How often workers report, and hear of each other's requests: soon, and not more often than worth it."""

from __future__ import annotations

import asyncio

import uvloop

from ext_proc.follower import REPORT_INTERVAL_SECONDS, Reports, pause_seconds
from fleet.store import Traffic
from xds_server.control.pulse import Pulse, apart_seconds

ADDRESS = "10.0.0.1:80"


def test_changed_counts_are_reported_at_once_and_the_rest_now_and_then() -> None:
    reports = Reports()
    idle, busy = [Traffic(ADDRESS, 0, 5, 5)], [Traffic(ADDRESS, 1, 6, 5)]
    looks = ((0.0, idle), (0.05, idle), (0.1, busy), (0.15, busy))
    assert [reports.due(traffic, now) for now, traffic in looks] == [True, False, True, False]
    assert reports.due(busy, 0.1 + REPORT_INTERVAL_SECONDS)


def test_many_endpoints_and_workers_are_told_of_less_often() -> None:
    """But four times a second at the least."""
    assert pause_seconds(4) < pause_seconds(100) < pause_seconds(1000) == pause_seconds(5000) == 0.25
    assert (
        apart_seconds(4, 4) < apart_seconds(100, 4) < apart_seconds(100, 9) < apart_seconds(1000, 4) == 0.25
    )


async def test_reports_that_come_together_are_told_once() -> None:
    pulse = Pulse()
    for _ in range(5):
        pulse.schedule(3600.0)
    await pulse.beyond(0)
    for _ in range(5):
        pulse.schedule(3600.0)
    # A timer that is due now goes off behind, or together with, a beat that is due already.
    due = asyncio.Event()
    asyncio.get_running_loop().call_later(0, due.set)
    await due.wait()
    assert pulse.beats == 1


async def test_what_is_urgent_is_told_sooner() -> None:
    pulse = Pulse()
    pulse.schedule(0.0)
    await pulse.beyond(0)
    pulse.schedule(3600.0)
    pulse.schedule(0.0)
    pulse.schedule(3600.0)
    await asyncio.wait_for(pulse.beyond(1), 60)


async def test_a_beat_that_came_before_anybody_waited_is_not_lost() -> None:
    pulse = Pulse()
    pulse.schedule(0.0)
    await pulse.beyond(0)
    await pulse.beyond(0)
    pulse.schedule(0.0)
    await pulse.beyond(1)
    assert pulse.beats == 2


def test_reports_together_are_told_once_on_the_services_own_loop() -> None:
    """Uvloop's handle of a moment that has come is none of a timer's."""

    async def beats() -> int:
        pulse = Pulse()
        pulse.schedule(0.0)
        pulse.schedule(0.0)
        await asyncio.wait_for(pulse.beyond(0), 60)
        return pulse.beats

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(beats()) == 1
