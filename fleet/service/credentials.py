"""Held certificates as gRPC and aiohttp want them: servers take over new ones with the next handshake."""

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
    from fleet.service.tls import Certificates, Held, Material
    from fleet.settings import PeerTlsSettings, ServerTlsSettings, Settings

logger = logging.getLogger(__name__)


def server_files(settings: ServerTlsSettings) -> Files:
    """The files of one of our addresses."""
    return Files(
        settings.certificate_file, settings.key_file, settings.client_ca_file, ca_field="client_ca_file"
    )


def hold_server(certificates: Certificates, settings: Settings, service: str) -> Held | None:
    """Hold what the settings name for a service; None: it speaks plaintext.

    Raises:
        SettingsError: the files cannot be used.
    """
    section: ServerTlsSettings | None = getattr(settings.tls, service)
    if section is None:
        return None
    return certificates.hold(service, f"tls.{service}", server_files(section))


def grpc_server(
    certificates: Certificates, settings: Settings, service: str
) -> grpc.ServerCredentials | None:
    """Credentials of one of our gRPC services; None: it speaks plaintext.

    Raises:
        SettingsError: the files cannot be used.
    """
    held = hold_server(certificates, settings, service)
    return held and server_credentials(held)


def gate_of(certificates: Certificates, settings: Settings, service: str) -> Gate | None:
    """Make what checks names at one of our addresses; None: it asks for no certificates."""
    section: ServerTlsSettings | None = getattr(settings.tls, service)
    if section is None or section.client_ca_file is None:
        return None
    return Gate(service, settings.tls.roles, certificates.refusals)


def grpc_gate(certificates: Certificates, settings: Settings, service: str) -> GrpcGate | None:
    """Make what checks names before one of our gRPC servers; None: it asks for no certificates."""
    gate = gate_of(certificates, settings, service)
    return None if gate is None else GrpcGate(gate, lasting=service != "ext_proc")


def server_credentials(held: Held) -> grpc.ServerCredentials:
    """Credentials that follow what is held; with authorities clients must show a certificate."""
    given = held.material

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Called before each handshake, on a thread of gRPC's; None: as before."""
        nonlocal given
        newest = held.material
        if newest is given:
            return None
        given = newest
        return _configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(given), fetch, require_client_authentication=bool(given.ca)
    )


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], root_certificates=material.ca or None
    )


class Dialler:
    """Opens channels to one address, each with the newest certificates; without any in plaintext."""

    def __init__(self, address: str, held: Held | None = None, server_name: str = "") -> None:
        """`server_name` is what the server's certificate must carry, wherever it listens."""
        self.address = address
        self._held = held
        self._server_name = server_name
        self._given = None if held is None else held.material
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
        """Hold the files that the settings name at `path`, or options that begin with `flags`.

        Raises:
            SettingsError: they cannot be used.
        """
        if settings is None:
            return cls(address)
        files = Files(settings.certificate_file, settings.key_file, settings.ca_file, flags=flags)
        use = path.rpartition(".")[2]
        return cls(address, certificates.hold(use, path, files), settings.server_name)

    @property
    def speaks_tls(self) -> bool:
        """Whether its channels speak TLS, and show a certificate."""
        return self._held is not None

    @property
    def stale(self) -> bool:
        """Whether a new channel would be another one: with newer certificates, or fewer pings."""
        return self._too_many_pings or (self._held is not None and self._held.material is not self._given)

    def heed(self, permitted_ping_seconds: float | None) -> bool:
        """Ping no more often than a server permits, as it tells at the start; None: it does not tell.

        Returns whether the channel has to be opened anew for that.
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
        if self._held is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        given = self._given = self._held.material
        return grpc.aio.secure_channel(
            self.address,
            grpc.ssl_channel_credentials(given.ca, given.key, given.certificate),
            options=(*options, ("grpc.ssl_target_name_override", self._server_name)),
        )


class HttpContext(ssl.SSLContext):
    """Context of an HTTP server for one set of files."""

    retired = False
    """Whether another one has taken its place: its connections should end when that hurts nobody."""


class _Newest(ssl.SSLContext):
    """Gives each connection to the newest context, whole.

    Only so are sessions gone with the context that began them: one that is merely exchanged in the midst of a
    handshake leaves tickets in force, by which a client comes back whose authority is no more.
    """

    newest: HttpContext

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        return self.newest.wrap_bio(*given, **named)


def http_server(held: Held) -> ssl.SSLContext:
    """Context of an HTTP server that follows what is held, from one connection to the next.

    Raises:
        OSError: the files cannot be used.
    """
    context = _Newest(ssl.PROTOCOL_TLS_SERVER)
    context.newest = http_context(held.files)

    def renew() -> None:
        try:
            made = http_context(held.files)
        except OSError as error:
            logger.error("certificates of %s from before stay in force: %s", held.use, cause_of(error))
            return
        context.newest.retired = True
        context.newest = made

    held.on_change.append(renew)
    return context


def http_context(files: Files) -> HttpContext:
    """Make the context of an HTTP server.

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
    return context
