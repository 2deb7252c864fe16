"""A set of certificate files, read and checked as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import ocsp

from fleet.errors import SettingsError, WarmrouteError
from fleet.tls_use import key_refusal, time_refusal

_MAX_FILE_BYTES: Final = 1024 * 1024


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
    for_envoy: bool = False
    """Whether it is Envoy that has the key: it takes fewer kinds than others do."""

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
    valid_from: float | None = None
    valid_until: float | None = None
    """Unix times between which the first certificate holds."""

    def refusal(self, now: float) -> str | None:
        """Why the first certificate does not hold at this Unix time; None: it does, or there is none."""
        return time_refusal(self.valid_from, self.valid_until, now)


def load(files: Files) -> Material:
    """Read and check a set of files.

    Raises:
        TlsError: one of them is missing, broken, or does not belong to the others.
    """
    certificate, expires_at, leaf = b"", None, None
    valid: tuple[float | None, float | None] = None, None
    if files.certificate_file is not None:
        certificate = _read("certificate_file", files.certificate_file)
        chain = _certificates("certificate_file", certificate)
        leaf, expires_at = chain[0], min(entry.not_valid_after_utc.timestamp() for entry in chain)
        valid = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
        if files.for_envoy and (reason := key_refusal(leaf)) is not None:
            raise TlsError("certificate_file", reason)
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
    return Material(certificate, key, ca, staple, expires_at, *valid)


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
