"""Reload of changed settings without a restart: file watch and SIGHUP; a broken file changes nothing."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any, Final

import watchfiles
from prometheus_client import Counter

from fleet.cause import cause_of
from fleet.errors import SettingsError
from fleet.service.files import signature
from fleet.settings import Settings, load_settings, located
from fleet.settings.role_check import added_access

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)

RESTART_ONLY = (
    ("xds", "address"),
    ("xds", "transport"),
    ("xds", "state_path"),
    ("ext_proc", "address"),
    ("ext_proc", "transport"),
    ("ext_proc", "workers"),
    ("ext_proc", "shared"),
    ("control", "address"),
    ("control", "transport"),
    ("admin", "address"),
    ("admin", "ext_proc_address"),
    ("tls", "xds"),
    ("tls", "ext_proc"),
    ("tls", "control"),
    ("tls", "admin"),
    ("tls", "workers"),
    ("connections", "ping_seconds"),
    ("connections", "ping_timeout_seconds"),
    ("limits", "xds_streams"),
    ("limits", "metrics_page_bytes"),
    ("telemetry", "traces"),
    ("admin", "token_file"),
    ("telemetry", "metrics"),
    ("telemetry", "metrics_interval_seconds"),
    ("telemetry", "service_name"),
)
"""Settings that are bound at start-up; a change is logged and waits for the next start. Until then the old
values are in force everywhere: Envoys must not be sent to an address where nothing listens yet."""

_LOOK_SECONDS: Final = 2.0
"""Interval of polling the file, in addition to notifications of the kernel, which has none for files on a
network, for targets of links in other directories, and beyond its limit of watches."""


class SettingsWatch:
    """Reloads the settings file when it changes or on SIGHUP."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        apply: Callable[[Settings], Awaitable[None]],
        registry: CollectorRegistry,
        place: Callable[[Settings], Settings] = lambda settings: settings,
    ) -> None:
        """`place` turns the file's settings into those of this process."""
        self._path = path
        self._place = place
        self._settings = settings
        self._apply = apply
        self._refused = False
        """Whether the file was refused when it was read last."""
        self._wake = asyncio.Event()
        self._signature = signature(path)
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
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._notified())
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                await self._look()

    async def _notified(self) -> None:
        # The directory, not the file: editors and Kubernetes replace the file or a link to it.
        directory = self._path.absolute().parent
        try:
            async for _ in watchfiles.awatch(directory, recursive=False, step=50, debounce=200):
                await self._look()
        except (OSError, RuntimeError) as error:
            logger.warning(
                "%s cannot be watched (%s): it is looked at every %g s",
                directory,
                cause_of(error),
                _LOOK_SECONDS,
            )

    async def _look(self) -> None:
        # Other files change in the directory too, perhaps our own log. On a thread, because a file system on
        # a network may block.
        changed = await asyncio.to_thread(signature, self._path)
        if changed != self._signature:
            self._signature = changed
            self._wake.set()

    async def _reload_when_woken(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.reload()

    async def reload(self) -> None:
        """Read the file once, and apply it if it is valid and differs."""
        try:
            settings = await asyncio.to_thread(load_settings, self._path)
        except SettingsError as error:
            self._refuse(error)
            return
        placed = self._place(settings)
        settings = self._as_bound(placed)
        if settings == self._settings:
            if settings != placed:
                logger.info("%s: everything else in it is in force", self._path)
            else:
                state = "good again" if self._refused else "unchanged"
                logger.info("%s is %s: its settings are in force", self._path, state)
            self._refused = False
            return
        if against := added_access(self._settings, settings):
            self._refuse(await asyncio.to_thread(located, self._path, SettingsError(against)))
            return
        try:
            await self._apply(settings)
        except SettingsError as error:
            self._refuse(await asyncio.to_thread(located, self._path, error))
            return
        except Exception:  # the edge: a fault of ours while applying must not end the service
            self._refused = True
            self._reloads.labels("failed").inc()
            logger.exception("%s could not be applied", self._path)
            return
        self._settings, self._refused = settings, False
        self._reloads.labels("applied").inc()
        logger.info("%s has been taken over", self._path)

    def _refuse(self, error: SettingsError) -> None:
        self._refused = True
        self._reloads.labels("refused").inc()
        # In one line: YAML's errors have several.
        problems = "; ".join(" ".join(problem.split()) for problem in error.problems)
        logger.error("%s is refused, the settings in force are kept: %s", self._path, problems)

    def _as_bound(self, settings: Settings) -> Settings:
        """Return the settings with the values now in force of those that wait for the next start."""
        waiting: dict[str, dict[str, Any]] = {}
        for section, field in RESTART_ONLY:
            bound, new = (getattr(each, section) for each in (self._settings, settings))
            # A transport may also follow from the address.
            name = "transport_in_force" if field == "transport" else field
            if getattr(new, name) != getattr(bound, name):
                logger.warning("%s.%s has changed and waits for the next start", section, field)
                waiting.setdefault(section, {})[field] = getattr(bound, field)
        sections = {
            name: getattr(settings, name).model_copy(update=fields) for name, fields in waiting.items()
        }
        return settings.model_copy(update=sections) if sections else settings
