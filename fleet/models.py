"""The pool of each model behind a listener: one table for Envoy's routes and for ext_proc. Pure.

For each pool, its settings' models come first, then its endpoints', then its aliases, then what its engines
list in addition. The pools follow in the listener's order, the default pool first; the first pool with a name
has it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.identity import cached_by_identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.endpoint import Membership, Pool
    from fleet.settings import ListenerSettings, PoolSettings, Settings

MOST_NAMES: Final = 4096
"""Of a listener: what engines list beyond these counts as unknown."""


class Place(NamedTuple):
    """Where a model is."""

    pool: str
    model: str
    """Its name there: another one than the request's if that is an alias."""


@dataclass(frozen=True)
class ModelTable:
    """The models behind one listener."""

    pools: tuple[str, ...]
    """The default pool first."""
    header: str
    """The request header that may name the model; empty: none."""
    refuses: bool
    """Whether a model that is not in the table is refused; otherwise the default pool gets it."""
    places: Mapping[str, Place]

    @cached_property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """The names by which requests reach each pool."""
        made: dict[str, list[str]] = {pool: [] for pool in self.pools}
        for name, place in self.places.items():
            made[place.pool].append(name)
        return {pool: tuple(names) for pool, names in made.items()}


def chooses(listener: ListenerSettings, settings: Settings) -> bool:
    """Whether the model of a request changes what becomes of it at a listener."""
    aliases = any(pool.aliases for pool in settings.pools if pool.name in listener.pools)
    return len(listener.pools) > 1 or aliases or listener.unknown_models == "refuse"


def has_aliases(listener: ListenerSettings, settings: Settings) -> bool:
    """Whether a body may be rewritten at a listener."""
    return any(pool.aliases for pool in settings.pools if pool.name in listener.pools)


_NONE: Final[Mapping[str, ModelTable]] = {}
_newest: Final[deque[Mapping[str, ModelTable]]] = deque(maxlen=2)
"""Equal tables are one object: routes are made again only when names change, not with each endpoint."""


@cached_by_identity
def tables(settings: Settings, membership: Membership) -> Mapping[str, ModelTable]:
    """Return the tables of the listeners that need one, by their names."""
    choosing = [listener for listener in settings.listeners if chooses(listener, settings)]
    if not choosing:
        return _NONE  # Always the same, so that what depends on it is not built again.
    by_name = {pool.name: pool for pool in settings.pools}
    members = {pool.name: pool for pool in membership.pools}
    made = {
        listener.name: _table(listener, [(by_name[name], members.get(name)) for name in listener.pools])
        for listener in choosing
    }
    for earlier in tuple(_newest):  # Reloads append on a thread.
        if earlier == made:
            return earlier
    _newest.append(made)
    return made


def _table(listener: ListenerSettings, pools: list[tuple[PoolSettings, Pool | None]]) -> ModelTable:
    places: dict[str, Place] = {}
    for settings, members in pools:
        for name, model in _names(settings, members):
            if name not in places and len(places) < MOST_NAMES:
                places[name] = Place(settings.name, model)
    return ModelTable(listener.pools, listener.model_header, listener.unknown_models == "refuse", places)


def _names(pool: PoolSettings, members: Pool | None) -> Iterator[tuple[str, str]]:
    endpoints = () if members is None else members.endpoints
    for model in (*pool.models, *(model for endpoint in endpoints for model in endpoint.models)):
        yield model, model
    yield from pool.aliases.items()
    for model in (model for endpoint in endpoints for model in endpoint.listed):
        yield model, model
