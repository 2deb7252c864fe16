"""Certificates in files: read whole and checked, read anew when they change, kept when a change is broken.

Rule
    A set of files is taken over only as a whole: certificates that parse, the key that belongs to the first
    one, authorities that parse. Files are looked at every second, because the kernel tells nothing of files
    on a network or behind links; whoever asks gets the newest set that was good.
Secrets
    Keys stay in memory and in no `repr`, log line or error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import ocsp
from prometheus_client import CollectorRegistry, Counter, Gauge

from fleet.errors import SettingsError, WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Callable


logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
_MAX_FILE_BYTES: Final = 1024 * 1024
_OUTCOMES: Final = ("applied", "refused")


class TlsError(WarmrouteError):
    """A file cannot be used; `field` is the setting that names it. The text holds nothing of its content."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True)
class Files:
    """What belongs together; None: there is none. `ca_field` is what the settings call the authorities."""

    certificate_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None
    ocsp_file: str | None = None
    ca_field: str = "ca_file"

    @property
    def paths(self) -> tuple[Path, ...]:
        """Those that there are."""
        named = (self.certificate_file, self.key_file, self.ca_file, self.ocsp_file)
        return tuple(Path(path) for path in named if path is not None)


@dataclass(frozen=True, slots=True, repr=False)
class Material:
    """A good set: PEM, and DER for the OCSP response; empty: there is none."""

    certificate: bytes = b""
    key: bytes = b""
    ca: bytes = b""
    ocsp: bytes = b""
    expires_at: float | None = None
    """Unix time at which the first certificate of the chain ends to be valid; None without a certificate."""


def load(files: Files) -> Material:
    """Read and check a set of files.

    Raises:
        TlsError: one of them is missing, broken, or does not belong to the others.
    """
    certificate, expires_at, leaf = b"", None, None
    if files.certificate_file is not None:
        certificate = _read("certificate_file", files.certificate_file)
        chain = _certificates("certificate_file", certificate)
        leaf, expires_at = chain[0], min(entry.not_valid_after_utc.timestamp() for entry in chain)
    key = b""
    if files.key_file is not None:
        key = _read("key_file", files.key_file)
        _check_key(key, leaf)
    ca = b""
    if files.ca_file is not None:
        ca = _read(files.ca_field, files.ca_file)
        _certificates(files.ca_field, ca)
    staple = b""
    if files.ocsp_file is not None:
        staple = _read("ocsp_file", files.ocsp_file)
        _check_staple(staple, leaf)
    return Material(certificate, key, ca, staple, expires_at)


def check(path: str, files: Files) -> Material:
    """Read and check a set of files that the settings name at `path`.

    Raises:
        SettingsError: naming the field.
    """
    try:
        return load(files)
    except TlsError as error:
        raise SettingsError([f"{path}.{error.field}: {error}"]) from error


def _read(field: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TlsError(field, f"{path!r} cannot be read: {error.strerror}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise TlsError(field, f"{path!r} is larger than {_MAX_FILE_BYTES} bytes")
    return content


def _certificates(field: str, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise TlsError(field, "it holds no certificates in PEM") from error


def _check_key(content: bytes, leaf: x509.Certificate | None) -> None:
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Without its cause: that may tell of the content.
        raise TlsError("key_file", "it holds no private key in PEM without a password") from None
    if leaf is None:
        return
    kind, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(kind, form) != leaf.public_key().public_bytes(kind, form):
        raise TlsError("key_file", "it is not the key of the first certificate of certificate_file")


def _check_staple(content: bytes, leaf: x509.Certificate | None) -> None:
    try:
        told = ocsp.load_der_ocsp_response(content)
        good = told.response_status is ocsp.OCSPResponseStatus.SUCCESSFUL
        fits = good and (leaf is None or told.serial_number == leaf.serial_number)
    except ValueError as error:
        raise TlsError("ocsp_file", "it holds no OCSP response in DER") from error
    if not fits:
        raise TlsError("ocsp_file", "it holds no successful OCSP response for the first certificate")


class Held:
    """The newest good set of some files. `material` may be read on any thread."""

    def __init__(self, use: str, files: Files, material: Material, signature: object) -> None:
        self.use = use
        self.files = files
        self.material = material
        self.on_change: list[Callable[[], None]] = []
        """Called on the event loop after `material` has changed."""
        self.seen = signature


class Certificates:
    """Every set of files that this process uses, each under the name of its use."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry()
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
        material = check(path, files)
        made = self._held[use] = Held(use, files, material, signature)
        for outcome in _OUTCOMES:
            self._reloads.labels(use, outcome)
        self._show(made)
        return made

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
            if signature != held.seen:
                held.seen = signature
                await self._reload(held)

    async def _reload(self, held: Held) -> None:
        try:
            material = await asyncio.to_thread(load, held.files)
        except TlsError as error:
            self._reloads.labels(held.use, "refused").inc()
            logger.error("certificates of %s stay as they are: %s: %s", held.use, error.field, error)
            return
        if material == held.material or self._held.get(held.use) is not held:
            return
        held.material = material
        self._reloads.labels(held.use, "applied").inc()
        self._show(held)
        logger.info("new certificates of %s are in force", held.use)
        for told in tuple(held.on_change):
            told()

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
