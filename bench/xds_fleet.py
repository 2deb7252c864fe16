"""A fleet on paper: settings and snapshots of any number of endpoints, one weight change after another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from fleet.names import RESOURCE_TYPES
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from xds_server.envoy.build import build_snapshot

if TYPE_CHECKING:
    from fleet.settings import Settings
    from xds_server.snapshot.snapshot import Snapshot

POOL: Final = "engines"
_PORT: Final = 8000
_USUAL_WEIGHT: Final = 1000
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Fleet:
    """`endpoints` engines in one pool behind one listener; none needs to exist."""

    def __init__(self, endpoints: int) -> None:
        self.settings = _settings(endpoints)
        self._membership = membership(self.settings)
        self._addresses = [endpoint.address for endpoint in self._membership.endpoints]

    def snapshot(self, number: int) -> Snapshot:
        """Return the snapshot after weight change `number`: another endpoint, another weight, each time."""
        weights = dict.fromkeys(self._addresses, _USUAL_WEIGHT)
        changed = self._addresses[number % len(self._addresses)]
        weights[changed] = _USUAL_WEIGHT + 1 + number % _USUAL_WEIGHT
        return build_snapshot(self.settings, self._membership, weights, frozenset())


def names_by_type(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return what an Envoy comes to ask for, in the order of its types: names, or none for a wildcard."""
    named = ("ClusterLoadAssignment", "RouteConfiguration")
    return {
        type_url: sorted(snapshot.of_type(type_url)) if type_url.endswith(named) else []
        for type_url in RESOURCE_TYPES
    }


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds (RSS), from Linux's /proc."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def _settings(endpoints: int) -> Settings:
    addresses = (f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:{_PORT}" for n in range(1, endpoints + 1))
    text = yaml.safe_dump(
        {
            "pools": [{"name": POOL, "endpoints": [{"address": address} for address in addresses]}],
            "listeners": [{"name": "front", "address": "127.0.0.1:10000", "pool": POOL}],
            "limits": {"endpoints": max(5000, endpoints)},
        }
    )
    return parse_settings(text)
