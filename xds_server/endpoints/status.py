"""Endpoints as the admin server shows them, and their sources."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleet.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """One endpoint as the admin server shows it."""

    endpoint: Endpoint
    state: str
    """`probing`, `admitted`, `ramp`, `asleep`, `leaving`, or `drained` by an operator."""
    source: str
    """`static`, `file PATH`, `dns NAME` or `last good`."""
    not_ready: str | None = None
    """Why its probe fails; None: it is served, or no probe has ended yet."""


def with_states(
    entries: Iterable[EndpointStatus], asleep: Iterable[str], drained: Iterable[str]
) -> list[EndpointStatus]:
    """Return the entries with the states `asleep` and `drained` where they apply."""
    state = dict.fromkeys(asleep, "asleep") | dict.fromkeys(drained, "drained")
    return [replace(entry, state=state.get(entry.endpoint.address, entry.state)) for entry in entries]


def source_by_address(pools: Iterable[Sequence[tuple[str, Sequence[Endpoint]]]]) -> dict[str, str]:
    """Address to the first source that has it, by pools and their sources. Unnamed sources are left out."""
    sources: dict[str, str] = {}
    for pool in pools:
        for source, endpoints in pool:
            if source:
                for endpoint in endpoints:
                    sources.setdefault(endpoint.address, source)
    return sources
