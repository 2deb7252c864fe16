"""The endpoints that a gateway allows for a request, by the endpoint-picker protocol.

`ip:port` allows one endpoint, `ip` alone every port of that address: several engines may share one. The
protocol is proposal 004 of the Gateway API Inference Extension.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

_CACHED: Final = 256
"""A gateway sends the same list with every request of a route."""


class Subset:
    """A set of endpoints, made once for each list of entries, so that results can be kept beside it."""

    __slots__ = ("_addresses", "_hosts", "entries")

    def __init__(self, entries: tuple[str, ...]) -> None:
        self.entries = entries
        split = [_split(entry) for entry in entries]
        self._addresses = frozenset((host, port) for host, port in split if port)
        self._hosts = frozenset(host for host, port in split if not port)

    def admits(self, address: str) -> bool:
        """Whether an endpoint, `host:port`, is among them."""
        host, port = _split(address)
        return (host, port) in self._addresses or host in self._hosts


@lru_cache(maxsize=_CACHED)
def subset(entries: tuple[str, ...]) -> Subset:
    """Return the set of these entries, the same object each time."""
    return Subset(entries)


def _split(entry: str) -> tuple[str, str]:
    """Split into host and port; the port is empty where there is none. IPv6 is spelt in one way."""
    if entry.count(":") <= 1:
        host, _, port = entry.partition(":")
        return host, port
    host, port = entry, ""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        port = rest.removeprefix(":")
    try:
        return str(IPv6Address(host)), port
    except ValueError:
        return host, port
