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
    """Why Envoy refuses a certificate with this key; None: it takes it.

    Measured at Envoy 1.40 with static listeners: RSA below 2,048 bits, other curves than these, Ed448 and DSA
    are refused when the certificate is loaded; Ed25519 is taken.
    """
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        small = key.key_size < LEAST_RSA_BITS
        return f"Envoy takes RSA keys from {LEAST_RSA_BITS:,} bits, not {key.key_size:,}" if small else None
    if isinstance(key, ec.EllipticCurvePublicKey):
        known = key.curve.name in CURVES
        return None if known else f"Envoy takes {', '.join(CURVES.values())}, not {key.curve.name}"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return None
    kind = type(key).__name__.lstrip("_").removesuffix("PublicKey")
    return f"Envoy takes keys of RSA, ECDSA and Ed25519, not {kind}"


def time_refusal(valid_from: float | None, valid_until: float | None, now: float) -> str | None:
    """Why a certificate with these bounds (Unix time, None: no certificate) does not hold now."""
    if valid_until is not None and now > valid_until:
        return f"it ended at {_told(valid_until)}"
    if valid_from is not None and now < valid_from:
        return f"it holds only from {_told(valid_from)}"
    return None


def _told(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
