"""How much the distance from an Envoy reduces an endpoint's weight."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleet.settings.strict import Strict

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
