"""The endpoints that a gateway allows for a request, by the endpoint-picker protocol.

`ip:port` allows one endpoint, `ip` alone every port of that address: several engines may share one. The
protocol is proposal 004 of the Gateway API Inference Extension.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST_ENTRIES: Final = 65_536
"""Of all cached sets: a gateway sends the same list with every request of a route."""


class Subset:
    """A set of endpoints, made once for each list of entries, so that results can be cached by it."""

    __slots__ = ("_split", "entries")

    def __init__(self, entries: tuple[str, ...]) -> None:
        self.entries = entries
        self._split: dict[tuple[str, str], None] | None = None

    @property
    def split(self) -> dict[tuple[str, str], None]:
        """Host and port of each entry, in order; an empty port means any. Read once: IPv6 is slow."""
        if self._split is None:
            self._split = dict.fromkeys(map(split_address, self.entries))
        return self._split

    def admits(self, address: str) -> bool:
        """Whether an endpoint, `host:port`, is among them."""
        host, port = split_address(address)
        return (host, port) in self.split or (host, "") in self.split

    def rows(
        self, position: Mapping[str, int], hosts: Callable[[], Mapping[str, Mapping[str, int]]]
    ) -> list[int]:
        """Return the rows of all admitted endpoints; a row may occur more than once.

        `position` has rows by address, and `hosts` returns them by host and port, as `by_host` does, for
        entries that are not spelt as addresses. The time is proportional to the number of entries.
        """
        named = [position.get(entry) for entry in self.entries]
        rows = [row for row in named if row is not None]
        if len(rows) == len(named):
            return rows
        for host, port in self.split:
            ports = hosts().get(host)
            if ports is not None:
                rows += ports.values() if not port else [ports[port]] if port in ports else ()
        return rows


def by_host(position: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return rows by host and port of addresses with their rows."""
    result: dict[str, dict[str, int]] = {}
    for address, row in position.items():
        host, port = split_address(address)
        result.setdefault(host, {})[port] = row
    return result


class Subsets:
    """The recent sets, so that equal entries give the same object: bounded by all their entries."""

    __slots__ = ("_entries", "_kept")

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], Subset] = {}
        """The most recent ones last."""
        self._entries = 0

    def __call__(self, entries: tuple[str, ...]) -> Subset:
        """Return the set of these entries."""
        kept = self._kept.pop(entries, None)
        if kept is None:
            kept = Subset(entries)
            self._entries += 1 + len(entries)
            while self._entries > _MOST_ENTRIES and self._kept:
                oldest = next(iter(self._kept))
                self._entries -= 1 + len(oldest)
                del self._kept[oldest]
        self._kept[kept.entries] = kept
        return kept


subset: Final = Subsets()


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
