"""Certificates in the forms of gRPC and of ssl. Servers use renewed ones from the next handshake on."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Any

import grpc

from fleet.cause import cause_of
from fleet.service.gate import Gate, GrpcGate
from fleet.service.serving import PING_SECONDS, channel_options
from fleet.service.tls import Files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.service.tls import CertificateProvider, Certificates, Material
    from fleet.settings import PeerTlsSettings, ServerTlsSettings, Settings

logger = logging.getLogger(__name__)


def certificate_provider(
    certificates: Certificates, settings: Settings, service: str
) -> CertificateProvider | None:
    """Watch the files of a service's address; None: the service speaks plaintext.

    Raises:
        SettingsError: the files cannot be used.
    """
    section: ServerTlsSettings | None = getattr(settings.tls, service)
    if section is None:
        return None
    ca = section.client_ca_file
    files = Files(section.certificate_file, section.key_file, ca, ca_field="client_ca_file")
    return certificates.watch(service, f"tls.{service}", files)


def grpc_server(
    certificates: Certificates, settings: Settings, service: str
) -> grpc.ServerCredentials | None:
    """Return the credentials of one of our gRPC services; None: the service speaks plaintext.

    Raises:
        SettingsError: the files cannot be used.
    """
    provider = certificate_provider(certificates, settings, service)
    return provider and server_credentials(provider)


def gate_of(certificates: Certificates, settings: Settings, service: str) -> Gate | None:
    """Make the check of names at one of our addresses; None: the address requests no certificates."""
    section: ServerTlsSettings | None = getattr(settings.tls, service)
    if section is None or section.client_ca_file is None:
        return None
    return Gate(service, settings.tls.roles, certificates.refusals)


def grpc_gate(certificates: Certificates, settings: Settings, service: str) -> GrpcGate | None:
    """Make the check of names in front of a gRPC server; None: the server requests no certificates."""
    gate = gate_of(certificates, settings, service)
    return None if gate is None else GrpcGate(gate, lasting=service != "ext_proc")


def server_credentials(provider: CertificateProvider) -> grpc.ServerCredentials:
    """Return credentials that follow a provider. With authorities, clients must show a certificate."""
    current = provider.material

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Return a changed configuration, or None. gRPC calls it on its thread before each handshake."""
        nonlocal current
        newest = provider.material
        if newest is current:
            return None
        current = newest
        return _configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(current), fetch, require_client_authentication=bool(current.ca)
    )


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], root_certificates=material.ca or None
    )


class Dialler:
    """Opens channels to one address, each with the newest certificates; without a provider in plaintext."""

    def __init__(
        self, address: str, provider: CertificateProvider | None = None, server_name: str = ""
    ) -> None:
        """`server_name` is the name that the server's certificate must carry, wherever the server listens."""
        self.address = address
        self._provider = provider
        self._server_name = server_name
        self._material = None if provider is None else provider.material
        """Of the newest channel."""
        self._ping_seconds = PING_SECONDS
        self._too_many_pings = False

    @classmethod
    def of(
        cls,
        address: str,
        settings: PeerTlsSettings | None,
        path: str,
        certificates: Certificates,
        flags: str = "",
    ) -> Dialler:
        """Watch the files that the settings name at `path`, or options that begin with `flags`.

        Raises:
            SettingsError: the files cannot be used.
        """
        if settings is None:
            return cls(address)
        files = Files(settings.certificate_file, settings.key_file, settings.ca_file, flags=flags)
        use = path.rpartition(".")[2]
        return cls(address, certificates.watch(use, path, files), settings.server_name)

    @property
    def speaks_tls(self) -> bool:
        """Whether its channels speak TLS, and show a certificate."""
        return self._provider is not None

    @property
    def stale(self) -> bool:
        """Whether a new channel would differ: in its certificates, or in the pause between pings."""
        changed = self._provider is not None and self._provider.material is not self._material
        return self._too_many_pings or changed

    def limit_pings(self, permitted_ping_seconds: float | None) -> bool:
        """Ping no more often than the server permits in its initial metadata; None: no limit is named.

        Returns whether that takes a new channel.
        """
        if permitted_ping_seconds is None or permitted_ping_seconds <= self._ping_seconds:
            return False
        logger.warning(
            "%s permits a ping in %g s: from now on it gets no more, so that it does not end connections",
            self.address,
            permitted_ping_seconds,
        )
        self._ping_seconds, self._too_many_pings = permitted_ping_seconds, True
        return True

    def open(self) -> grpc.aio.Channel:
        """Open a channel."""
        self._too_many_pings = False
        options = channel_options(self._ping_seconds)
        if self._provider is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        material = self._material = self._provider.material
        return grpc.aio.secure_channel(
            self.address,
            grpc.ssl_channel_credentials(material.ca, material.key, material.certificate),
            options=(*options, ("grpc.ssl_target_name_override", self._server_name)),
        )


class HttpContext(ssl.SSLContext):
    """Context of a server of ours for one set of files."""

    retired = False
    """Whether a newer context has replaced this one: its connections should end after their next response."""


class _Newest(ssl.SSLContext):
    """Hands each connection to the newest context.

    A context that only exchanges its certificates keeps session tickets valid, and a client whose authority
    has been withdrawn could resume its session. A whole new context invalidates them.
    """

    newest: HttpContext

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self.newest.wrap_bio(*args, **options)


def http_server(provider: CertificateProvider, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the context of a server that follows a provider, from one connection to the next.

    `protocols` are for ALPN.

    Raises:
        OSError: the files cannot be used.
    """
    context = _Newest(ssl.PROTOCOL_TLS_SERVER)
    context.newest = http_context(provider.files, protocols)

    def renew() -> None:
        try:
            renewed = http_context(provider.files, protocols)
        except OSError as error:
            logger.error("certificates of %s from before stay in force: %s", provider.use, cause_of(error))
            return
        context.newest.retired = True
        context.newest = renewed

    provider.on_change.append(renew)
    return context


def http_context(files: Files, protocols: Sequence[str] = ()) -> HttpContext:
    """Make the context of a server.

    Raises:
        OSError: the files cannot be used.
    """
    assert files.certificate_file is not None
    context = HttpContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_flags = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).verify_flags
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate_file, files.key_file)
    if files.ca_file is not None:
        context.load_verify_locations(files.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    if protocols:
        context.set_alpn_protocols(protocols)
    return context
