"""TLS of our services, of their clients, and of Envoys' listeners and pools."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleet.settings.strict import LABELS, FilePath, Strict

Role = Literal["envoys", "grpc_clients", "gateways", "workers", "agents", "operators"]


def _no_address(name: str) -> str:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name
    raise ValueError(
        "allowed: a DNS name of the certificate; IP addresses in certificates count for nothing, so have one"
        " issued that carries a DNS name"
    )


DnsName = Annotated[
    str,
    Field(
        pattern=rf"^{LABELS}$",
        max_length=253,
    ),
    AfterValidator(_no_address),
]
PeerName = Annotated[
    str,
    Field(
        pattern=rf"^((\*\.)?{LABELS}|[a-z][a-z0-9+.-]*://[!-)+-~]+(/\*)?)$",
        max_length=2048,
    ),
    AfterValidator(_no_address),
]
PeerNames = Annotated[tuple[PeerName, ...], Field(max_length=1000)]
ResponderUrl = Annotated[str, Field(pattern=r"^https?://[^\s/?#]+\S*$", max_length=2048)]


class ServerTlsSettings(Strict):
    """One of our addresses: its certificate, and the authorities of its clients."""

    certificate_file: FilePath
    key_file: FilePath
    client_ca_file: FilePath | None = None
    """Authorities that sign clients' certificates; None: clients need no certificate."""


class PeerTlsSettings(Strict):
    """The certificate of one of our clients, and the names and authorities that it accepts."""

    certificate_file: FilePath
    key_file: FilePath
    ca_file: FilePath
    """Authorities that sign our services' certificates."""
    server_name: DnsName = "warmroute"
    """A DNS name in our services' certificates; it is checked wherever they listen."""


class EnvoyTlsSettings(PeerTlsSettings):
    """Certificate of Envoys for xds_server and ext_proc: paths on Envoys' hosts."""

    sds_directory: FilePath | None = None
    """Envoys' directory of the two files that `warmroute bootstrap --sds` prints, for rotation."""


class RoleSettings(Strict):
    """Names in the certificates of our clients, by role. No peer has a role without names.

    A DNS name, `*.` before one for any first label, or a URI, `/*` after one for all paths below it.
    """

    envoys: PeerNames = ()
    """May have the whole configuration with its keys, report finished requests, and request picks."""
    grpc_clients: PeerNames = ()
    """May have the configuration without keys: gRPC's own xDS clients."""
    gateways: PeerNames = ()
    """May request picks, and get no configuration: Envoys that others configure."""
    workers: PeerNames = ()
    """May follow the fleet, and report their requests in flight: ext_proc workers that run apart."""
    agents: PeerNames = ()
    """May report GPUs."""
    operators: PeerNames = ()
    """May use admin (with its token, if it has one), and request the states of discovery's clients."""


class TlsSettings(Strict):
    """TLS of our own addresses. None: plaintext, on Unix sockets and loopback."""

    xds: ServerTlsSettings | None = None
    ext_proc: ServerTlsSettings | None = None
    control: ServerTlsSettings | None = None
    admin: ServerTlsSettings | None = None
    envoy: EnvoyTlsSettings | None = None
    workers: PeerTlsSettings | None = None
    """Certificate of ext_proc workers that run apart, for `control.address`."""
    roles: RoleSettings | None = None
    """Roles of clients, wherever there is a `client_ca_file`; None: each certificate that it has signed has
    all."""


class ListenerTlsSettings(Strict):
    """TLS towards clients; Envoys get the certificate from xds_server."""

    certificate_file: FilePath
    key_file: FilePath
    ocsp_file: FilePath | None = None
    """A DER file with the certificate's OCSP response; None: none is read."""
    ocsp_fetch: bool = False
    """xds_server fetches staples from the certificate's OCSP responder."""
    ocsp_url: ResponderUrl | None = None
    """Replaces the responder that the certificate names."""
    shared_tickets: bool = False
    """Clients resume sessions at any Envoy, by keys that xds_server makes and rotates; False: at the same
    Envoy."""

    @model_validator(mode="after")
    def _one_staple(self) -> Self:
        if self.ocsp_file is not None and self.ocsp_fetch:
            raise ValueError("allowed: ocsp_file or ocsp_fetch, not both")
        if self.ocsp_url is not None and not self.ocsp_fetch:
            raise ValueError("allowed: ocsp_url with ocsp_fetch: true only")
        return self


class PoolTlsSettings(Strict):
    """TLS towards a pool's engines; Envoys get the certificates from xds_server."""

    ca_file: FilePath
    sni: DnsName
    """The SNI sent to engines, and a name that their certificates must carry."""
    certificate_file: FilePath | None = None
    key_file: FilePath | None = None
    """Client certificate for engines that require one."""
    session_keys: Annotated[int, Field(ge=0, le=1000)] = 16
    """Sessions that Envoy keeps for resumption; 0: each handshake is a full one."""

    @model_validator(mode="after")
    def _key_with_certificate(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("allowed: certificate_file and key_file together, or neither")
        return self
