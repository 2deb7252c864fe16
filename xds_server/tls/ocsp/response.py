"""OCSP without I/O: the request for a certificate's status, and the checks of the response.

Rule
    A response is a staple only if a client would accept it: it is signed by the certificate's issuer or by a
    responder that the issuer has authorised, covers this certificate alone, says `good`, and has an end.
    Envoy refuses a certificate with a staple that covers several, so such a staple never reaches it.
Source: RFC 6960 (4.2.2.2 for authorised responders), RFC 7633 for must-staple certificates.
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
from fleet.service.tls_files import is_issued_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

CLOCK_SKEW_SECONDS: Final = 300.0
"""A responder's clock may be ahead by this much."""
_STALE_SHARE: Final = 0.5
_SCHEMES: Final = ("http://", "https://")


class StapleError(WarmrouteError):
    """There is no staple. `outcome`: `impossible`, `unreachable`, `refused` or `revoked`."""

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
        """When to fetch a newer one: at half of its lifetime."""
        return self.this_update + _STALE_SHARE * (self.next_update - self.this_update)

    def valid(self, now: float) -> bool:
        """Whether clients still accept it."""
        return now < self.next_update


@dataclass(frozen=True, slots=True)
class OcspRequest:
    """A request for the status of a chain's first certificate."""

    leaf: x509.Certificate
    issuer: x509.Certificate
    url: str

    @classmethod
    def of(cls, chain: bytes, url: str | None) -> OcspRequest:
        """Take a chain in PEM; `url` replaces the responder that the certificate names.

        Raises:
            StapleError: `impossible`: the chain lacks the issuer, or the certificate names no responder.
        """
        leaf, *others = x509.load_pem_x509_certificates(chain)
        issuer = next((entry for entry in others if is_issued_by(leaf, entry)), None)
        if issuer is None:
            raise StapleError("impossible", "its chain has no certificate of its issuer")
        responder = url or _responder(leaf)
        if responder is None:
            raise StapleError("impossible", "it names no OCSP responder")
        return cls(leaf, issuer, responder)

    @property
    def key(self) -> str:
        """SHA-256 of the certificate in hex."""
        return self.leaf.fingerprint(hashes.SHA256()).hex()

    @property
    def der(self) -> bytes:
        """The request in DER, without a nonce: responders answer from a cache.

        SHA-1 identifies the certificate, since it is the only hash that every responder supports (RFC 5019,
        2.1.1); signatures do not depend on it.
        """
        builder = ocsp.OCSPRequestBuilder().add_certificate(
            self.leaf,
            self.issuer,
            hashes.SHA1(),  # noqa: S303 - as above
        )
        return builder.build().public_bytes(serialization.Encoding.DER)

    def read(self, content: bytes, now: float) -> Staple:
        """Check a response in DER.

        Raises:
            StapleError: `revoked`: the certificate is; `refused`: a client would not accept the response.
        """
        try:
            response = ocsp.load_der_ocsp_response(content)
            return self._checked(response, content, now)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise StapleError("refused", "it is no readable OCSP response") from error

    def _checked(self, response: ocsp.OCSPResponse, content: bytes, now: float) -> Staple:
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            raise StapleError("refused", f"the responder answers {response.response_status.name}")
        (single,) = _only(list(response.responses))
        if single.serial_number != self.leaf.serial_number or not _names(single, self.issuer):
            raise StapleError("refused", "it is about another certificate")
        begins, ends = single.this_update_utc, single.next_update_utc
        if ends is None:
            raise StapleError("refused", "it has no end (nextUpdate)")
        if begins.timestamp() > now + CLOCK_SKEW_SECONDS or ends.timestamp() <= now:
            raise StapleError("refused", f"it is valid from {begins} to {ends} only")
        _check_signature(response, self.issuer, now)
        if single.certificate_status is ocsp.OCSPCertStatus.REVOKED:
            raise StapleError("revoked", f"the certificate is revoked since {single.revocation_time_utc}")
        if single.certificate_status is not ocsp.OCSPCertStatus.GOOD:
            raise StapleError("refused", "the responder does not know the certificate")
        return Staple(content, begins.timestamp(), ends.timestamp())


def must_staple(chain: bytes) -> bool:
    """Whether the first certificate of a chain in PEM is must-staple: clients refuse it without a staple."""
    leaf = x509.load_pem_x509_certificates(chain)[0]
    try:
        features = leaf.extensions.get_extension_for_class(x509.TLSFeature).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return x509.TLSFeatureType.status_request in features


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


def _names(single: ocsp.OCSPSingleResponse, issuer: x509.Certificate) -> bool:
    """Whether the response is about this issuer: serial numbers are unique per issuer only."""
    algorithm = single.hash_algorithm
    name = hashes.Hash(algorithm)
    name.update(issuer.subject.public_bytes())
    return single.issuer_name_hash == name.finalize() and single.issuer_key_hash == _key_hash(
        issuer, algorithm
    )


def _key_hash(certificate: x509.Certificate, algorithm: hashes.HashAlgorithm) -> bytes:
    """Hash of the key's bit string, by which OCSP identifies keys."""
    public = certificate.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        bits = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.PKCS1)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        bits = public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    else:
        raise TypeError("keys of this kind are not supported")
    digest = hashes.Hash(algorithm)
    digest.update(bits)
    return digest.finalize()


def _check_signature(response: ocsp.OCSPResponse, issuer: x509.Certificate, now: float) -> None:
    signer = _signer(response, issuer, now)
    try:
        _verify(signer.public_key(), response)
    except InvalidSignature:
        raise StapleError("refused", "its signature is wrong") from None


def _signer(response: ocsp.OCSPResponse, issuer: x509.Certificate, now: float) -> x509.Certificate:
    """The issuer itself, or a responder that it has authorised."""
    for entry in (issuer, *response.certificates):
        if not _is_responder(response, entry):
            continue
        if entry == issuer:
            return issuer
        if is_issued_by(entry, issuer) and _may_sign(entry, now):
            return entry
    raise StapleError("refused", "the issuer has not authorised its signer")


def _is_responder(response: ocsp.OCSPResponse, entry: x509.Certificate) -> bool:
    if response.responder_name is not None:
        return entry.subject == response.responder_name
    return response.responder_key_hash == _key_hash(entry, hashes.SHA1())  # noqa: S303 - RFC 6960 fixes it


def _may_sign(entry: x509.Certificate, now: float) -> bool:
    try:
        usage = entry.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    current = entry.not_valid_before_utc <= moment < entry.not_valid_after_utc
    return current and ExtendedKeyUsageOID.OCSP_SIGNING in usage


def _verify(public: CertificatePublicKeyTypes, response: ocsp.OCSPResponse) -> None:
    signature, signed = response.signature, response.tbs_response_bytes
    if isinstance(public, ed25519.Ed25519PublicKey):
        public.verify(signature, signed)
        return
    algorithm = response.signature_hash_algorithm
    if isinstance(public, rsa.RSAPublicKey) and algorithm is not None:
        public.verify(signature, signed, padding.PKCS1v15(), algorithm)
    elif isinstance(public, ec.EllipticCurvePublicKey) and algorithm is not None:
        public.verify(signature, signed, ec.ECDSA(algorithm))
    else:
        raise TypeError("signatures of this kind are not supported")
