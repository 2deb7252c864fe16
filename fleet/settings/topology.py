"""How much the distance from an Envoy reduces an endpoint's weight."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from fleet.settings.strict import Strict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.settings.strict import FieldPath

Factor = Annotated[float, Field(ge=0.8, le=1, allow_inf_nan=False)]
"""At most a fifth less: distance must not overload the near endpoints."""
SubZone = Annotated[str, Field(min_length=1, max_length=256)]


class LinkSettings(Strict):
    """The link between two sub-zones (hosts, or NVLink islands), in the terms of `nvidia-smi topo -m`."""

    from_: SubZone = Field(alias="from")
    """The Envoy's side."""
    to: SubZone
    """The endpoint's side; both directions count alike unless the other one is listed too."""
    link: Literal["NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS"]


class TopologySettings(Strict):
    """The factor of an endpoint's weight, by its place relative to an Envoy."""

    same_sub_zone: Factor = 1.0
    same_zone: Factor = 1.0
    same_region: Factor = 0.9
    elsewhere: Factor = 0.8
    links: tuple[LinkSettings, ...] = ()
    """Between sub-zones; a listed link replaces the factors of the zones."""


def contradictions(topology: TopologySettings) -> Iterator[tuple[FieldPath, str]]:
    """Return path (in this section) and text of each contradiction."""
    steps = ("same_sub_zone", "same_zone", "same_region", "elsewhere")
    for nearer, farther in pairwise(steps):
        most, value = getattr(topology, nearer), getattr(topology, farther)
        if value > most:
            yield (farther,), f"{value}; allowed: 0.8 to {nearer} = {most}, what is farther weighs no more"
    links: dict[tuple[str, str], str] = {}
    for i, entry in enumerate(topology.links):
        pair = (entry.from_, entry.to)
        if pair in links:
            text = f"{entry.link} from {entry.from_!r} to {entry.to!r}"
            yield ("links", i), f"{text}; allowed: each direction once, it is {links[pair]} already"
        links.setdefault(pair, entry.link)
