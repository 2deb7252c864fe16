"""Taking over changed settings without a restart: file watch and SIGHUP; a broken file changes nothing."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

import watchfiles
from prometheus_client import Counter

from fleet.errors import SettingsError
from fleet.settings import Settings, load_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)

RESTART_ONLY = (
    ("xds", "address"),
    ("ext_proc", "address"),
    ("control", "address"),
    ("admin", "address"),
    ("admin", "ext_proc_address"),
    ("limits", "xds_streams"),
)
"""Settings that are bound at start-up; a change is noted and waits for the next start."""


class SettingsWatch:
    """Reloads the settings file when it changes or on SIGHUP."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        apply: Callable[[Settings], Awaitable[None]],
        registry: CollectorRegistry,
    ) -> None:
        self._path = path
        self._settings = settings
        self._apply = apply
        self._wake = asyncio.Event()
        self._signature = _signature(path)
        self._reloads = Counter(
            "warmroute_settings_reloads_total",
            "Changed settings files by outcome",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("applied", "refused", "failed"):
            self._reloads.labels(outcome)

    async def run(self) -> None:
        """Watch until cancelled."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._wake.set)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_file())
            tasks.create_task(self._reload_when_woken())

    async def _watch_file(self) -> None:
        # The directory, not the file: editors and Kubernetes replace the file or a link to it.
        directory = self._path.absolute().parent
        async for _ in watchfiles.awatch(directory, recursive=False, step=50, debounce=200):
            # Other files change there too, our own log perhaps among them.
            signature = _signature(self._path)
            if signature != self._signature:
                self._signature = signature
                self._wake.set()

    async def _reload_when_woken(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.reload()

    async def reload(self) -> None:
        """Read the file once and take it over if it is valid and differs."""
        try:
            settings = await asyncio.to_thread(load_settings, self._path)
        except SettingsError as error:
            self._reloads.labels("refused").inc()
            logger.error("%s is refused, the settings in force are kept:\n%s", self._path, error)
            return
        if settings == self._settings:
            return
        for section, field in RESTART_ONLY:
            if getattr(getattr(settings, section), field) != getattr(getattr(self._settings, section), field):
                logger.warning("%s.%s has changed and waits for the next start", section, field)
        try:
            await self._apply(settings)
        except Exception:  # the edge: a fault of ours while applying must not end the service
            self._reloads.labels("failed").inc()
            logger.exception("%s could not be applied", self._path)
            return
        self._settings = settings
        self._reloads.labels("applied").inc()
        logger.info("%s has been taken over", self._path)


def _signature(path: Path) -> tuple[int, int, int] | None:
    """What differs when a file, or the link that leads to it, is another one; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
