"""Whether a certificate that parses can be used: by its time, and by Envoy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

if TYPE_CHECKING:
    from cryptography import x509

LEAST_RSA_BITS: Final = 2048
CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


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
