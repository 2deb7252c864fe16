"""TLS in Envoy's configuration: listeners, pools, and Envoy's own connections to xds_server and ext_proc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from envoy_data_plane.envoy.config.core.v3 import TransportSocket
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CommonTlsContext,
    DownstreamTlsContext,
    DownstreamTlsContextOcspStaplePolicy,
    SdsSecretConfig,
    TlsParameters,
    TlsParametersTlsProtocol,
    UpstreamTlsContext,
)

from xds_server.envoy.extension import over_ads, packed
from xds_server.tls.secret_names import (
    listener_certificate,
    listener_tickets,
    pool_authorities,
    pool_certificate,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.settings import EnvoyTlsSettings, ListenerSettings, PoolSettings, Settings

_SOCKET: Final = "envoy.transport_sockets.tls"
_UPSTREAM: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
_SECRET: Final = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 - a type

SDS_FILES: Final = ("warmroute-client", "warmroute-authorities")
"""Names of the secrets on Envoys' own hosts; those that we send have a slash."""


def downstream(listener: ListenerSettings) -> TransportSocket | None:
    """A listener's side towards clients; None: plaintext."""
    if listener.tls is None:
        return None
    policy = DownstreamTlsContextOcspStaplePolicy.LENIENT_STAPLING
    shared = listener.tls.shared_tickets
    return _socket(
        DownstreamTlsContext(
            common_tls_context=CommonTlsContext(
                tls_params=_at_least_1_2(),
                tls_certificate_sds_secret_configs=[_by_ads(listener_certificate(listener.name))],
                alpn_protocols=["h2", "http/1.1"],
            ),
            # An outdated staple is left out, so that it never ends a handshake.
            ocsp_staple_policy=policy,
            session_ticket_keys_sds_secret_config=_by_ads(listener_tickets(listener.name))
            if shared
            else None,
        )
    )


def upstream(pool: PoolSettings, alpn_protocols: Sequence[str] = ("http/1.1",)) -> TransportSocket | None:
    """A pool's side towards its engines; None: plaintext."""
    if pool.tls is None:
        return None
    shown = [_by_ads(pool_certificate(pool.name))] if pool.tls.certificate_file is not None else []
    context = CommonTlsContext(
        tls_params=_at_least_1_2(),
        tls_certificate_sds_secret_configs=shown,
        validation_context_sds_secret_config=_by_ads(pool_authorities(pool.name)),
        alpn_protocols=list(alpn_protocols),
    )
    return _socket(
        UpstreamTlsContext(
            common_tls_context=context, sni=pool.tls.sni, max_session_keys=pool.tls.session_keys
        )
    )


def ext_proc_socket(settings: Settings) -> TransportSocket | None:
    """Envoy's side towards ext_proc; None: plaintext."""
    if settings.tls.ext_proc is None or settings.tls.envoy is None:
        return None
    return _socket(UpstreamTlsContext.from_dict(_context(settings.tls.envoy)))


def bootstrap_socket(tls: EnvoyTlsSettings) -> dict[str, Any]:
    """Envoy's side towards xds_server, as plain data."""
    return {"name": _SOCKET, "typed_config": {"@type": _UPSTREAM, **_context(tls)}}


def sds_file(tls: EnvoyTlsSettings, name: str) -> dict[str, Any]:
    """What the file `NAME.yaml` of `tls.envoy.sds_directory` holds, as plain data.

    Envoy watches the folders that it names, and refuses a file with two secrets.
    """
    if name == SDS_FILES[0]:
        watched = {"watched_directory": _directory(tls.certificate_file)}
        secret = {"tls_certificate": {**_client_certificate(tls), **watched}}
    else:
        watched = {"watched_directory": _directory(tls.ca_file)}
        authorities = {"trusted_ca": {"filename": tls.ca_file}}
        secret = {"validation_context": {**authorities, **_name_check(tls), **watched}}
    return {"resources": [{"@type": _SECRET, "name": name, **secret}]}


def _context(tls: EnvoyTlsSettings) -> dict[str, Any]:
    common: dict[str, Any] = {"alpn_protocols": ["h2"]}
    if tls.sds_directory is None:
        common["tls_certificates"] = [_client_certificate(tls)]
        common["validation_context"] = {"trusted_ca": {"filename": tls.ca_file}, **_name_check(tls)}
    else:
        common["tls_certificate_sds_secret_configs"] = [_by_file(SDS_FILES[0], tls.sds_directory)]
        common["validation_context_sds_secret_config"] = _by_file(SDS_FILES[1], tls.sds_directory)
    return {"common_tls_context": common, "sni": tls.server_name}


def _client_certificate(tls: EnvoyTlsSettings) -> dict[str, Any]:
    return {
        "certificate_chain": {"filename": tls.certificate_file},
        "private_key": {"filename": tls.key_file},
    }


def _name_check(tls: EnvoyTlsSettings) -> dict[str, Any]:
    # Without it, the owner of any certificate of the same authorities could impersonate xds_server.
    name = {"san_type": "DNS", "matcher": {"exact": tls.server_name}}
    return {"match_typed_subject_alt_names": [name]}


def _by_file(name: str, directory: str) -> dict[str, Any]:
    source = {"path": f"{directory.rstrip('/')}/{name}.yaml", "watched_directory": {"path": directory}}
    return {"name": name, "sds_config": {"path_config_source": source, "resource_api_version": "V3"}}


def _directory(path: str) -> dict[str, str]:
    return {"path": path.rpartition("/")[0] or "/"}


def _by_ads(name: str) -> SdsSecretConfig:
    return SdsSecretConfig(name=name, sds_config=over_ads())


def _at_least_1_2() -> TlsParameters:
    return TlsParameters(tls_minimum_protocol_version=TlsParametersTlsProtocol.TLSv1_2)


def _socket(context: DownstreamTlsContext | UpstreamTlsContext) -> TransportSocket:
    return TransportSocket(name=_SOCKET, typed_config=packed(context))
