"""Certificates made on the spot, for tests and benches: an authority and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey
_EARLIER: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key, and where both are in PEM."""

    certificate: x509.Certificate
    key: Key
    certificate_file: Path
    key_file: Path


class Authority:
    """Signs certificates into a folder, where its own is `NAME-ca.crt`."""

    def __init__(self, directory: Path, name: str = "test") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
        self._key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self._name, self._name, self._key.public_key(), days=30)
        self.certificate = builder.add_extension(basic, critical=True).sign(self._key, hashes.SHA256())
        self.file = directory / f"{name}-ca.crt"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *names: str,
        days: float = 7,
        responder: str = "",
        must_staple: bool = False,
        signs_ocsp: bool = False,
        rsa_bits: int = 0,
        key: Key | None = None,
        from_days: float = 0,
        side: Literal["both", "server", "client"] = "both",
    ) -> Issued:
        """Sign a certificate for DNS names, IP addresses and URIs, for one or both sides of a connection.

        It goes to `NAME.crt` and `NAME.key`, each moved into place. `responder` is the URL for OCSP;
        `must_staple` tells clients to want a staple, `signs_ocsp` lets the certificate sign responses. The
        key is `key`, an RSA key of `rsa_bits`, or one of P-256. It is valid from an hour before `from_days`
        after now, until `days` after now.
        """
        if key is None:
            own_key = rsa.generate_private_key(65537, rsa_bits) if rsa_bits else None
            key = own_key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        server, client = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
        usages = {"both": [server, client], "server": [server], "client": [client]}[side]
        usage = x509.ExtendedKeyUsage([*usages, *([ExtendedKeyUsageOID.OCSP_SIGNING] if signs_ocsp else [])])
        builder = _builder(
            subject, self._name, key.public_key(), days=days, from_days=from_days
        ).add_extension(usage, critical=False)
        if names:
            alternatives = x509.SubjectAlternativeName([_general(entry) for entry in names])
            builder = builder.add_extension(alternatives, critical=False)
        if responder:
            where = x509.AccessDescription(
                AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier(responder)
            )
            builder = builder.add_extension(x509.AuthorityInformationAccess([where]), critical=False)
        if must_staple:
            builder = builder.add_extension(
                x509.TLSFeature([x509.TLSFeatureType.status_request]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        issued = Issued(certificate, key, self._directory / f"{name}.crt", self._directory / f"{name}.key")
        # The chain goes along, as OCSP responders and clients need the signer.
        chain = certificate.public_bytes(serialization.Encoding.PEM) + self.file.read_bytes()
        _put(issued.key_file, _pem(key))
        _put(issued.certificate_file, chain)
        return issued

    def staple(
        self,
        certificate: x509.Certificate,
        *,
        hours: float = 1,
        status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD,
        signer: Issued | None = None,
        at: datetime.datetime | None = None,
    ) -> bytes:
        """Sign an OCSP response, by default `good`, valid from an hour before `at` for `hours` after it.

        `signer` signs in place of the authority, and its certificate goes along.
        """
        now = at or datetime.datetime.now(datetime.UTC)
        revoked = status is ocsp.OCSPCertStatus.REVOKED
        builder = ocsp.OCSPResponseBuilder().add_response(
            cert=certificate,
            issuer=self.certificate,
            algorithm=hashes.SHA1(),  # noqa: S303 - as responders do
            cert_status=status,
            this_update=now - _EARLIER,
            next_update=now + datetime.timedelta(hours=hours),
            revocation_time=now - _EARLIER if revoked else None,
            revocation_reason=None,
        )
        by = self.certificate if signer is None else signer.certificate
        if signer is not None:
            builder = builder.certificates([signer.certificate])
        signed = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, by).sign(
            self._key if signer is None else signer.key, hashes.SHA256()
        )
        return signed.public_bytes(serialization.Encoding.DER)

    def sign(self, content: bytes) -> bytes:
        """Sign with the authority's key, ECDSA with SHA-256."""
        return self._key.sign(content, ec.ECDSA(hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, *, days: float, from_days: float = 0
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER + datetime.timedelta(days=from_days))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if "://" in name:
            return x509.UniformResourceIdentifier(name)
        return x509.DNSName(name)


def _pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _put(path: Path, content: bytes) -> None:
    new = path.with_suffix(path.suffix + ".new")
    new.write_bytes(content)
    new.replace(path)
