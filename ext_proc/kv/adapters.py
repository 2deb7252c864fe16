"""Which names are LoRA adapters', as engines' events tell."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

MAX_NAMES: Final = 4096
"""Of one endpoint; beyond, the one told longest ago goes."""


class AdapterNames:
    """By endpoint. Bounded, single-threaded."""

    def __init__(self) -> None:
        self._named: dict[str, OrderedDict[str, None]] = {}
        """Names that an endpoint has told, the one told longest ago first."""
        self._tellers: dict[str, set[str]] = {}
        """The same the other way round."""
        self._numbering: set[str] = set()
        """Endpoints that tell numbers instead, which no request can name: vLLM up to 0.15."""

    def note(self, address: str, adapter: str) -> None:
        """Take note that an endpoint has told of an adapter, spelled as in `Stored`."""
        if adapter.startswith("\0"):
            self._numbering.add(address)
            return
        self._numbering.discard(address)
        names = self._named.setdefault(address, OrderedDict())
        names[adapter] = None
        names.move_to_end(adapter)
        self._tellers.setdefault(adapter, set()).add(address)
        if len(names) > MAX_NAMES:
            self._untell(address, names.popitem(last=False)[0])

    def forget(self, address: str) -> None:
        """Forget an endpoint."""
        self._numbering.discard(address)
        for name in self._named.pop(address, ()):
            self._untell(address, name)

    def told(self, name: str, addresses: AbstractSet[str]) -> bool:
        """Whether one of these endpoints has told of an adapter by this name."""
        tellers = self._tellers.get(name)
        return tellers is not None and not tellers.isdisjoint(addresses)

    def nameless(self, addresses: AbstractSet[str]) -> bool:
        """Whether one of these endpoints tells adapters by numbers."""
        return not self._numbering.isdisjoint(addresses)

    def _untell(self, address: str, name: str) -> None:
        tellers = self._tellers[name]
        tellers.discard(address)
        if not tellers:
            del self._tellers[name]
