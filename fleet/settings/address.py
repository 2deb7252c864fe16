"""The kinds of address in settings, each checked where it is read."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_MAX_PORT: Final = 65535
WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104
"""Hosts of listeners on all addresses of a host."""
MAX_SOCKET_PATH_BYTES: Final = 104
"""Linux allows 107, macOS 103; gRPC needs the closing zero."""


def split_host_port(address: str) -> tuple[str, int]:
    """Split `host:port` or `[v6]:port`.

    Raises:
        ValueError: the address has neither form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= _MAX_PORT:
        raise ValueError("allowed: host:port with a port from 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise ValueError("allowed: an IPv6 address in the brackets, then :port") from None
        return host[1:-1], int(port)
    if not _HOST.fullmatch(host):
        raise ValueError("allowed: a host name, an IPv4 address, or an IPv6 address in brackets, then :port")
    return host, int(port)


Transport = Literal["lane", "grpcio"]
"""The gRPC server of an address: Warmroute's own, or grpcio's."""


def transport_in_force(transport: Transport | None, address: str) -> Transport:
    """Return a setting, by default the lane for peers on this host and grpcio for others."""
    return transport or ("lane" if is_local(address) else "grpcio")


def is_local(address: str) -> bool:
    """Whether an address is a Unix socket or on the loopback interface."""
    if address.startswith("unix:"):
        return True
    host, _ = split_host_port(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def same_socket(one: str, other: str) -> bool:
    """Whether one host cannot listen on both addresses. An empty address is none."""
    if not one or not other or "unix:" in (one[:5], other[:5]):
        return bool(one) and one == other
    (host, port), (other_host, other_port) = split_host_port(one), split_host_port(other)
    hosts = {host, other_host}
    loopback = "localhost" in hosts and is_local(one) and is_local(other)
    return port == other_port and (len(hosts) == 1 or loopback or not hosts.isdisjoint(WILDCARDS))


def _tcp(address: str) -> str:
    split_host_port(address)
    return address


def _tcp_or_none(address: str) -> str:
    return _tcp(address) if address else address


def _ip(address: str) -> str:
    host, port = split_host_port(address)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError("allowed: ip:port, because Envoy's EDS and listeners take no host names") from None
    if isinstance(ip, ipaddress.IPv6Address) and ip.scope_id is not None:
        raise ValueError("allowed: addresses without a scope, because Envoy spells scopes differently")
    return _envoys_spelling(ip, port)


def _envoys_spelling(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """Spell an address as Envoy does: it identifies an endpoint, and picks are compared as text."""
    if isinstance(ip, ipaddress.IPv4Address):
        return f"{ip}:{port}"
    # As in inet_ntop(3), these two kinds end in dotted decimals.
    if ip.ipv4_mapped is not None:
        return f"[::ffff:{ip.ipv4_mapped}]:{port}"
    if 0xFFFF < int(ip) <= 0xFFFF_FFFF:
        return f"[::{ipaddress.IPv4Address(int(ip))}]:{port}"
    return f"[{ip}]:{port}"


def _server(address: str) -> str:
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/") or len(path.encode()) >= MAX_SOCKET_PATH_BYTES:
            raise ValueError("allowed: unix: and an absolute path of at most 103 bytes")
        return address
    if address.startswith("/"):
        raise ValueError(f"allowed: unix: and an absolute path, or host:port; did you mean 'unix:{address}'?")
    try:
        return _tcp(address)
    except ValueError as error:
        tcp_form = str(error).removeprefix("allowed: ")
        raise ValueError(f"allowed: unix: and an absolute path, or {tcp_form}") from None


OptionalTcpAddress = Annotated[str, AfterValidator(_tcp_or_none)]
"""Empty: none."""
IpAddress = Annotated[str, AfterValidator(_ip)]
ServerAddress = Annotated[str, AfterValidator(_server)]
