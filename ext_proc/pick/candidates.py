"""A pool's endpoints as numpy columns. Built per membership and per tick, not per request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import numpy as np
from xxhash import xxh3_64_intdigest

from ext_proc.pick.subset import by_host
from fleet.columns import fill_unknown, unknown_as_zero
from fleet.ranks import PARTED_SIGNALS, RANK_SIGNALS, rank_name
from fleet.signals import ROW, rows_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from fleet.endpoint import Locality, Pool
    from fleet.ranks import PoolRanks
    from fleet.signals import SignalTable

MOST_APART: Final = 16
"""Sets of endpoints that are compared one after the other, if a request may mean any of them."""


@dataclass(frozen=True)
class PoolShape:
    """What changes only with the membership: addresses, their hashes and their models."""

    name: str
    addresses: tuple[str, ...]
    position: Mapping[str, int]
    hashes: NDArray[np.uint64]
    """xxh3 of each address, for rendezvous hashing."""
    rows_by_model: Mapping[str, NDArray[np.intp]]
    """Model to positions; only models that the settings name, so that clients cannot grow it."""
    rows_of_any: NDArray[np.intp]
    """Endpoints that name no model and take every one."""
    only_model: str | None
    """The model, when every endpoint serves exactly this one."""
    domains: tuple[int, ...]
    """One bit for each fault domain that some of the endpoints share; empty if there is no such domain."""
    localities: tuple[Locality, ...]
    several: bool
    """Whether an endpoint serves several models by name: one engine's are adapters of its own model."""
    aliases: Mapping[str, str]
    """Further names of an engine's own model to the name that stands for all of them."""
    endpoints: Mapping[str, int]
    """Address to the place among the endpoints; `position` itself where these have no ranks."""
    ranks: int = 1
    """Data-parallel ranks of each endpoint; from 2 on, each has a column, those of an endpoint together."""

    @classmethod
    def of(cls, pool: Pool, ranks: int = 1) -> PoolShape:
        """Index a pool."""
        endpoints = {endpoint.address: place for place, endpoint in enumerate(pool.endpoints)}
        if ranks > 1:
            pool = _by_rank(pool, ranks)
        addresses = tuple(endpoint.address for endpoint in pool.endpoints)
        any_model = [position for position, endpoint in enumerate(pool.endpoints) if not endpoint.models]
        rows: dict[str, list[int]] = {}
        for position, endpoint in enumerate(pool.endpoints):
            for model in (*endpoint.models, *endpoint.listed):
                rows.setdefault(model, []).append(position)
        aliases = _aliases(pool)
        served = {
            frozenset(aliases.get(model, model) for model in models)
            for models in {endpoint.models for endpoint in pool.endpoints}
        }
        common = next(iter(served)) if len(served) == 1 else frozenset()
        row_of = {address: row for row, address in enumerate(addresses)}
        return cls(
            name=pool.name,
            addresses=addresses,
            position=row_of,
            hashes=np.array([xxh3_64_intdigest(address.encode()) for address in addresses], np.uint64),
            rows_by_model={
                model: np.array(sorted({*positions, *any_model}), np.intp)
                for model, positions in rows.items()
            },
            rows_of_any=np.array(any_model, np.intp),
            only_model=next(iter(common)) if len(common) == 1 else None,
            domains=_domains(pool),
            localities=tuple(endpoint.locality for endpoint in pool.endpoints),
            several=any(len(models) > 1 for models in served)
            or any(
                len(endpoint.models) + len(endpoint.listed) > 1
                for endpoint in pool.endpoints
                if endpoint.listed
            ),
            aliases=aliases,
            endpoints=row_of if ranks == 1 else endpoints,
            ranks=ranks,
        )

    def columns_of(self, address: str) -> tuple[str, ...]:
        """Return the names of an endpoint's columns: its own, or those of its ranks."""
        if self.ranks == 1 or (place := self.endpoints.get(address)) is None:
            return (address,)
        return self.addresses[place * self.ranks : (place + 1) * self.ranks]

    @cached_property
    def models_apart(self) -> tuple[str, ...]:
        """One model for each set of endpoints with equal models; empty if there are more than a few."""
        # Models that no endpoint names are one: the endpoints that take every model serve it.
        # Of equal sets the first model: settings name an engine's own model ahead of adapters.
        named = {rows.tobytes(): model for model, rows in reversed([*self.rows_by_model.items()])}
        apart = (*named.values(), "") if self.rows_of_any.size else tuple(named.values())
        return apart if len(apart) <= MOST_APART else ()

    @cached_property
    def hosts(self) -> Mapping[str, Mapping[str, int]]:
        """Places by host and port, for entries of subsets that are not spelt as addresses."""
        return by_host(self.endpoints)

    def model_of(self, named: str | None, *, complete: bool) -> str | None:
        """Return the model that a request means here, None if that is uncertain.

        A body without a model means the pool's only model. In a cut body the name may follow later: which
        of several it is does not matter if all endpoints serve the same ones.
        """
        if named is not None:
            return named
        if self.only_model is not None:
            return self.only_model
        if complete:
            return ""
        return self.models_apart[0] if len(self.models_apart) == 1 else None

    def rows(self, model: str) -> NDArray[np.intp]:
        """Positions of the endpoints that serve `model`."""
        return self.rows_by_model.get(model, self.rows_of_any)

    def names(self, model: str | None) -> bool:
        """Whether an endpoint names `model` as its own."""
        return model in self.rows_by_model


