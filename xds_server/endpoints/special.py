"""Addresses at which no engine is: whoever has a source name them wants something else of xds_server."""

from __future__ import annotations

import logging
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.endpoint import Endpoint
    from xds_server.endpoints.source import EndpointSource, Found

logger = logging.getLogger(__name__)

_METADATA: Final = frozenset(
    map(ip_address, ("169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
)
"""Of clouds: credentials of the host stand there."""
_METADATA_NAMES: Final = frozenset(("metadata", "metadata.google.internal"))
_MOST_NAMED: Final = 3
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
"""NAT64, RFC 6052: the last four bytes are an IPv4 address."""


def special(host: str) -> str:
    """Return why an address, or a host of a URL, is no engine's; empty: it may be one."""
    if host.lower().rstrip(".") in _METADATA_NAMES:
        return "metadata"
    ip = _parsed(host)
    if ip is None:
        return ""
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip in _TRANSLATED:
            ip = IPv4Address(int(ip) & 0xFFFFFFFF)
    if ip in _METADATA:
        return "metadata"
    if ip.is_link_local:
        return "link-local"
    if ip.is_multicast:
        return "multicast"
    if ip.version == 4 and int(ip) >> 24 == 255:
        return "broadcast"
    # All of 0.0.0.0/8 is this host, or nobody.
    return "unspecified" if ip.is_unspecified or (ip.version == 4 and not int(ip) >> 24) else ""


def left_out(endpoints: Iterable[Endpoint]) -> dict[str, str]:
    """Return those that are not to be asked: address to why."""
    found = {}
    for endpoint in endpoints:
        hosts = (endpoint.host, *map(_host, (endpoint.metrics_url, endpoint.gpu_metrics_url)))
        if why := next(filter(None, map(special, hosts)), ""):
            found[endpoint.address] = why
    return found


class Screened:
    """A source without those endpoints; whom it names is told once."""

    def __init__(self, source: EndpointSource) -> None:
        self._source = source
        self._left_out: dict[str, str] = {}

    @property
    def name(self) -> str:
        """What logs call it."""
        return self._source.name

    async def run(self, found: Found) -> None:
        """Run the source."""

        def screened(endpoints: tuple[Endpoint, ...]) -> None:
            refused = left_out(endpoints)
            self._tell(refused)
            if not refused:
                found(endpoints)
            # Nobody but these is nobody known: what was found before stays.
            elif kept := tuple(each for each in endpoints if each.address not in refused):
                found(kept)

        await self._source.run(screened)

    def _tell(self, refused: dict[str, str]) -> None:
        if refused and refused != self._left_out:
            named = [f"{address} ({why})" for address, why in islice(sorted(refused.items()), _MOST_NAMED)]
            more = f" and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
            text = "%s: left out: %s%s; set pools.discovery.special_addresses if engines are there"
            logger.warning(text, self.name, ", ".join(named), more)
        self._left_out = refused


def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))  # As resolvers read it: 0xa9fea9fe, 2852039166.
    except (OSError, ValueError):
        return None


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
