"""Certificates in files: read and checked as a set, read again when they change.

Rule
    A set of files is applied only as a whole: certificates that parse, the key of the first one, authorities
    that parse. The files are polled every second, because the kernel reports no change of files on a network
    or behind links. A caller gets the newest valid set. A certificate outside its validity period does not
    replace one within its period; a certificate of a later period is applied when that period begins. At
    start-up there is nothing to keep, so such a certificate is logged and used.
Secrets
    Keys stay in memory and in no `repr`, log line or error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from fleet.errors import SettingsError
from fleet.service.files import signature
from fleet.service.tls_files import Files, Material, TlsError, check, load

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ("CertificateProvider", "Certificates", "Files", "Material", "TlsError", "check", "load")

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
_OUTCOMES: Final = ("applied", "refused")


class CertificateProvider:
    """The newest valid set of some files. `material` may be read on any thread."""

    def __init__(self, use: str, files: Files, material: Material, signature: object) -> None:
        self.use = use
        self.files = files
        self.material = material
        self.on_change: list[Callable[[], None]] = []
        """Called on the event loop after `material` has changed."""
        self.signature = signature
        """Of the files as they were read last."""
        self.retry_at: float | None = None
        """Unix time at which to read refused files again; None: when they change."""


class Certificates:
    """The providers of all files that this process uses, by use."""

    def __init__(
        self, registry: CollectorRegistry | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        """`wall` is Unix time."""
        registry = registry or CollectorRegistry()
        self._wall = wall
        self._providers: dict[str, CertificateProvider] = {}
        self._polling: asyncio.Task[None] | None = None
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
        """Counted where names are checked; by address."""

    def watch(self, use: str, path: str, files: Files) -> CertificateProvider:
        """Read files and follow their changes; a use that has equal files keeps its provider.

        `path` is the section of the settings that names them, for errors. Other files of the same use get a
        new provider; the former one no longer changes.

        Raises:
            SettingsError: the files cannot be used.
        """
        provider = self._providers.get(use)
        if provider is not None and provider.files == files:
            return provider
        read = _signature(files)
        material = self.check(use, path, files)
        provider = self._providers[use] = CertificateProvider(use, files, material, read)
        for outcome in _OUTCOMES:
            self._reloads.labels(use, outcome)
        self._show(provider)
        self._warn(provider)
        return provider

    def check(self, use: str, path: str, files: Files) -> Material:
        """Read and check the files that a use is to have from now on.

        Raises:
            SettingsError: the files cannot be used, or their certificate is outside its validity period while
                the one in force is within its own.
        """
        material, now = check(path, files), self._wall()
        provider = self._providers.get(use)
        if provider is not None and provider.material.refusal(now) is None:
            reason = material.refusal(now)
            if reason is not None:
                raise SettingsError([f"{files.named(path, 'certificate_file')}: {reason}"])
        return material

    def drop(self, use: str) -> None:
        """Forget a use."""
        if self._providers.pop(use, None) is not None:
            with contextlib.suppress(KeyError):  # A set without a certificate has no expiry.
                self._expiry.remove(use)

    def start(self) -> None:
        """Begin to poll the files."""
        self._polling = asyncio.create_task(self.run(), name="certificates")

    async def close(self) -> None:
        """Stop polling."""
        if self._polling is not None:
            self._polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._polling

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Read again what has changed since the last poll."""
        for provider in tuple(self._providers.values()):
            # On a thread, because a file system on a network may block.
            current = await asyncio.to_thread(_signature, provider.files)
            retry = provider.retry_at is not None and self._wall() >= provider.retry_at
            if current != provider.signature or retry:
                provider.signature, provider.retry_at = current, None
                await self._reload(provider)

    async def _reload(self, provider: CertificateProvider) -> None:
        use, files = provider.use, provider.files
        try:
            material = await asyncio.to_thread(load, files)
            self._check_time(provider, material)
        except TlsError as error:
            self._reloads.labels(use, "refused").inc()
            why = "; ".join(f"{files.named('', field)}: {text}" for field, text in error.problems)
            logger.error("certificates of %s stay as they are: %s", use, why)
            return
        if material == provider.material or self._providers.get(use) is not provider:
            return
        provider.material = material
        self._reloads.labels(use, "applied").inc()
        self._show(provider)
        logger.info("new certificates of %s are in force", use)
        self._warn(provider)
        for on_change in tuple(provider.on_change):
            on_change()

    def _check_time(self, provider: CertificateProvider, material: Material) -> None:
        now = self._wall()
        reason = material.refusal(now)
        if reason is None or provider.material.refusal(now) is not None:
            return
        if material.valid_from is not None and now < material.valid_from:
            provider.retry_at = material.valid_from
        raise TlsError(("certificate_file", reason))

    def _warn(self, provider: CertificateProvider) -> None:
        reason = provider.material.refusal(self._wall())
        if reason is not None:
            logger.error("peers that check the certificate of %s refuse it: %s", provider.use, reason)

    def _show(self, provider: CertificateProvider) -> None:
        if provider.material.expires_at is not None:
            self._expiry.labels(provider.use).set(provider.material.expires_at)


def _signature(files: Files) -> object:
    return tuple(signature(path) for path in files.paths)