def _by_rank(pool: Pool, ranks: int) -> Pool:
    """Return a pool with a member for each rank."""
    return replace(
        pool,
        endpoints=tuple(
            replace(endpoint, address=rank_name(endpoint.address, rank))
            for endpoint in pool.endpoints
            for rank in range(ranks)
        ),
    )


def _aliases(pool: Pool) -> dict[str, str]:
    """Return name to the first name of the same model, where all engines that serve the name agree."""
    firsts: dict[str, set[str]] = {}
    for endpoint in pool.endpoints:
        for name in endpoint.models:
            same = endpoint.own_names[0] if name in endpoint.own_names else name
            firsts.setdefault(name, set()).add(same)
    return {name: min(same) for name, same in firsts.items() if len(same) == 1 and name not in same}


def _domains(pool: Pool) -> tuple[int, ...]:
    """Endpoints with a common bit fail as one. A domain of one endpoint, or of all, has no bit."""
    members = Counter(domain for endpoint in pool.endpoints for domain in {*endpoint.fault_domains})
    shared = [domain for domain, count in members.items() if 1 < count < len(pool.endpoints)]
    bits = {domain: 1 << number for number, domain in enumerate(shared)}
    if not bits:
        return ()
    return tuple(
        reduce(or_, (bits.get(domain, 0) for domain in endpoint.fault_domains), 0)
        for endpoint in pool.endpoints
    )


@dataclass(frozen=True)
class LoadColumns:
    """A pool's signals at one tick, in the pool's order."""

    signals: SignalTable
    """Fresh ones only."""
    weights: NDArray[np.float64]
    """NaN where there is none."""
    in_flight_elsewhere: NDArray[np.float64]
    """Requests in flight by other workers; 0 without a report."""
    prefill_elsewhere: NDArray[np.float64]
    """Seconds of prefill that other workers have sent so far; NaN: they do not report it."""
    overridden: NDArray[np.bool_]
    """Whether an operator has set the weight."""
    names_ranks: bool = False
    """Whether requests may name the rank that they are picked for."""

    @classmethod
    def of(
        cls,
        shape: PoolShape,
        signals: SignalTable,
        weights: Mapping[str, int],
        elsewhere: Mapping[str, int],
        prefill: Mapping[str, float] | None = None,
        overridden: Collection[str] = (),
    ) -> LoadColumns:
        """Join a pool's part of a `SignalTable` with the values by address."""
        nan, addresses = float("nan"), shape.endpoints
        return cls(
            signals=signals,
            weights=np.array([weights.get(address, nan) for address in addresses], np.float64),
            in_flight_elsewhere=(
                np.array([elsewhere.get(address, 0) for address in addresses], np.float64)
                if elsewhere
                else np.zeros(len(addresses))
            ),
            prefill_elsewhere=(
                np.array([prefill.get(address, 0.0) for address in addresses], np.float64)
                if prefill
                else np.full(len(addresses), nan)
            ),
            overridden=(
                np.array([address in overridden for address in addresses], np.bool_)
                if overridden
                else np.zeros(len(addresses), np.bool_)
            ),
        )

    def by_rank(self, shape: PoolShape, ranks: PoolRanks) -> LoadColumns:
        """Return the columns of the endpoints' ranks: docs/decisions/0034 tells what each has for itself."""
        count, table = shape.ranks, self.signals
        values = table.values.repeat(count, axis=1)
        values[rows_of(PARTED_SIGNALS)] /= count
        for name, numbers in zip(RANK_SIGNALS, ranks.values, strict=True):
            # What has faded or become stale at the endpoint has at its ranks.
            values[ROW[name]] = np.minimum(values[ROW[name]], numbers.reshape(-1))
        # Forecasts are of whole endpoints.
        values[rows_of(name for name in ROW if "_forecast_" in name)] = np.nan
        return LoadColumns(
            replace(
                table,
                addresses=shape.addresses,
                values=values,
                observed_at=table.observed_at.repeat(count, axis=1),
                sources=table.sources.repeat(count, axis=1),
            ),
            self.weights.repeat(count),
            self.in_flight_elsewhere.repeat(count) / count,
            self.prefill_elsewhere.repeat(count) / count,
            self.overridden.repeat(count),
            # Without news for long, an engine may have become another one.
            ranks.named and not np.isnan(values[ROW["running"]]).all(),
        )

    def signal(self, name: str) -> NDArray[np.float64]:
        """Return one signal of every endpoint."""
        return self.signals[name]


