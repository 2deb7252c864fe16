"""The names of LoRA adapters, from engines' events."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

MAX_NAMES: Final = 4096
"""Of one endpoint; the name without events for the longest time goes first."""


class AdapterNames:
    """By endpoint. Bounded, single-threaded."""

    def __init__(self) -> None:
        self._names: dict[str, OrderedDict[str, None]] = {}
        """By endpoint, the name with the oldest event first."""
        self._endpoints: dict[str, set[str]] = {}
        """By name."""
        self._numbered: set[str] = set()
        """Endpoints that publish numbers, which no request can name: vLLM up to 0.15."""

    def add(self, address: str, adapter: str) -> None:
        """Add the adapter of an endpoint's event, spelled as in `Stored`."""
        if adapter.startswith("\0"):
            self._numbered.add(address)
            return
        self._numbered.discard(address)
        names = self._names.setdefault(address, OrderedDict())
        names[adapter] = None
        names.move_to_end(adapter)
        self._endpoints.setdefault(adapter, set()).add(address)
        if len(names) > MAX_NAMES:
            self._remove(address, names.popitem(last=False)[0])

    def forget(self, address: str) -> None:
        """Forget an endpoint."""
        self._numbered.discard(address)
        for name in self._names.pop(address, ()):
            self._remove(address, name)

    def has(self, name: str, addresses: AbstractSet[str]) -> bool:
        """Whether one of these endpoints has published blocks of an adapter with this name."""
        return not self._endpoints.get(name, set()).isdisjoint(addresses)

    def numbered(self, addresses: AbstractSet[str]) -> bool:
        """Whether one of these endpoints publishes adapters by number."""
        return not self._numbered.isdisjoint(addresses)

    def _remove(self, address: str, name: str) -> None:
        endpoints = self._endpoints[name]
        endpoints.discard(address)
        if not endpoints:
            del self._endpoints[name]
