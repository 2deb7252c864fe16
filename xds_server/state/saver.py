"""Writes the last good state to disk as it changes, off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter

from fleet.cause import cause_of
from xds_server.state.last_good import REFUSALS, LastGood, RefusedError, read, state_path, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from fleet.settings import Settings

logger = logging.getLogger(__name__)

SAVE_SECONDS: Final = 3.0
"""Least time between two writes. A killed server loses no more than this."""
LOAD_SECONDS: Final = 3.0
"""Longest time that a start waits for the disk: a network file system may never answer."""


class Saver:
    """Reads the state at start, then writes the newest one that was offered. One event loop."""

    def __init__(
        self,
        registry: CollectorRegistry,
        wall: Callable[[], float] = time.time,
        save_seconds: float = SAVE_SECONDS,
        load_seconds: float = LOAD_SECONDS,
    ) -> None:
        self._wall = wall
        self._save_seconds = save_seconds
        self._load_seconds = load_seconds
        self._offered: tuple[LastGood, Settings] | None = None
        self._on_disk: LastGood | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing = ""
        self._refused = Counter(
            "warmroute_last_good_refused",
            "Files with a last good state that were not used, by reason",
            ["reason"],
            registry=registry,
        )
        for reason in REFUSALS:
            self._refused.labels(reason)
        self._errors = Counter(
            "warmroute_last_good_write_errors",
            "Writes of the last good state that failed",
            registry=registry,
        )

    async def load(self, settings: Settings) -> LastGood | None:
        """Read the last good state; None: there is none that can be used."""
        path = state_path(settings)
        if path is None:
            return None
        try:
            state = await self._read(path, settings)
        except RefusedError as error:
            self._refused.labels(error.reason).inc()
            logger.warning("%s: the last good state is not used: %s", path, error)
            return None
        self._on_disk = state
        return state

    async def _read(self, path: Path, settings: Settings) -> LastGood | None:
        try:
            async with asyncio.timeout(self._load_seconds):
                return await asyncio.to_thread(read, path, settings)
        except TimeoutError:
            raise RefusedError("unreadable", f"not read in {self._load_seconds:g} s") from None

    def start(self) -> None:
        """Begin to write offered states."""
        self._task = asyncio.create_task(self._save_for_ever(), name="save last good state")

    def offer(self, state: LastGood, settings: Settings) -> None:
        """Write a state soon, unless a newer one is offered before."""
        self._offered = state, settings
        self._wake.set()

    async def close(self) -> None:
        """Write the newest state, and stop."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        await self._save()

    async def _save_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._save():
                self._wake.set()
            await asyncio.sleep(self._save_seconds)

    async def _save(self) -> bool:
        if self._offered is None:
            return True
        state, settings = self._offered
        path = state_path(settings)
        if path is None or state == self._on_disk:
            return True
        try:
            await asyncio.to_thread(write, path, replace(state, saved_at=self._wall()), settings)
        except OSError as error:
            self._errors.inc()
            if self._failing != str(error):
                logger.warning(
                    "the last good state cannot be written to xds.state_path %s: %s", path, cause_of(error)
                )
            self._failing = str(error)
            return False
        self._on_disk, self._failing = state, ""
        return True
