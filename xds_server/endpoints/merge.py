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
    """What the sources come to together."""

    pools: tuple[Pool, ...]
    duplicates: int
    """Entries left out because their address stands in an earlier one."""
    over_limit: int
    """Entries left out because there are too many."""


def merge(pools: Iterable[tuple[str, Sequence[Sequence[Endpoint]]]], limit: int) -> Merged:
    """Merge each pool's sources, given in the order of the settings.

    Of two entries with one address, however it is spelt, the first counts: within a pool the source listed
    first has it, over the pools the pool listed first. Past `limit` endpoints the last ones are left out.
    """
    seen: set[str] = set()
    merged = []
    duplicates = over_limit = 0
    for name, sources in pools:
        kept = []
        for endpoint in (endpoint for source in sources for endpoint in source):
            key = identity(endpoint)
            if key in seen:
                duplicates += 1
            elif len(seen) >= limit:
                over_limit += 1
            else:
                seen.add(key)
                kept.append(endpoint)
        merged.append(Pool(name, tuple(kept)))
    return Merged(tuple(merged), duplicates, over_limit)


def identity(endpoint: Endpoint) -> str:
    """One text for every spelling of an address: IPv6 has many. For comparing only, not for Envoy."""
    host = endpoint.host
    return f"[{ip_address(host)}]:{endpoint.port}" if ":" in host else endpoint.address
