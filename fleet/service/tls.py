"""Certificates in files: read whole and checked, read anew when they change, kept when a change is broken.

Rule
    A set of files is taken over only as a whole: certificates that parse, the key that belongs to the first
    one, authorities that parse. Files are looked at every second, because the kernel tells nothing of files
    on a network or behind links; whoever asks gets the newest set that was good. A certificate that has
    ended, or does not hold yet, takes no place of one that holds: one of a later time comes in force at
    that time. At a start there is nothing better, so it is told and used.
Secrets
    Keys stay in memory and in no `repr`, log line or error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from fleet.errors import SettingsError
from fleet.service.tls_files import Files, Material, TlsError, check, load

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ("Certificates", "Files", "Held", "Material", "TlsError", "check", "load")

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
_OUTCOMES: Final = ("applied", "refused")


class Held:
    """The newest good set of some files. `material` may be read on any thread."""

    def __init__(self, use: str, files: Files, material: Material, signature: object) -> None:
        self.use = use
        self.files = files
        self.material = material
        self.on_change: list[Callable[[], None]] = []
        """Called on the event loop after `material` has changed."""
        self.seen = signature
        self.again_at: float | None = None
        """Unix time at which refused files are to be read again; None: when they change."""


class Certificates:
    """Every set of files that this process uses, each under the name of its use."""

    def __init__(
        self, registry: CollectorRegistry | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        """`wall` is Unix time."""
        registry = registry or CollectorRegistry()
        self._wall = wall
        self._held: dict[str, Held] = {}
        self._looking: asyncio.Task[None] | None = None
        self._expiry = Gauge(
            "warmroute_certificate_expiry_seconds",
            "Unix time at which the certificate in force ends to be valid",
            ["use"],
            registry=registry,
        )
        self._reloads = Counter(
            "warmroute_certificate_reloads_total",
            "Changed certificate files by outcome",
            ["use", "outcome"],
            registry=registry,
        )
        self.refusals = Counter(
            "warmroute_certificate_refusals_total",
            "Calls of peers whose certificate shows no name that may make them",
            ["use"],
            registry=registry,
        )
        """For whoever checks names; by address."""

    def hold(self, use: str, path: str, files: Files) -> Held:
        """Read files and keep reading them; of a use that is held with equal files, return that.

        `path` is where the settings name them, for errors. Another set of a use takes the place of the one
        before, which then no longer changes.

        Raises:
            SettingsError: they cannot be used.
        """
        found = self._held.get(use)
        if found is not None and found.files == files:
            return found
        signature = _signature(files)
        material = self.check(use, path, files)
        made = self._held[use] = Held(use, files, material, signature)
        for outcome in _OUTCOMES:
            self._reloads.labels(use, outcome)
        self._show(made)
        self._warn(made)
        return made

    def check(self, use: str, path: str, files: Files) -> Material:
        """Read and check files that are to be those of a use from now on.

        Raises:
            SettingsError: they cannot be used, or do not hold now while those that are held do.
        """
        material, now = check(path, files), self._wall()
        held = self._held.get(use)
        if held is not None and held.material.refusal(now) is None:
            reason = material.refusal(now)
            if reason is not None:
                raise SettingsError([f"{files.named(path, 'certificate_file')}: {reason}"])
        return material

    def drop(self, use: str) -> None:
        """Forget a use."""
        if self._held.pop(use, None) is not None:
            with contextlib.suppress(KeyError):  # A set without a certificate shows none.
                self._expiry.remove(use)

    def start(self) -> None:
        """Look at the files from now on."""
        self._looking = asyncio.create_task(self.run(), name="certificates")

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Take over what has changed since the last look."""
        for held in tuple(self._held.values()):
            # On a thread, because a file system on a network may let one wait.
            signature = await asyncio.to_thread(_signature, held.files)
            due = held.again_at is not None and self._wall() >= held.again_at
            if signature != held.seen or due:
                held.seen, held.again_at = signature, None
                await self._reload(held)

    async def _reload(self, held: Held) -> None:
        try:
            material = await asyncio.to_thread(load, held.files)
            self._check_time(held, material)
        except TlsError as error:
            self._reloads.labels(held.use, "refused").inc()
            why = "; ".join(f"{held.files.named('', field)}: {text}" for field, text in error.problems)
            logger.error("certificates of %s stay as they are: %s", held.use, why)
            return
        if material == held.material or self._held.get(held.use) is not held:
            return
        held.material = material
        self._reloads.labels(held.use, "applied").inc()
        self._show(held)
        logger.info("new certificates of %s are in force", held.use)
        self._warn(held)
        for told in tuple(held.on_change):
            told()

    def _check_time(self, held: Held, material: Material) -> None:
        now = self._wall()
        reason = material.refusal(now)
        if reason is None or held.material.refusal(now) is not None:
            return
        if material.valid_from is not None and now < material.valid_from:
            held.again_at = material.valid_from
        raise TlsError(("certificate_file", reason))

    def _warn(self, held: Held) -> None:
        reason = held.material.refusal(self._wall())
        if reason is not None:
            logger.error("whoever checks the certificate of %s refuses it: %s", held.use, reason)

    def _show(self, held: Held) -> None:
        if held.material.expires_at is not None:
            self._expiry.labels(held.use).set(held.material.expires_at)


def _signature(files: Files) -> object:
    """What differs when a file, or what a link leads to, is another one."""
    seen: list[Any] = []
    for path in files.paths:
        try:
            found = path.stat()
        except OSError:
            seen.append(None)
        else:
            seen.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(seen)