@dataclass(frozen=True)
class Candidates:
    """The endpoints that may be chosen, as columns of equal length. NaN is unknown."""

    addresses: tuple[str, ...]
    rows: NDArray[np.intp] | slice
    """The position of each in the pool's columns; a full slice for all, which costs no copy."""
    shape: PoolShape
    hashes: NDArray[np.uint64]
    weights: NDArray[np.float64]
    """Above 0; an endpoint without a weight has the peers' mean."""
    signals: SignalTable
    """Of the whole pool."""
    in_flight_elsewhere: NDArray[np.float64]
    domains: tuple[int, ...]
    """As in `PoolShape`."""
    untrusted: NDArray[np.intp]
    """Rows in the pool of those that are left out because they are not trusted: they are only tried."""
    trials: tuple[tuple[int, str], ...] = ()
    """Row in the pool and address of those whose trust is not whole, those that are left out for it first:
    one may be tried at times."""
    spares: tuple[tuple[tuple[int, str], ...], ...] = ()
    """The same of all that a retry may go to where candidates are too few: those that are full, then those
    that are not trusted; of each kind the heaviest first, and those that weigh the same together."""

    @classmethod
    def of(
        cls,
        shape: PoolShape,
        columns: LoadColumns,
        chosen: NDArray[np.intp],
        untrusted: NDArray[np.intp],
        spare: NDArray[np.intp],
        in_doubt: NDArray[np.intp],
    ) -> Candidates:
        """Take the chosen rows of a pool, at least one.

        `untrusted` and `spare` are left out of them, `in_doubt` are among them.
        """
        whole = chosen.size == len(shape.addresses)
        rows = slice(None) if whole else chosen
        positions = chosen.tolist()
        weights = columns.weights[rows]
        return cls(
            addresses=shape.addresses if whole else tuple(shape.addresses[row] for row in positions),
            rows=rows,
            shape=shape,
            hashes=shape.hashes[rows],
            weights=fill_unknown(np.where(weights > 0, weights, np.nan), 1.0),
            signals=columns.signals,
            in_flight_elsewhere=columns.in_flight_elsewhere[rows],
            domains=tuple(shape.domains[position] for position in positions) if shape.domains else (),
            untrusted=untrusted,
            trials=tuple((row, shape.addresses[row]) for row in (*untrusted.tolist(), *in_doubt.tolist())),
            spares=(*_by_weight(shape, columns, spare), *_by_weight(shape, columns, untrusted)),
        )

    def signal(self, name: str) -> NDArray[np.float64]:
        """Return one signal of every candidate."""
        column: NDArray[np.float64] = self.signals[name][self.rows]
        return column

    def place(self, address: str) -> int | None:
        """Return an endpoint's position among the candidates; None: it is none of them."""
        row = self.shape.position.get(address)
        if row is None or isinstance(self.rows, slice):
            return row
        place = int(self.rows.searchsorted(row))
        return place if place < self.rows.size and self.rows[place] == row else None

    def places(self, address: str) -> list[int]:
        """Return the positions among the candidates of an endpoint or of its ranks."""
        places = map(self.place, self.shape.columns_of(address))
        return [place for place in places if place is not None]

    def shares(self) -> NDArray[np.float64]:
        """Return each candidate's share of the weights, its fair share of the requests: the sum is 1."""
        result: NDArray[np.float64] = self.weights / self.weights.sum()
        return result


def _by_weight(
    shape: PoolShape, columns: LoadColumns, rows: NDArray[np.intp]
) -> Iterator[tuple[tuple[int, str], ...]]:
    """Yield rows with their addresses, the heaviest first, those of one weight together."""
    if not rows.size:
        return
    weights = unknown_as_zero(columns.weights[rows])
    for weight in np.unique(weights)[::-1]:
        yield tuple((row, shape.addresses[row]) for row in rows[weights == weight].tolist())
