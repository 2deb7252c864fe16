"""The endpoints that a gateway allows for a request, by the endpoint-picker protocol.

`ip:port` allows one endpoint, `ip` alone every port of that address: several engines may share one. The
protocol is proposal 004 of the Gateway API Inference Extension.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CACHED: Final = 256
"""A gateway sends the same list with every request of a route."""


class Subset:
    """A set of endpoints, made once for each list of entries, so that results can be kept beside it."""

    __slots__ = ("_addresses", "_hosts", "entries")

    def __init__(self, entries: tuple[str, ...]) -> None:
        self.entries = entries
        self._addresses: frozenset[tuple[str, str]] | None = None
        self._hosts: frozenset[str] = frozenset()

    def admits(self, address: str) -> bool:
        """Whether an endpoint, `host:port`, is among them."""
        if self._addresses is None:
            split = [split_address(entry) for entry in self.entries]
            self._addresses = frozenset((host, port) for host, port in split if port)
            self._hosts = frozenset(host for host, port in split if not port)
        host, port = split_address(address)
        return (host, port) in self._addresses or host in self._hosts

    def rows(
        self, position: Mapping[str, int], hosts: Callable[[], Mapping[str, Mapping[str, int]]]
    ) -> list[int]:
        """Return the rows of all that are admitted; one may be named more than once.

        `position` is an endpoint's row by its address, `hosts` gives it by host and port, as `by_host` does:
        it is asked where an entry is not spelt as an address. Takes as long as there are entries.
        """
        found: list[int] = []
        for entry in self.entries:
            if (row := position.get(entry)) is not None:
                found.append(row)
                continue
            host, port = split_address(entry)
            ports = hosts().get(host)
            if ports is not None:
                found += ports.values() if not port else [ports[port]] if port in ports else ()
        return found


def by_host(position: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return rows by host and port of addresses with their rows."""
    result: dict[str, dict[str, int]] = {}
    for address, row in position.items():
        host, port = split_address(address)
        result.setdefault(host, {})[port] = row
    return result


@lru_cache(maxsize=_CACHED)
def subset(entries: tuple[str, ...]) -> Subset:
    """Return the set of these entries, the same object each time."""
    return Subset(entries)


def split_address(entry: str) -> tuple[str, str]:
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
