"""Many sources, one membership: each address once."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from fleet.endpoint import Endpoint, Pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Merged:
    """The endpoints of all sources together."""

    pools: tuple[Pool, ...]
    duplicates: int
    """Entries left out because an earlier one has the same address."""
    over_limit: int
    """Entries left out because of the limit."""


def merge(pools: Iterable[tuple[str, Sequence[Sequence[Endpoint]]]], limit: int) -> Merged:
    """Merge each pool's sources, in the order of the settings.

    The first entry of an address counts, however the address is spelt: the pool listed first takes
    precedence, and in a pool the source listed first. Endpoints past `limit` are left out.
    """
    identities: set[str] = set()
    merged = []
    duplicates = over_limit = 0
    for name, sources in pools:
        kept = []
        for endpoint in (endpoint for source in sources for endpoint in source):
            key = identity(endpoint)
            if key in identities:
                duplicates += 1
            elif len(identities) >= limit:
                over_limit += 1
            else:
                identities.add(key)
                kept.append(endpoint)
        merged.append(Pool(name, tuple(kept)))
    return Merged(tuple(merged), duplicates, over_limit)


def identity(endpoint: Endpoint) -> str:
    """One text for all spellings of an address (IPv6 has many). For comparisons only, not for Envoy."""
    host = endpoint.host
    return f"[{ip_address(host)}]:{endpoint.port}" if ":" in host else endpoint.address
