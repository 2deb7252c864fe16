"""Turns of a server's connections on the event loop, by the time that each has used. Without I/O.

A connection works in pieces. While all pieces together have used less than a slice, they run at once, over
several passes of the loop if they are short. The piece that spends the slice ends it: the next pass begins
another one. What is left then waits, and each slice first runs the piece with the smallest start

    start = max(the largest start so far - CREDIT_SECONDS, the connection's previous start + its time)

(start-time fair queueing: Goyal, Vin, Cheng 1996; the credit is an addition). So a connection that uses
less than its equal part comes before all that use more: many floods delay a quiet client by a slice and a
piece, not by a piece of each. New connections have no credit, otherwise a flood would open many.

`fleet.service.turns` has turns in the order of arrival, for work that a caller awaits.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from fleet.service.turns import SLICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


CREDIT_SECONDS: Final = 2 * SLICE_SECONDS
"""Of work that a connection gains by being quiet: some requests."""


class Worker(Protocol):
    """A connection with work."""

    used: float
    """Start and time of its last piece, added up, in seconds; at first `FairTurns.start`."""

    @property
    def behind(self) -> bool:
        """Whether there is work."""

    def work_piece(self) -> None:
        """Do some of it."""

    def after_turn(self) -> None:
        """A piece has run in its turn."""


class FairTurns:
    """Runs the pieces of all connections; a piece may not raise."""

    def __init__(self, clock: Callable[[], float], soon: Callable[[Callable[[], None]], object]) -> None:
        """`clock` is the thread's CPU time, so that nobody pays for a busy host.

        `soon` runs a function in the next pass of the loop.
        """
        self._clock = clock
        self._soon = soon
        self._slice = 0.0
        """What is used of it."""
        self._over = False
        """The slice is used up, and the next one is scheduled."""
        self.start = 0.0
        """The largest one so far."""
        self._queue: list[tuple[float, int, Worker]] = []
        self._numbers = count()

    def work(self, worker: Worker) -> bool:
        """Do a connection's work; return whether some is left, which is done in turns."""
        began = 0.0 if self._over else self._clock()
        while worker.behind:
            if self._over:
                self._wait(worker)
                return True
            began = self._run(worker, began)
        return False

    def _run(self, worker: Worker, began: float) -> float:
        """Run a piece; return the time."""
        start = self._start_of(worker)
        self.start = max(self.start, start)
        worker.work_piece()
        now = self._clock()
        seconds = now - began
        worker.used = start + seconds
        self._slice += seconds
        if self._slice >= SLICE_SECONDS and not self._over:
            self._over = True
            self._soon(self._next_slice)
        return now

    def _next_slice(self) -> None:
        self._slice, self._over = 0.0, False
        now = self._clock()
        while self._queue and not self._over:
            _, _, worker = heappop(self._queue)
            if worker.behind:  # Its work may have been dropped.
                now = self._run(worker, now)
            if worker.behind:
                self._wait(worker)
            worker.after_turn()

    def _start_of(self, worker: Worker) -> float:
        return max(self.start - CREDIT_SECONDS, worker.used)

    def _wait(self, worker: Worker) -> None:
        heappush(self._queue, (self._start_of(worker), next(self._numbers), worker))
