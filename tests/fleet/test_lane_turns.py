"""The turns of a server's connections, on a clock of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet.lane.turns import FairTurns
from fleet.service.turns import SLICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """A clock, and passes of a loop."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._next: list[Callable[[], None]] = []
        self.turns = FairTurns(lambda: self.seconds, self._next.append)

    def run(self) -> bool:
        """Run a pass; return whether there was something to do."""
        steps, self._next[:] = list(self._next), []
        for step in steps:
            step()
        return bool(steps)


class Worker:
    """Has pieces of equal time."""

    def __init__(self, loop: Loop, seconds: float, pieces: int = 0) -> None:
        self._loop, self._seconds, self.pieces = loop, seconds, pieces
        self.used = 0.0
        self.turns = 0

    @property
    def behind(self) -> bool:
        return self.pieces > 0

    def work_piece(self) -> None:
        self.pieces -= 1
        self._loop.seconds += self._seconds

    def after_turn(self) -> None:
        self.turns += 1


def test_pieces_run_at_once_while_the_slice_lasts() -> None:
    loop = Loop()
    worker = Worker(loop, SLICE_SECONDS / 4, pieces=6)
    assert loop.turns.work(worker)
    assert (worker.pieces, worker.turns) == (2, 0)
    assert loop.run()
    assert (worker.pieces, worker.turns) == (0, 2)
    assert not loop.run()


@pytest.mark.parametrize("floods", [1, 8, 100])
def test_floods_delay_a_quiet_connection_by_a_piece(floods: int) -> None:
    """Each time that it has something to do, whatever the number of floods."""
    loop, dear = Loop(), 2 * SLICE_SECONDS
    for _ in range(floods):
        assert loop.turns.work(Worker(loop, dear, pieces=1000))
    quiet = Worker(loop, SLICE_SECONDS / 100)
    for _ in range(20):
        for _ in range(floods):
            loop.run()
        quiet.pieces = 2
        began = loop.seconds
        loop.turns.work(quiet)
        while quiet.pieces:
            loop.run()
        assert loop.seconds - began < 2 * dear


def test_busy_connections_share_the_time() -> None:
    """Although the pieces of one are ten times as long."""
    loop = Loop()
    short, long = Worker(loop, 0.001, pieces=10_000), Worker(loop, 0.01, pieces=10_000)
    loop.turns.work(short)
    loop.turns.work(long)
    while loop.seconds < 5:
        loop.run()
    assert 10_000 - short.pieces == pytest.approx(2_500, rel=0.1)
