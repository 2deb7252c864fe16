"""Turns: pieces of work in the order of arrival, one slice of them in a pass of the loop."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from fleet.service.turns import SLICE_SECONDS, Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Site:
    """Turns with a clock that only pieces move, next to a task that counts the passes of the loop."""

    def __init__(self, rest: float = 0.0) -> None:
        self.now = 0.0
        self.turns = Turns(lambda: self.now, rest)
        self.passes = 0
        self.ran = list[tuple[Any, int]]()
        """Names of pieces, each with the pass in which it ran."""

    async def count(self) -> None:
        while True:
            self.passes += 1
            await asyncio.sleep(0)

    def piece(self, name: Any, seconds: float) -> Any:
        def run() -> Any:
            self.ran.append((name, self.passes))
            self.now += seconds
            return name

        return run


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    counter = asyncio.create_task(site.count())
    yield site
    counter.cancel()


async def test_first_piece_runs_at_once(site: Site) -> None:
    work = site.turns.run(site.piece("a", 0.0))
    with pytest.raises(StopIteration, match="a"):
        work.send(None)


async def test_turns_keep_order_and_the_loop_runs_between_slices(site: Site) -> None:
    async def peer(name: int) -> None:
        for _ in range(5):
            await site.turns.run(site.piece(name, 1.0))  # More than a slice.

    await asyncio.gather(*map(peer, range(3)))
    # The first piece of 0 runs at once, so its second one comes before the others' first.
    assert [name for name, _ in site.ran] == [0, *([0, 1, 2] * 4), 1, 2]
    assert len({number for _, number in site.ran}) == 15


async def test_a_pass_runs_as_many_pieces_as_fit_in_a_slice(site: Site) -> None:
    pieces = [site.turns.run(site.piece(n, SLICE_SECONDS / 4)) for n in range(40)]
    assert await asyncio.gather(*pieces) == list(range(40))
    numbers = [number for _, number in site.ran]
    assert numbers == sorted(numbers)
    assert [numbers.count(number) for number in dict.fromkeys(numbers)] == [4] * 10


async def test_slice_counts_work_and_not_time(site: Site) -> None:
    before = site.passes
    for name in range(3):
        await site.turns.run(site.piece(name, SLICE_SECONDS / 4))
        site.now += 1.0
    assert site.passes == before


async def test_piece_raises_where_it_was_called_and_leaves_no_cycle(site: Site) -> None:
    class Content:
        pass

    async def fail() -> None:
        content = Content()
        contents.append(weakref.ref(content))

        def piece(content: Content = content) -> None:
            site.now += 1.0
            raise ValueError(type(content).__name__)

        del content
        await site.turns.run(piece)

    contents = list[weakref.ref[Content]]()
    gc.disable()
    try:
        for outcome in await asyncio.gather(*(fail() for _ in range(3)), return_exceptions=True):
            assert isinstance(outcome, ValueError)
        del outcome
        await asyncio.sleep(0)
        assert [content() for content in contents] == [None] * 3
    finally:
        gc.enable()


async def test_cancelled_caller_runs_nothing(site: Site) -> None:
    tasks = [asyncio.create_task(site.turns.run(site.piece(n, 1.0))) for n in range(4)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert [name for name, _ in site.ran] == [0, 1, 3]


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit])
async def test_error_that_is_no_exception_reaches_its_caller(site: Site, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    async def caller() -> bool:
        try:
            await site.turns.run(fail)
        except error:
            return True
        return False

    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(
            site.turns.run(site.piece("a", 1.0)), caller(), site.turns.run(site.piece("b", 0.0))
        )
    assert outcomes == ["a", True, "b"]


async def test_piece_that_cancels_its_caller_stops_no_other(site: Site) -> None:
    tasks = list[asyncio.Task[Any]]()
    pieces = [site.piece("a", 1.0), lambda: tasks[1].cancel(), site.piece("c", 0.0)]
    tasks += [asyncio.create_task(site.turns.run(piece)) for piece in pieces]
    async with asyncio.timeout(60):
        await asyncio.wait(tasks)
    assert tasks[1].cancelled()
    assert [name for name, _ in site.ran] == ["a", "c"]


async def test_cancelled_iterator_goes_on_where_it_stopped(site: Site) -> None:
    """Other steps and pieces keep their places in the queue meanwhile."""
    work = (site.piece(n, SLICE_SECONDS)() for n in range(4))

    async def step(name: str) -> None:
        await site.turns.step()
        site.piece(name, 0.0)()

    cancelled = asyncio.create_task(site.turns.run_all(work))
    steps = [asyncio.create_task(step(name)) for name in "ab"]
    await asyncio.sleep(0)
    cancelled.cancel()
    again = asyncio.create_task(site.turns.run_all(work))
    steps[0].cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([cancelled, *steps, again])
    assert cancelled.cancelled()
    assert steps[0].cancelled()
    assert again.result() == [1, 2, 3]
    assert [name for name, _ in site.ran] == [0, "b", 1, 2, 3]


async def test_one_step_goes_on_in_a_pass(site: Site) -> None:
    async def go(name: int) -> None:
        await site.turns.step()
        site.piece(name, 0.0)()

    await asyncio.gather(*map(go, range(20)))
    assert [name for name, _ in site.ran] == list(range(20))
    assert len({number for _, number in site.ran}) == 20


async def test_steps_and_pieces_wait_in_one_queue(site: Site) -> None:
    async def step(name: str) -> None:
        await site.turns.step()
        site.piece(name, 0.0)()

    await asyncio.gather(
        step("a"), site.turns.run(site.piece("b", 0.0)), step("c"), site.turns.run(site.piece("d", 0.0))
    )
    # The piece in front of a step ends its pass, in which only the step's own task goes on.
    assert [name for name, _ in site.ran] == ["a", "b", "c", "d"]


async def test_rest_lasts_as_long_as_the_work_before(monkeypatch: pytest.MonkeyPatch) -> None:
    site, rests = Site(rest=2.0), list[float]()
    loop = asyncio.get_running_loop()

    def call_later(seconds: float, callback: Any) -> Any:
        rests.append(seconds)
        return loop.call_soon(callback)

    monkeypatch.setattr(loop, "call_later", call_later)

    async def step(seconds: float) -> None:
        await site.turns.step()
        site.now += seconds

    await asyncio.gather(step(3.0), step(5.0), site.turns.run(site.piece("a", 7.0)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    site.now += 1000.0
    await step(1.0)
    assert rests == [6.0, 10.0, 14.0]


async def test_iterator_takes_a_slice_of_each_pass(site: Site) -> None:
    work = (site.piece(n, SLICE_SECONDS / 4)() for n in range(10))
    assert await site.turns.run_all(work) == list(range(10))
    numbers = [number for _, number in site.ran]
    assert [numbers.count(number) for number in dict.fromkeys(numbers)] == [4, 4, 2]


async def test_iterator_leaves_the_slice_to_others_in_order(site: Site) -> None:
    work = (site.piece("long", SLICE_SECONDS)() for _ in range(3))
    await asyncio.gather(site.turns.run_all(work), site.turns.run(site.piece("short", 0.0)))
    assert [name for name, _ in site.ran] == ["long", "long", "short", "long"]
