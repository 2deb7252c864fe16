"""Endpoints in a watched file: a YAML or JSON list of what `pools.endpoints` holds."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import watchfiles

from fleet.cause import cause_of
from fleet.errors import SettingsError
from fleet.service.files import signature
from fleet.settings import load_endpoints
from fleet.settings.membership import endpoint_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleet.endpoint import Endpoint
    from fleet.settings import FileDiscoverySettings, PoolSettings
    from xds_server.endpoints.source import OnEndpoints, TroubleReport
    from xds_server.endpoints.special import Screen

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""The file is checked this often even without a notification: network file systems send none, and neither
does a change of a link above the directory."""


class FileSource:
    """Reads the list at start and whenever the file, or the link that leads to it, changes."""

    def __init__(
        self,
        pool: PoolSettings,
        settings: FileDiscoverySettings,
        trouble: TroubleReport,
        look_seconds: float = LOOK_SECONDS,
        screen: Screen | None = None,
    ) -> None:
        self.name = f"pool {pool.name}: file {settings.path}"
        self._pool = pool
        self._path = Path(settings.path)
        self._trouble = trouble
        self._look_seconds = look_seconds
        self._screen = screen
        self._read: tuple[int, ...] | None = None
        self._unwatched = False

    async def run(self, on_endpoints: OnEndpoints) -> None:
        """Watch until cancelled. A file that is missing or invalid changes nothing: an empty list is `[]`."""
        await self._look(on_endpoints, first=True)
        while True:
            async for _ in self._notices():
                await self._look(on_endpoints)
            # Notifications have ended or the directory does not exist: it may still be created.
            await asyncio.sleep(self._look_seconds)
            await self._look(on_endpoints)

    async def _notices(self) -> AsyncIterator[None]:
        """One item per change in the directory and per interval; ends when it cannot be watched (now)."""
        try:
            # The directory, not the file: editors and Kubernetes replace the file or a link to it.
            async for _ in watchfiles.awatch(
                self._path.parent,
                recursive=False,
                step=50,
                debounce=200,
                rust_timeout=round(self._look_seconds * 1000),
                yield_on_timeout=True,
            ):
                self._unwatched = False
                yield
        except FileNotFoundError:
            return
        except (OSError, RuntimeError) as error:  # as of a host whose inotify instances are used up
            if not self._unwatched:
                logger.warning(
                    "%s cannot be watched (%s): it is looked at every %g s",
                    self.name,
                    cause_of(error),
                    self._look_seconds,
                )
            self._unwatched = True

    async def _look(self, on_endpoints: OnEndpoints, *, first: bool = False) -> None:
        # Before reading: a write in between makes the next look read again.
        version = await asyncio.to_thread(signature, self._path)
        if version == self._read and not first:
            return
        self._read = version
        try:
            endpoints = await asyncio.to_thread(self._load)
        except SettingsError as error:
            self._trouble.failed(str(error))
            return
        self._trouble.fine()
        if endpoints is not None:
            on_endpoints(endpoints)

    def _load(self) -> tuple[Endpoint, ...] | None:
        """Read the list; None: all its endpoints are refused."""
        endpoints = tuple(endpoint_of(self._pool, entry) for entry in load_endpoints(self._path))
        return endpoints if self._screen is None else self._screen(endpoints)
