"""Turns on the event loop: the work of all peers of one kind gets a bounded part of each pass.

Slices
    Work that shares a `Turns` runs in pieces. A piece is a plain function and runs to its end. While less
    than a slice was used since the last pass that spent one, a piece runs at once, inline. The piece that
    spends the slice ends it: later pieces queue, and the next pass of the loop begins a slice and runs them
    in the order of arrival, as far as that slice goes, without a switch of tasks between them. So the work
    takes at most a slice plus the longest piece of any pass, and costs two readings of the clock while
    nothing waits. Long work is an iterator; a piece takes as many of its items as the slice has room for.
Steps
    Work that goes on in its own task, such as a connection that is opened, cannot be such a function. Its
    task waits in the same queue for its `step`. A pass has at most one step in addition to its slice.
Rest
    A slice or step that took a time is followed by `rest` times as long without one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLICE_SECONDS: Final = 0.002

T = TypeVar("T")


class Turns:
    """Runs pieces of work in the order of arrival; together they get one slice in a pass of the loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, rest: float = 0.0) -> None:
        self._clock = clock
        self._rest = rest
        self._used = 0.0
        """Of the slice, in seconds."""
        self._spent = False
        """The slice is over, and the next one is scheduled."""
        self._queue: deque[tuple[Callable[[], Any] | None, asyncio.Future[Any]]] = deque()
        """Pieces, None for a step, and the futures of their outcomes."""

    @property
    def free(self) -> bool:
        """Whether a piece runs at once."""
        return not self._spent

    async def run(self, piece: Callable[[], T]) -> T:
        """Run a piece of work in its turn; return or raise what it does."""
        if not self._spent:
            return self.run_now(piece)
        value, error = await self._turn(piece)
        if error is None:
            return value  # type: ignore[no-any-return] # it is the piece's
        try:
            raise error
        finally:
            del error  # It refers to this frame: the cycle would keep a peer's last message.

    async def run_all(self, work: Iterator[T]) -> list[T]:
        """Take every item of an iterator, by as many pieces as its work needs slices."""
        items: list[T] = []
        while not await self.run(partial(self._take_some, work, items)):
            pass
        return items

    def _take_some(self, work: Iterator[T], items: list[T]) -> bool:
        """Move items for the rest of the slice; return whether the iterator has ended."""
        began = self._clock()
        for item in work:
            items.append(item)
            if self._used + self._clock() - began >= SLICE_SECONDS:
                return False
        return True

    async def step(self) -> None:
        """Wait for a pass; the caller's work up to its next wait is the only step of that pass."""
        if not self._spent:
            self._spent = True
            asyncio.get_running_loop().call_soon(self._begin_slice)
        await self._turn(None)

    def _turn(self, piece: Callable[[], Any] | None) -> asyncio.Future[Any]:
        outcome = asyncio.get_running_loop().create_future()
        self._queue.append((piece, outcome))
        return outcome

    def run_now(self, piece: Callable[[], T]) -> T:
        """Run a piece of work while turns are `free`; return or raise what it does."""
        began = self._clock()
        try:
            return piece()
        finally:
            self._used += self._clock() - began
            if self._used >= SLICE_SECONDS:
                self._end_slice()

    def _outcome(self, piece: Callable[[], T]) -> tuple[T | None, BaseException | None]:
        try:
            return self.run_now(piece), None
        except BaseException as error:  # noqa: BLE001 - raised again where the piece came from
            return None, error

    def _end_slice(self) -> None:
        self._spent = True
        asyncio.get_running_loop().call_soon(self._pause, self._clock() - self._used)

    def _pause(self, began: float) -> None:
        """In the next pass: begin a slice, after a rest."""
        if self._rest:
            seconds = self._rest * (self._clock() - began)
            asyncio.get_running_loop().call_later(seconds, self._begin_slice)
        else:
            self._begin_slice()

    def _begin_slice(self) -> None:
        self._used, self._spent = 0.0, False
        while self._queue and not self._spent:
            piece, outcome = self._queue.popleft()
            if outcome.done():
                continue  # The caller was cancelled.
            if piece is None:
                outcome.set_result(None)
                self._end_slice()
            else:
                result = self._outcome(piece)
                if not outcome.done():  # The piece may have cancelled its caller.
                    outcome.set_result(result)
                del result  # An error refers to this frame: as above.
            del piece, outcome
