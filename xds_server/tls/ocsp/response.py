"""OCSP without I/O: what to ask a responder for a certificate, and whether to believe what it says.

Rule
    A response is a staple only if a client would believe it: it is signed by who issued the certificate or
    whom that one has named for it, is about this certificate alone, says `good`, and tells until when.
    Envoy refuses a certificate together with a staple that is about several, so such a one never reaches it.
Source: RFC 6960 (4.2.2.2 for whom to believe), RFC 7633 for certificates that want a staple.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID

from fleet.errors import WarmrouteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

CLOCK_SKEW_SECONDS: Final = 300.0
"""A responder's clock may be ahead by so much."""
_STALE_SHARE: Final = 0.5
_SCHEMES: Final = ("http://", "https://")


class StapleError(WarmrouteError):
    """There is no staple; `outcome` is the kind: `impossible`, `unreachable`, `refused`, `revoked`."""

    def __init__(self, outcome: str, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class Staple:
    """A response that may be stapled; times in seconds since the epoch."""

    der: bytes
    this_update: float
    next_update: float

    @property
    def refresh_at(self) -> float:
        """When a newer one is wanted: half of its time before it ends."""
        return self.this_update + _STALE_SHARE * (self.next_update - self.this_update)

    def valid(self, now: float) -> bool:
        """Whether clients still believe it."""
        return now < self.next_update


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of whom, about the first certificate of a chain."""

    leaf: x509.Certificate
    issuer: x509.Certificate
    url: str

    @classmethod
    def of(cls, chain: bytes, url: str | None) -> Question:
        """Take a chain in PEM; `url` is asked instead of the responder that the certificate names.

        Raises:
            StapleError: `impossible`, since the chain lacks the issuer or the certificate names nobody.
        """
        leaf, *others = x509.load_pem_x509_certificates(chain)
        issuer = next((entry for entry in others if _issued(leaf, entry)), None)
        if issuer is None:
            raise StapleError("impossible", "its issuer's certificate does not stand behind it")
        found = url or _responder(leaf)
        if found is None:
            raise StapleError("impossible", "it names no OCSP responder")
        return cls(leaf, issuer, found)

    @property
    def key(self) -> str:
        """What tells the certificate from others."""
        return self.leaf.fingerprint(hashes.SHA256()).hex()

    @property
    def request(self) -> bytes:
        """The request in DER, without a nonce: responders answer from a cache.

        The certificate is named by SHA-1, which is all that every responder knows (RFC 5019, 2.1.1); what is
        signed does not rest on it.
        """
        builder = ocsp.OCSPRequestBuilder().add_certificate(
            self.leaf,
            self.issuer,
            hashes.SHA1(),  # noqa: S303 - as above
        )
        return builder.build().public_bytes(serialization.Encoding.DER)

    def read(self, content: bytes, now: float) -> Staple:
        """Take a response in DER.

        Raises:
            StapleError: `revoked` if it says so, `refused` if it is not to be believed or has ended.
        """
        try:
            told = ocsp.load_der_ocsp_response(content)
            return self._checked(told, content, now)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise StapleError("refused", "it is no OCSP response that can be read") from error

    def _checked(self, told: ocsp.OCSPResponse, content: bytes, now: float) -> Staple:
        if told.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            raise StapleError("refused", f"the responder answers {told.response_status.name}")
        (one,) = _only(list(told.responses))
        if one.serial_number != self.leaf.serial_number or not _names(one, self.issuer):
            raise StapleError("refused", "it is about another certificate")
        begins, ends = one.this_update_utc, one.next_update_utc
        if ends is None:
            raise StapleError("refused", "it does not tell until when it holds")
        if begins.timestamp() > now + CLOCK_SKEW_SECONDS or ends.timestamp() <= now:
            raise StapleError("refused", f"it holds from {begins} to {ends} only")
        _check_signature(told, self.issuer, now)
        if one.certificate_status is ocsp.OCSPCertStatus.REVOKED:
            raise StapleError("revoked", f"the certificate is revoked since {one.revocation_time_utc}")
        if one.certificate_status is not ocsp.OCSPCertStatus.GOOD:
            raise StapleError("refused", "the responder does not know the certificate")
        return Staple(content, begins.timestamp(), ends.timestamp())


def must_staple(chain: bytes) -> bool:
    """Whether the first certificate of a chain in PEM tells clients to refuse it without a staple."""
    leaf = x509.load_pem_x509_certificates(chain)[0]
    try:
        features = leaf.extensions.get_extension_for_class(x509.TLSFeature).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return x509.TLSFeatureType.status_request in features


def _issued(leaf: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _responder(leaf: x509.Certificate) -> str | None:
    try:
        access = leaf.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except (x509.ExtensionNotFound, ValueError):
        return None
    urls = (
        entry.access_location.value
        for entry in access
        if entry.access_method == AuthorityInformationAccessOID.OCSP
        and isinstance(entry.access_location, x509.UniformResourceIdentifier)
    )
    return next((url for url in urls if url.startswith(_SCHEMES)), None)


def _only(responses: Sequence[ocsp.OCSPSingleResponse]) -> Sequence[ocsp.OCSPSingleResponse]:
    if len(responses) != 1:
        raise StapleError("refused", f"it is about {len(responses)} certificates, allowed: one")
    return responses


def _names(one: ocsp.OCSPSingleResponse, issuer: x509.Certificate) -> bool:
    """Whether the response means this issuer: serial numbers are unique with one issuer only."""
    algorithm = one.hash_algorithm
    name = hashes.Hash(algorithm)
    name.update(issuer.subject.public_bytes())
    return one.issuer_name_hash == name.finalize() and one.issuer_key_hash == _key_hash(issuer, algorithm)


def _key_hash(certificate: x509.Certificate, algorithm: hashes.HashAlgorithm) -> bytes:
    """Hash of the key's bit string, as OCSP names keys."""
    public = certificate.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        bits = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.PKCS1)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        bits = public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    else:
        raise TypeError("keys of this kind are not read")
    held = hashes.Hash(algorithm)
    held.update(bits)
    return held.finalize()


