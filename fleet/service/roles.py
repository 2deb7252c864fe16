"""Roles of a peer by the names in its certificate: pure, the same for gRPC and for admin.

Only the DNS names and URIs (SPIFFE ids) of the subject's alternative names count. A DNS name that looks like
a URI is no URI. The names are read from the certificate itself: gRPC cuts a name at a zero byte, and
would report `envoy` for a longer name that the authority has signed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.settings import RoleSettings
    from fleet.settings.tls import Role

ROLES_OF_SERVICES: Final[Mapping[str, tuple[Role, ...]]] = {
    "envoy.service.discovery.v3.AggregatedDiscoveryService": ("envoys", "grpc_clients"),
    "envoy.service.cluster.v3.ClusterDiscoveryService": ("envoys", "grpc_clients"),
    "envoy.service.endpoint.v3.EndpointDiscoveryService": ("envoys", "grpc_clients"),
    "envoy.service.listener.v3.ListenerDiscoveryService": ("envoys", "grpc_clients"),
    "envoy.service.route.v3.RouteDiscoveryService": ("envoys", "grpc_clients"),
    "envoy.service.accesslog.v3.AccessLogService": ("envoys",),
    "envoy.service.status.v3.ClientStatusDiscoveryService": ("operators",),
    "envoy.service.ext_proc.v3.ExternalProcessor": ("envoys", "gateways"),
    "envoy.service.auth.v3.Authorization": ("envoys",),
    "warmroute.v1.FleetControl": ("workers",),
    "warmroute.v1.GpuReports": ("agents",),
}
"""gRPC service to the roles that may call it; any other service may not be called."""

_PATH: Final = re.compile(r"[A-Za-z0-9._/~!$&'()*+,;=:@-]*")
"""A path's characters (RFC 3986, section 3.3), none of them by its number."""
_SHOWN_NAMES: Final = 4
_SHOWN_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class PeerNames:
    """The names of a certificate by which roles are given."""

    dns: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()

    @classmethod
    def of(cls, certificate: x509.Certificate) -> PeerNames:
        """Read the names of a certificate; one whose names cannot be read has none."""
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            return cls(
                tuple(names.get_values_for_type(x509.DNSName)),
                tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
            )
        # The first is for a duplicate extension, the second for unsupported kinds of names.
        except (
            x509.DuplicateExtension,
            x509.UnsupportedGeneralNameType,
            x509.ExtensionNotFound,
            ValueError,
        ):
            return cls()

    def __str__(self) -> str:
        """In ASCII without control characters, and bounded: for logs and for the peer."""
        names = (*self.dns, *self.uris)
        if not names:
            return "no DNS name or URI"
        shown = ", ".join(ascii(name[:_SHOWN_CHARS]) for name in names[:_SHOWN_NAMES])
        return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"


def has_role(names: PeerNames, allowed: tuple[Role, ...], roles: RoleSettings | None) -> bool:
    """Whether one of the names has one of the allowed roles. Without roles, every peer has all."""
    if roles is None:
        return True
    return any(_matches(pattern, names) for role in allowed for pattern in getattr(roles, role))


def refusal(names: PeerNames, allowed: tuple[Role, ...], roles: RoleSettings | None) -> str | None:
    """Return why a peer is refused; None: it is not."""
    if has_role(names, allowed, roles):
        return None
    if not allowed:
        return f"the certificate shows {names}; no role may use this service"
    settings = " or ".join(f"tls.roles.{role}" for role in allowed)
    return f"the certificate shows {names}; allowed: a name in {settings}"


def _matches(pattern: str, names: PeerNames) -> bool:
    if "://" in pattern:
        return any(_matches_uri(pattern, uri) for uri in names.uris)
    pattern = pattern.lower()
    # In ASCII only: some other letters become plain ones in lower case, as the Kelvin sign does.
    return any(name.isascii() and _matches_dns(pattern, name.lower()) for name in names.dns)


def _matches_dns(pattern: str, name: str) -> bool:
    if not pattern.startswith("*."):
        return name == pattern
    first, _, rest = name.partition(".")
    return bool(first) and rest == pattern[2:]


def _matches_uri(pattern: str, uri: str) -> bool:
    if not pattern.endswith("/*"):
        return uri == pattern
    below = pattern[:-1]
    rest = uri[len(below) :]
    # No dot segments, no encoded characters, no query or fragment: a parser of the path must reach the same
    # result.
    return (
        uri.startswith(below)
        and _PATH.fullmatch(rest) is not None
        and not {"", ".", ".."} & set(rest.split("/"))
    )
