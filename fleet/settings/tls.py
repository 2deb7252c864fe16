"""TLS: the services' own certificates, what is shown to them, and what Envoys' listeners and pools use."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleet.settings.strict import Strict

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


PemFile = Annotated[str, Field(pattern=r"^/[^\x00]*$", max_length=4096)]
DnsName = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$",
        max_length=253,
    ),
    AfterValidator(_no_address),
]
PeerName = Annotated[
    str,
    Field(
        pattern=r"^((\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?|[a-z][a-z0-9+.-]*://[!-)+-~]+(/\*)?)$",
        max_length=2048,
    ),
    AfterValidator(_no_address),
]
PeerNames = Annotated[tuple[PeerName, ...], Field(max_length=1000)]
ResponderUrl = Annotated[str, Field(pattern=r"^https?://[^\s/?#]+\S*$", max_length=2048)]


class ServerTlsSettings(Strict):
    """One of our addresses: its certificate, and whose clients may connect."""

    certificate_file: PemFile
    key_file: PemFile
    client_ca_file: PemFile | None = None
    """Clients must show a certificate that one of these has signed; None: anybody may connect."""


class PeerTlsSettings(Strict):
    """What a client of ours shows, and what it expects."""

    certificate_file: PemFile
    key_file: PemFile
    ca_file: PemFile
    """Who signs our services' certificates."""
    server_name: DnsName = "warmroute"
    """A DNS name that our services' certificates carry; it is checked wherever they listen."""


class EnvoyTlsSettings(PeerTlsSettings):
    """What Envoys show to xds_server and ext_proc: paths as Envoys see them."""

    sds_directory: PemFile | None = None
    """Where Envoys have the two files that `warmroute bootstrap --sds` prints: then they may rotate."""


class RoleSettings(Strict):
    """Names in the certificates of our clients, and what their holders may do; no name, nobody may.

    A DNS name, `*.` before one for any first label, or a URI, `/*` after one for whatever is below it.
    """

    envoys: PeerNames = ()
    """May have the whole configuration with its keys, report what they served, and ask for picks."""
    grpc_clients: PeerNames = ()
    """May have the configuration without keys: gRPC's own xDS clients."""
    gateways: PeerNames = ()
    """May ask for picks, and have no configuration: Envoys that others configure."""
    workers: PeerNames = ()
    """May follow the fleet, and report what they have in flight: ext_proc workers that run apart."""
    agents: PeerNames = ()
    """May report GPUs."""
    operators: PeerNames = ()
    """May use admin (beside its token, if it has one), and ask for the states of discovery's clients."""


class TlsSettings(Strict):
    """TLS of our own addresses. None: plaintext, on Unix sockets and loopback."""

    xds: ServerTlsSettings | None = None
    ext_proc: ServerTlsSettings | None = None
    control: ServerTlsSettings | None = None
    admin: ServerTlsSettings | None = None
    envoy: EnvoyTlsSettings | None = None
    workers: PeerTlsSettings | None = None
    """What ext_proc workers that run apart show to `control.address`."""
    roles: RoleSettings | None = None
    """Who may do what, wherever there is a `client_ca_file`; None: whom it has signed may do all."""


class ListenerTlsSettings(Strict):
    """TLS towards clients; Envoys get the certificate from xds_server."""

    certificate_file: PemFile
    key_file: PemFile
    ocsp_file: PemFile | None = None
    """A DER file with the certificate's OCSP response; None: none is read."""
    ocsp_fetch: bool = False
    """xds_server asks the certificate's OCSP responder for staples."""
    ocsp_url: ResponderUrl | None = None
    """Asked instead of the responder that the certificate names."""
    shared_tickets: bool = False
    """Clients resume sessions at any Envoy, by keys that xds_server draws and changes; False: at the same."""

    @model_validator(mode="after")
    def _one_staple(self) -> Self:
        if self.ocsp_file is not None and self.ocsp_fetch:
            raise ValueError("allowed: ocsp_file or ocsp_fetch, not both")
        if self.ocsp_url is not None and not self.ocsp_fetch:
            raise ValueError("allowed: ocsp_url with ocsp_fetch: true only")
        return self


class PoolTlsSettings(Strict):
    """TLS towards a pool's engines; Envoys get the certificates from xds_server."""

    ca_file: PemFile
    sni: DnsName
    """The name that engines are asked for, and that their certificates must carry."""
    certificate_file: PemFile | None = None
    key_file: PemFile | None = None
    """A certificate to show to engines that want one."""
    session_keys: Annotated[int, Field(ge=0, le=1000)] = 16
    """Sessions that Envoy remembers to resume; 0: each handshake is a full one."""

    @model_validator(mode="after")
    def _key_with_certificate(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("allowed: certificate_file and key_file together, or neither")
        return self
