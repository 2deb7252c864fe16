"""Who a peer is, by the names in its certificate: pure, the same for gRPC and for admin.

Only DNS names and URIs (SPIFFE ids) of the subject's alternative names count, each as what it is: a DNS name
that looks like a URI is none. They are read from the certificate itself, because gRPC cuts names at a zero
byte and would show `envoy` where the authority has signed another name.
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
    "warmroute.v1.FleetControl": ("workers",),
    "warmroute.v1.GpuReports": ("agents",),
}
"""gRPC service to who may call it; a service that is not here is nobody's."""

_PATH: Final = re.compile(r"[A-Za-z0-9._/~!$&'()*+,;=:@-]*")
"""A path's characters (RFC 3986, section 3.3), none of them by its number."""
_SHOWN_NAMES: Final = 4
_SHOWN_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class PeerNames:
    """The alternative names of a certificate that count."""

    dns: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()

    @classmethod
    def of(cls, certificate: x509.Certificate) -> PeerNames:
        """Read them; a certificate whose names cannot be read has none."""
        try:
            held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            return cls(
                tuple(held.get_values_for_type(x509.DNSName)),
                tuple(held.get_values_for_type(x509.UniformResourceIdentifier)),
            )
        # Of these two the first is for names that are written down twice, the second for kinds nobody knows.
        except (
            x509.DuplicateExtension,
            x509.UnsupportedGeneralNameType,
            x509.ExtensionNotFound,
            ValueError,
        ):
            return cls()

    def __str__(self) -> str:
        """In ASCII without control characters, and bounded: it goes to logs and to the peer."""
        names = (*self.dns, *self.uris)
        if not names:
            return "no DNS name or URI"
        shown = ", ".join(ascii(name[:_SHOWN_CHARS]) for name in names[:_SHOWN_NAMES])
        return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES} more"


def has_role(names: PeerNames, allowed: tuple[Role, ...], roles: RoleSettings | None) -> bool:
    """Whether the settings give any of the allowed roles to one of the names; without roles all have all."""
    if roles is None:
        return True
    return any(_matches(pattern, names) for role in allowed for pattern in getattr(roles, role))


def refusal(names: PeerNames, allowed: tuple[Role, ...], roles: RoleSettings | None) -> str | None:
    """Say why a peer is refused; None: it is not."""
    if has_role(names, allowed, roles):
        return None
    if not allowed:
        return f"the certificate shows {names}; this service is nobody's"
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
    # Without steps that lead elsewhere, or anything that may stand for them or end the path: what reads the
    # URI as a path must come to the same.
    return (
        uri.startswith(below)
        and _PATH.fullmatch(rest) is not None
        and not {"", ".", ".."} & set(rest.split("/"))
    )