def _check_signature(told: ocsp.OCSPResponse, issuer: x509.Certificate, now: float) -> None:
    signer = _signer(told, issuer, now)
    try:
        _verify(signer.public_key(), told)
    except InvalidSignature:
        raise StapleError("refused", "its signature is wrong") from None


def _signer(told: ocsp.OCSPResponse, issuer: x509.Certificate, now: float) -> x509.Certificate:
    """The issuer itself, or whom it has given a certificate for this."""
    for entry in (issuer, *told.certificates):
        if not _is_responder(told, entry):
            continue
        if entry == issuer:
            return issuer
        if _issued(entry, issuer) and _may_sign(entry, now):
            return entry
    raise StapleError("refused", "it is signed by somebody whom the issuer has not named for it")


def _is_responder(told: ocsp.OCSPResponse, entry: x509.Certificate) -> bool:
    if told.responder_name is not None:
        return entry.subject == told.responder_name
    return told.responder_key_hash == _key_hash(entry, hashes.SHA1())  # noqa: S303 - RFC 6960 fixes it


def _may_sign(entry: x509.Certificate, now: float) -> bool:
    try:
        usage = entry.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    current = entry.not_valid_before_utc <= moment < entry.not_valid_after_utc
    return current and ExtendedKeyUsageOID.OCSP_SIGNING in usage


def _verify(public: CertificatePublicKeyTypes, told: ocsp.OCSPResponse) -> None:
    signature, signed = told.signature, told.tbs_response_bytes
    if isinstance(public, ed25519.Ed25519PublicKey):
        public.verify(signature, signed)
        return
    algorithm = told.signature_hash_algorithm
    if isinstance(public, rsa.RSAPublicKey) and algorithm is not None:
        public.verify(signature, signed, padding.PKCS1v15(), algorithm)
    elif isinstance(public, ec.EllipticCurvePublicKey) and algorithm is not None:
        public.verify(signature, signed, ec.ECDSA(algorithm))
    else:
        raise TypeError("signatures of this kind are not read")
