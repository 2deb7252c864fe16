"""A set of certificate files, read and checked as a whole."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509 import ocsp

from fleet.errors import SettingsError, WarmrouteError

_MAX_FILE_BYTES: Final = 1024 * 1024
_CERTIFICATES: Final = "a file with -----BEGIN CERTIFICATE-----, the own one first"
_KEY: Final = (
    "a file with -----BEGIN PRIVATE KEY-----, as `openssl pkey -in FILE -out FILE` makes it of others"
)
LEAST_RSA_BITS: Final = 2048
CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


class TlsError(WarmrouteError):
    """Unusable files: the settings that name them, and why. No text contains any of their content."""

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{field}: {text}" for field, text in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one certificate; None: no such file. `ca_field` is the setting of the authorities."""

    certificate_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None
    ocsp_file: str | None = None
    ca_field: str = "ca_file"
    for_envoy: bool = False
    """Whether Envoy uses the key: Envoy accepts fewer kinds than others."""
    flags: str = ""
    """Prefix of the options that name the files, such as `--control`; empty: settings name them."""

    def named(self, path: str, field: str) -> str:
        """Return the name of a file's option, or of its field in the section at `path`."""
        if self.flags:
            return f"{self.flags}-{field.removesuffix('_file')}"
        return f"{path}.{field}" if path else field

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of all files."""
        named = (self.certificate_file, self.key_file, self.ca_file, self.ocsp_file)
        return tuple(Path(path) for path in named if path is not None)


@dataclass(frozen=True, slots=True, repr=False)
class Material:
    """The content of a valid set: PEM, and DER for the OCSP response; empty: no such file."""

    certificate: bytes = b""
    key: bytes = b""
    ca: bytes = b""
    ocsp: bytes = b""
    expires_at: float | None = None
    """Unix time at which the first certificate of the chain expires; None without a certificate."""
    valid_from: float | None = None
    valid_until: float | None = None
    """Unix times between which the leaf is valid."""

    def refusal(self, now: float) -> str | None:
        """Return why the leaf is not valid at this Unix time; None: it is, or there is none."""
        return time_refusal(self.valid_from, self.valid_until, now)


def load(files: Files) -> Material:
    """Read and check a set of files.

    Raises:
        TlsError: for all files that are missing, broken, or do not belong to the others.
    """
    problems: list[tuple[str, str]] = []

    def read(field: str, path: str | None) -> bytes:
        try:
            return b"" if path is None else _read(field, path)
        except TlsError as error:
            problems.extend(error.problems)
            return b""

    certificate = read("certificate_file", files.certificate_file)
    key = read("key_file", files.key_file)
    ca = read(files.ca_field, files.ca_file)
    staple = read("ocsp_file", files.ocsp_file)
    if problems:
        raise TlsError(*problems)
    expires_at, leaf = None, None
    valid: tuple[float | None, float | None] = None, None
    if files.certificate_file is not None:
        chain = _certificates("certificate_file", files.certificate_file, certificate)
        leaf, expires_at = chain[0], min(entry.not_valid_after_utc.timestamp() for entry in chain)
        valid = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
        if files.for_envoy and (reason := key_refusal(leaf)) is not None:
            raise TlsError(("certificate_file", reason))
    if files.key_file is not None:
        _check_key(files, key, leaf)
    if files.ca_file is not None:
        _certificates(files.ca_field, files.ca_file, ca)
    if files.ocsp_file is not None:
        _check_staple(files.ocsp_file, staple, leaf)
    return Material(certificate, key, ca, staple, expires_at, *valid)


def check(path: str, files: Files) -> Material:
    """Read and check a set of files that the settings name at `path`, or options.

    Raises:
        SettingsError: naming the fields or options.
    """
    try:
        return load(files)
    except TlsError as error:
        problems = [f"{files.named(path, field)}: {text}" for field, text in error.problems]
        raise SettingsError(problems) from error


def _read(field: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        denied = error.errno in (errno.EACCES, errno.EPERM)
        step = (
            "let this user read it, and enter its directories" if denied else "put it there, or mend the path"
        )
        raise TlsError(
            (field, f"{path!r} cannot be read: {os.strerror(error.errno or 0).lower()}; {step}")
        ) from error
    if len(content) > _MAX_FILE_BYTES:
        raise TlsError((field, f"{path!r} is larger than {_MAX_FILE_BYTES} bytes; allowed: {_CERTIFICATES}"))
    return content


def _certificates(field: str, path: str, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise TlsError((field, f"{path!r} holds no certificates in PEM; allowed: {_CERTIFICATES}")) from error


def _check_key(files: Files, content: bytes, leaf: x509.Certificate | None) -> None:
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Without its cause, which may contain a part of the content.
        problem = f"{files.key_file!r} holds no private key in PEM without a password; allowed: {_KEY}"
        raise TlsError(("key_file", problem)) from None
    if leaf is None:
        return
    kind, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(kind, form) != leaf.public_key().public_bytes(kind, form):
        problem = f"{files.key_file!r} is not the key of the first certificate in {files.certificate_file!r}"
        raise TlsError(
            ("key_file", f"{problem}; allowed: the two that were issued together, with that one first")
        )


def _check_staple(path: str, content: bytes, leaf: x509.Certificate | None) -> None:
    try:
        response = ocsp.load_der_ocsp_response(content)
        good = response.response_status is ocsp.OCSPResponseStatus.SUCCESSFUL
        fits = good and (leaf is None or response.serial_number == leaf.serial_number)
    except ValueError as error:
        text = f"{path!r} holds no OCSP response in DER; allowed: what `openssl ocsp -respout FILE` writes"
        raise TlsError(("ocsp_file", text)) from error
    if not fits:
        text = f"{path!r} holds no successful OCSP response for the first certificate; ask for one of that"
        raise TlsError(("ocsp_file", text))


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def key_refusal(certificate: x509.Certificate) -> str | None:
    """Return why Envoy refuses a certificate with this key; None: it accepts it.

    Measured at Envoy 1.40 with static listeners: RSA below 2,048 bits, other curves than these, Ed448 and DSA
    are refused when the certificate is loaded; Ed25519 is accepted.
    """
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        small = key.key_size < LEAST_RSA_BITS
        return f"Envoy takes RSA keys from {LEAST_RSA_BITS:,} bits, not {key.key_size:,}" if small else None
    if isinstance(key, ec.EllipticCurvePublicKey):
        accepted = key.curve.name in CURVES
        return None if accepted else f"Envoy takes {', '.join(CURVES.values())}, not {key.curve.name}"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return None
    kind = type(key).__name__.lstrip("_").removesuffix("PublicKey")
    return f"Envoy takes keys of RSA, ECDSA and Ed25519, not {kind}"


def time_refusal(valid_from: float | None, valid_until: float | None, now: float) -> str | None:
    """Return why a certificate with these bounds (Unix time; None: no certificate) is not valid at `now`."""
    if valid_until is not None and now > valid_until:
        return f"it ended at {_date(valid_until)}"
    if valid_from is not None and now < valid_from:
        return f"it holds only from {_date(valid_from)}"
    return None


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
