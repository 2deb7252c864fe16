"""Nearness as a part of weight: one factor an endpoint, as seen from one place.

The first level (region, zone, sub-zone) at which the two places differ decides. A level that is unknown of
one of them is skipped: an unknown place does not count as far. Where a link between two sub-zones is listed,
it decides instead. Pure: arrays in, arrays out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.weights.border import MAX_WEIGHT, MIN_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fleet.endpoint import Locality
    from fleet.settings import TopologySettings
    from xds_server.weights.columns import FloatArray

LINK_FACTORS: Final[Mapping[str, float]] = {
    "NVLINK": 1.0,
    "PIX": 0.96,
    "PXB": 0.92,
    "PHB": 0.88,
    "NODE": 0.84,
    "SYS": 0.8,
}
"""The order is that of `nvidia-smi topo -m`: NVLink, at most one PCIe bridge, several bridges, a host bridge,
between host bridges of a NUMA node, between NUMA nodes. The steps between are even, for want of a measure."""

_UNKNOWN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Places:
    """Localities as columns of text, one row a place; empty is unknown."""

    regions: npt.NDArray[np.str_]
    zones: npt.NDArray[np.str_]
    sub_zones: npt.NDArray[np.str_]

    @classmethod
    def of(cls, localities: Sequence[Locality]) -> Places:
        """Lay the localities out."""
        return cls(
            np.array([place.region for place in localities], dtype=np.str_),
            np.array([place.zone for place in localities], dtype=np.str_),
            np.array([place.sub_zone for place in localities], dtype=np.str_),
        )


class Topology:
    """The settings, with their links made ready to be looked up."""

    def __init__(self, settings: TopologySettings) -> None:
        self._settings = settings
        self._links: dict[str, dict[str, float]] = {}
        for entry in settings.links:
            self._links.setdefault(entry.from_, {})[entry.to] = LINK_FACTORS[entry.link]
        for entry in settings.links:
            self._links.setdefault(entry.to, {}).setdefault(entry.from_, LINK_FACTORS[entry.link])

    def factors(self, client: Locality, places: Places) -> FloatArray:
        """Return one factor a place, in [0.8, 1.0], as seen from `client`."""
        if not places.zones.size:
            return np.ones(0)
        settings = self._settings
        result = np.full(places.zones.shape, _UNKNOWN)
        if client.sub_zone:
            apart = (places.sub_zones != client.sub_zone) & (places.sub_zones != "")
            result = np.where(apart, settings.same_zone, result)
            result[places.sub_zones == client.sub_zone] = settings.same_sub_zone
        if client.zone:
            apart = (places.zones != client.zone) & (places.zones != "")
            result = np.where(apart, settings.same_region, result)
        if client.region:
            apart = (places.regions != client.region) & (places.regions != "")
            result = np.where(apart, settings.elsewhere, result)
        for sub_zone, factor in self._links.get(client.sub_zone, {}).items():
            result[places.sub_zones == sub_zone] = factor
        return result


def nearer_weighs_more(weights: npt.NDArray[np.int64], factors: FloatArray) -> npt.NDArray[np.int64]:
    """Multiply weights by factors; the results are whole numbers in [1, 10000] again."""
    scaled: npt.NDArray[np.int64] = np.clip(np.rint(weights * factors), MIN_WEIGHT, MAX_WEIGHT).astype(
        np.int64
    )
    return scaled
