"""What is done in stages lets others go on between them, and gives way to what is newer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from xds_server.ticker import Staged

if TYPE_CHECKING:
    from collections.abc import Iterator


class Work:
    """Three stages, and what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.staged = Staged(self.stages)
        self.runs = 0

    def stages(self) -> Iterator[None]:
        self.runs += 1
        run = self.runs
        for stage in "abc":
            self.done.append(f"{run}{stage}")
            yield


async def test_others_go_on_between_stages() -> None:
    work = Work()

    async def other() -> None:
        for number in range(2):
            work.done.append(f"other {number}")
            await asyncio.sleep(0)

    await asyncio.gather(work.staged.run(), other())
    assert work.done == ["1a", "other 0", "1b", "other 1", "1c"]
    work.staged.now()
    assert work.done[5:] == ["2a", "2b", "2c"]


async def test_a_long_stage_is_followed_by_as_long_a_rest() -> None:
    now, others = 0.0, 0

    def stages() -> Iterator[None]:
        nonlocal now
        for _ in range(2):
            now += 0.05
            yield

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await Staged(stages, lambda: now).run()
    task.cancel()
    assert others > 10, "many passes, not one a stage"


async def test_what_is_under_way_ends_where_it_is_done_anew() -> None:
    """An operator's weight is computed at once: numbers from before would undo it."""
    work = Work()
    task = asyncio.create_task(work.staged.run())
    await asyncio.sleep(0)
    work.staged.now()
    await task
    assert work.done == ["1a", "2a", "2b", "2c"]
    await work.staged.run()
    assert work.done[4:] == ["3a", "3b", "3c"]


async def test_a_fault_is_the_callers() -> None:
    def stages() -> Iterator[None]:
        yield
        raise ValueError("no weights")

    staged = Staged(stages)
    for run in (staged.run, staged.run):
        with pytest.raises(ValueError, match="no weights"):
            await run()
