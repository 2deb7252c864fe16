"""Where one engine has what others lack: stored responses, conversations and files, and hard sessions.

Digests of names to endpoints, bounded; the longest unused go first. They need no expiry: an endpoint that has
left is not looked up, and what a restarted one has lost, no other has.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge
from xxhash import xxh3_64_intdigest

from ext_proc.prompt.stored import files_in_body, name_in_path, names_in_body
from fleet.store import Placement

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from prometheus_client import CollectorRegistry

    from ext_proc.pick.subset import Subset
    from ext_proc.prompt.decode import ParsedBody

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


def stored_name(name: str) -> int:
    """Return the digest of a stored name: never 0."""
    return xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")) or 1


def session_name(digest: int) -> int:
    """Return the digest of a session, which has 128 bits, as a name: never 0."""
    return digest & _MASK or 1


class Places:
    """Digests of names to endpoints. About 0.2 KB each."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        self._by_name: OrderedDict[int, str] = OrderedDict()
        self.on_placed: Callable[[Placement], None] | None = None
        """Passes a place on to all workers, this one included: so they agree on the newest."""

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: int) -> str:
        """Return the endpoint of a name; empty: it is unknown."""
        address = self._by_name.get(name, "")
        if address:
            self._by_name.move_to_end(name)
        return address

    def place(self, name: int, address: str) -> None:
        """Remember the place of a name, and pass it on if it is new."""
        if self._by_name.get(name) != address:
            placement = Placement(name, address)
            self.take(placement)
            if self.on_placed is not None:
                self.on_placed(placement)

    def take(self, placement: Placement) -> None:
        """Remember a place; the newest counts."""
        self._by_name[placement.name] = placement.endpoint
        self._by_name.move_to_end(placement.name)
        while len(self._by_name) > self.entries:
            self._by_name.popitem(last=False)


class StoredNames:
    """Looks up what requests name, and counts what it finds."""

    def __init__(self, places: Places, registry: CollectorRegistry) -> None:
        self._places = places
        named = Counter(
            "warmroute_stored_names",
            "Requests that name a stored response, conversation or file, by whether its endpoint is known",
            ["outcome"],
            registry=registry,
        )
        self._present, self._gone, self._unknown = map(named.labels, ("present", "gone", "unknown"))
        remembered = Gauge("warmroute_places", "Names whose endpoint is remembered", registry=registry)
        remembered.set_function(lambda: len(places))

    def at(self, parsed: ParsedBody, path: str, members: Container[str], allowed: Subset | None) -> str:
        """Return the member that has what a request names; empty: none is known, and weights or costs decide.

        `path` is that of a request whose body does not decide, otherwise empty.
        """
        names = [name] if path and (name := name_in_path(path)) else []
        if (envelope := parsed.envelope) is not None:
            names += names_in_body(envelope)
        if parsed.body and len(self._places):
            names += files_in_body(parsed.body)
        if not names:
            return ""
        places = [place for name in names if (place := self._places.find(stored_name(name)))]
        for place in places:
            if place in members and (allowed is None or allowed.admits(place)):
                self._present.inc()
                return place
        (self._gone if places else self._unknown).inc()
        return ""
