"""The columns of a sample: every endpoint, pool by pool, then every pool that has endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fleet.endpoint import Membership

FloatArray = npt.NDArray[np.float64]
"""NaN is unknown."""
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]


class Scope(NamedTuple):
    """The subject of a column: an endpoint, or a whole pool if `address` is None."""

    pool: str
    address: str | None


@dataclass(frozen=True, eq=False)
class Layout:
    """The columns of one membership."""

    scopes: tuple[Scope, ...]
    addresses: tuple[str, ...]
    """Of the endpoints: the first columns."""
    pools: tuple[str, ...]
    """Of the pools: the columns after them."""
    starts: IntArray
    """A pool's first endpoint."""
    counts: IntArray
    """A pool's number of endpoints, never 0."""
    pool_of: IntArray
    """An endpoint's pool, as its place in `pools`."""

    @classmethod
    def of(cls, membership: Membership) -> Layout:
        """Make the layout of a membership."""
        pools = [pool for pool in membership.pools if pool.endpoints]
        counts = np.array([len(pool.endpoints) for pool in pools], dtype=np.intp)
        endpoints = [Scope(pool.name, endpoint.address) for pool in pools for endpoint in pool.endpoints]
        return cls(
            scopes=(*endpoints, *(Scope(pool.name, None) for pool in pools)),
            addresses=tuple(endpoint.address for pool in pools for endpoint in pool.endpoints),
            pools=tuple(pool.name for pool in pools),
            starts=np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.intp) if pools else counts,
            counts=counts,
            pool_of=np.repeat(np.arange(len(pools), dtype=np.intp), counts),
        )

    @classmethod
    def empty(cls) -> Layout:
        """Return a layout without endpoints, for the time before the first membership."""
        none = np.zeros(0, dtype=np.intp)
        return cls((), (), (), none, none, none)

    @property
    def endpoint_count(self) -> int:
        """Columns that are endpoints."""
        return len(self.addresses)

    @property
    def columns(self) -> int:
        """All columns."""
        return len(self.scopes)

    def pool_columns(self) -> IntArray:
        """Each column's pool, as the column of that pool."""
        own = np.arange(len(self.pools), dtype=np.intp)
        return self.endpoint_count + np.concatenate((self.pool_of, own))

    def shared(self) -> BoolArray:
        """Columns that may have events: all but pools of one endpoint, which would repeat its events."""
        several: BoolArray = np.concatenate((np.ones(self.endpoint_count, dtype=np.bool_), self.counts > 1))
        return several

    def moved_from(self, before: Layout) -> tuple[IntArray, IntArray]:
        """Return the columns here and there of the scopes in both layouts."""
        columns = {scope: column for column, scope in enumerate(before.scopes)}
        there = np.array([columns.get(scope, -1) for scope in self.scopes], dtype=np.intp)
        here = np.flatnonzero(there >= 0)
        return here, there[here]
