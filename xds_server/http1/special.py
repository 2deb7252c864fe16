"""Addresses that cannot be an engine's: naming one may be an attempt to misuse xds_server."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_METADATA: Final = frozenset(
    map(
        ip_address,
        (
            *("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192"),
            *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"),
        ),
    )
)
"""Metadata services of clouds, which serve credentials of the host."""
_METADATA_NAMES: Final = frozenset(("metadata", "metadata.goog", "metadata.google.internal"))
_EMBEDDING: Final = tuple(map(IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""The last four bytes are an IPv4 address: NAT64 (RFC 6052), SIIT (RFC 2765), IPv4-compatible (RFC 4291)."""
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
"""RFC 8215: a network of the operator's own, in which the prefix may have any length of RFC 6052."""


def special(host: str) -> str:
    """Return why an address, or a host of a URL, is no engine's; empty: it may be one."""
    if host.lower().rstrip(".") in _METADATA_NAMES:
        return "metadata"
    ip = _parsed(host)
    if ip is None:
        return ""
    if isinstance(ip, IPv6Address):
        if ip in _LOCAL_NAT64:
            # The position of the address in it is unknown: only addresses that nobody has by chance count.
            reasons = map(_why, _translated(int(ip)))
            return next((why for why in reasons if why in ("metadata", "link-local")), "")
        return _why(_embedded(ip) or ip)
    return _why(ip)


def _why(ip: IPv4Address | IPv6Address) -> str:
    if ip in _METADATA:
        return "metadata"
    if ip.is_link_local:
        return "link-local"
    if ip.is_multicast:
        return "multicast"
    if isinstance(ip, IPv6Address):
        return "site-local" if ip.is_site_local else "unspecified" if ip.is_unspecified else ""
    if int(ip) >> 24 == 255:
        return "broadcast"
    # All of 0.0.0.0/8 is this host, or nobody.
    return "" if int(ip) >> 24 else "unspecified"


def _embedded(ip: IPv6Address) -> IPv4Address | None:
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    last = int(ip) & 0xFFFFFFFF
    # ::1 and its neighbours embed nothing.
    if last >> 24 and any(ip in network for network in _EMBEDDING):
        return IPv4Address(last)
    return None


def _translated(number: int) -> tuple[IPv4Address, ...]:
    """All IPv4 addresses that it may mean: after a prefix of 48, 56, 64 or 96 bits, without bits 64 to 71."""
    low, high = number & (1 << 56) - 1, number >> 64
    joined = high << 56 | low
    return tuple(IPv4Address(joined >> shift & 0xFFFFFFFF) for shift in (40, 32, 24, 0))


def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))  # As resolvers read it: 0xa9fea9fe, 2852039166.
    except (OSError, ValueError):
        return None
