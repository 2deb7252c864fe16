"""How often workers report, and receive each other's counts: soon, at bounded cost."""

from __future__ import annotations

import asyncio

import uvloop

from ext_proc.follower import REPORT_INTERVAL_SECONDS, Reports, pause_seconds
from fleet.store import Traffic
from fleet.token_bucket import BURST, TokenBucket
from xds_server.control.pulse import Pulse, apart_seconds

ADDRESS = "10.0.0.1:80"


def test_changed_counts_are_reported_at_once_others_rarely() -> None:
    reports = Reports()
    idle, busy = [Traffic(ADDRESS, 0, 5, 5)], [Traffic(ADDRESS, 1, 6, 5)]
    looks = ((0.0, idle), (0.05, idle), (0.1, busy), (0.15, busy))
    assert [reports.starts(traffic, now) for now, traffic in looks] == [True, False, True, False]
    assert reports.starts(busy, 0.1 + REPORT_INTERVAL_SECONDS)


def test_counts_of_large_fleets_are_sent_less_often() -> None:
    """But four times a second at the least."""
    assert pause_seconds(4) < pause_seconds(100) < pause_seconds(1000) == pause_seconds(5000) == 0.25
    assert (
        apart_seconds(4, 4) < apart_seconds(100, 4) < apart_seconds(100, 9) < apart_seconds(1000, 4) == 0.25
    )


def test_few_events_go_at_once_and_many_evenly_apart() -> None:
    bucket, times = TokenBucket(), []
    for _ in range(BURST + 3):
        times.append(bucket.at(10.0, 0.5))
        bucket.take(times[-1], 0.5)
    assert times == [10.0] * BURST + [10.5, 11.0, 11.5]
    assert bucket.at(60.0, 0.5) == 60.0


async def test_simultaneous_reports_are_sent_once() -> None:
    pulse = Pulse()
    for beats in range(BURST):
        for _ in range(5):
            pulse.schedule(3600.0)
        await pulse.beyond(beats)
    for _ in range(5):
        pulse.schedule(3600.0)
    # A timer that is due now goes off behind, or together with, a beat that is due already.
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0, passed.set)
    await passed.wait()
    assert pulse.beats == BURST


async def test_urgent_counts_are_sent_sooner() -> None:
    pulse = Pulse()
    for beats in range(BURST):
        pulse.schedule(3600.0)
        await pulse.beyond(beats)
    pulse.schedule(3600.0)
    pulse.schedule(0.0)
    pulse.schedule(3600.0)
    await asyncio.wait_for(pulse.beyond(BURST), 60)


async def test_a_beat_that_came_before_anybody_waited_is_not_lost() -> None:
    pulse = Pulse()
    pulse.schedule(0.0)
    await pulse.beyond(0)
    await pulse.beyond(0)
    pulse.schedule(0.0)
    await pulse.beyond(1)
    assert pulse.beats == 2


def test_simultaneous_reports_are_sent_once_on_the_services_loop() -> None:
    """Uvloop's handle of a moment that has come is none of a timer's."""

    async def beats() -> int:
        pulse = Pulse()
        pulse.schedule(0.0)
        pulse.schedule(0.0)
        await asyncio.wait_for(pulse.beyond(0), 60)
        return pulse.beats

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(beats()) == 1
