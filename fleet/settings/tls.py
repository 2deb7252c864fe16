"""TLS: the services' own certificates, what is shown to them, and what Envoys' listeners and pools use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import Field, model_validator

from fleet.settings.address import is_local
from fleet.settings.strict import Strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.settings.model import Settings

PemFile = Annotated[str, Field(pattern=r"^/[^\x00]*$", max_length=4096)]
DnsName = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$",
        max_length=253,
    ),
]
PeerName = Annotated[
    str,
    Field(
        pattern=r"^((\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?|[a-z][a-z0-9+.-]*://[!-)+-~]+(/\*)?)$",
        max_length=2048,
    ),
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


Path = tuple[int | str, ...]

SAFE_FOR_KEYS: Final = "xds.address a Unix socket, or tls.xds with client_ca_file"
NEEDED_ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "xds": ("envoys", "grpc_clients"),
    "ext_proc": ("envoys", "gateways"),
    "control": ("workers",),
    "admin": ("operators",),
}
"""Service to the roles for which it is there."""


def contradictions(settings: Settings) -> Iterator[tuple[Path, str]]:
    """Path and text of what cannot be together."""
    tls = settings.tls
    for service in ("xds", "ext_proc"):
        if getattr(tls, service) is not None and tls.envoy is None:
            yield ("tls", service), "without tls.envoy no Envoy could connect; allowed: both or neither"
    if tls.control is not None and tls.workers is None:
        yield ("tls", "control"), "without tls.workers no worker could connect; allowed: both or neither"
    admin, workers = tls.admin, settings.ext_proc.workers
    if admin is not None and admin.client_ca_file is not None and workers > 1:
        yield (
            ("tls", "admin", "client_ca_file"),
            f"allowed: none with ext_proc.workers = {workers}, whose parent asks them without one",
        )
    yield from _nobody(settings)
    if keys_are_safe(settings):
        return
    text = f"anybody could have a key; allowed: {SAFE_FOR_KEYS}"
    yield from ((("listeners", i, "tls"), text) for i, held in enumerate(settings.listeners) if held.tls)
    yield from ((("pools", i, "tls"), text) for i, held in enumerate(settings.pools) if held.tls)


def _nobody(settings: Settings) -> Iterator[tuple[Path, str]]:
    """Roles without which an address that asks for certificates is of no use to anybody."""
    tls = settings.tls
    if tls.roles is None:
        return
    asking = _asking(settings)
    if not asking:
        yield ("tls", "roles"), "nobody is asked for a certificate; allowed: with a client_ca_file only"
    for service in asking:
        needed = NEEDED_ROLES[service]
        if not any(getattr(tls.roles, role) for role in needed):
            yield (
                ("tls", "roles", needed[0]),
                f"without a name nobody could use tls.{service}; allowed: at least one"
                + "".join(f", or one in {role}" for role in needed[1:]),
            )


def keys_are_safe(settings: Settings) -> bool:
    """Whether nobody but those who are let in can read what xds_server sends."""
    own = settings.tls.xds
    return settings.xds.address.startswith("unix:") or (own is not None and own.client_ca_file is not None)


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Certificates that are as good as each other because no names are set."""

    text: str
    """With the path in front, and what to write."""
    keys: bool
    """Whether others than Envoys are certain to have certificates by which they can fetch keys."""


def unnamed(settings: Settings) -> Unnamed | None:
    """Say which roles cannot be told apart; None: they can, or there are no certificates to tell them by."""
    tls, asking = settings.tls, _asking(settings)
    if tls.roles is not None or not asking:
        return None
    roles = dict.fromkeys(role for service in asking for role in NEEDED_ROLES[service][:1])
    wanted = ", ".join(f"{role}: [NAME]" for role in roles)
    sends_keys = any(held.tls for held in settings.listeners) or any(
        held.tls is not None and held.tls.key_file for held in settings.pools
    )
    shared = {asking[service] for service in ("control", "admin") if service in asking}
    keys = sends_keys and asking.get("xds") in shared
    what = "fetch the keys of listeners and pools" if keys else "do what any of them may do"
    where = ", ".join(f"tls.{service}" for service in asking)
    text = (
        f"tls.roles: not set, so every certificate that a client_ca_file of {where} has signed may {what};"
        f" allowed: the names in them, by role, as in `roles: {{{wanted}, agents: []}}`"
    )
    return Unnamed(text, keys)


def _asking(settings: Settings) -> dict[str, str]:
    """Services that ask for certificates, and whose."""
    found = {}
    for service in NEEDED_ROLES:
        held: ServerTlsSettings | None = getattr(settings.tls, service)
        if held is not None and held.client_ca_file is not None:
            found[service] = held.client_ca_file
    return found


def guarded(settings: Settings, path: str, address: str) -> str | None:
    """What an exposed address lacks; None if its TLS is enough."""
    service = path.partition(".")[0]
    held: ServerTlsSettings | None = getattr(settings.tls, service)
    if is_local(address):
        return None
    if held is None:
        return f"a Unix socket or loopback, or tls.{service}, or allow_plaintext: true"
    if service != "admin" and held.client_ca_file is None:
        return f"a Unix socket or loopback, or tls.{service}.client_ca_file"
    return None
